/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Observes each vCPU's signs of life, and how much it spins, only at its ticks and when it enters
 * or leaves idle. The scheduler and the light sensor use this, because it costs next to nothing.
 * Define answered_after(), idle_changed(), found_spinning() and spins_in_user() before you include
 * this file.
 */
#ifndef UNSPIN_BPF_TICKS_H
#define UNSPIN_BPF_TICKS_H

#include "sense/samples.h"

extern const struct rq runqueues __ksym __weak;

/* The kernel also charges a stopper for the time that its vCPU was off. */
static void note_stopper(struct vcpu *v, u64 ran_ns)
{
	u64 more_ns = ran_ns - v->stopper.ran_ns, off_ns = v->off_ns - v->stopper.off_ns;

	if (v->stopper.ran_ns && more_ns > off_ns)
		v->stopper.on_ns += more_ns - off_ns;
	v->stopper.ran_ns = ran_ns;
	v->stopper.off_ns = v->off_ns;
}

/* Notes this vCPU's context switches since boot, and its stopper's runtime. */
static void note_switches(struct vcpu *v)
{
	const struct task_struct *stopper;
	const struct rq *rq;

	if (!bpf_ksym_exists(&runqueues))
		return;
	rq = bpf_this_cpu_ptr(&runqueues);
	v->switches = rq->nr_switches;
	stopper = rq->stop;
	/* The kernel charges a running stopper later. */
	if (stopper && bpf_get_current_task() != (u64)stopper)
		note_stopper(v, stopper->se.sum_exec_runtime);
}

static void note_alive(struct vcpu *v, u64 now_ns, u64 due)
{
	struct activity_limits limits = settings.limits;
	struct found_off found = {};
	u64 asked_ns = v->activity.idle ? activity_asked_ns(&v->activity) : 0;

	if (asked_ns && now_ns > asked_ns)
		answered_after(now_ns - asked_ns);
	observe(v, &limits, now_ns, due, &found);
}

static int begin_timer(void)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();
	bool was_idle;

	if (!v)
		return 0;
	was_idle = v->activity.idle;
	note_alive(v, now_ns, due_ns(v, now_ns));
	note_switches(v);
	if (!was_idle && sample(v, now_ns))
		found_spinning(now_ns);
	return 0;
}

static int end_timer(void)
{
	struct vcpu *v = this_vcpu();

	if (v)
		note_alive(v, bpf_ktime_get_ns(), kernels_due_ns());
	return 0;
}

static int change_idle(u32 entered, u32 cpu)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();

	if (!v)
		return 0;
	note_alive(v, now_ns, due_ns(v, now_ns));
	if (entered != PWR_EVENT_EXIT) {
		note_switches(v);
		activity_idle(&v->activity, now_ns, due_ns(v, now_ns));
		v->idle_since_ns = now_ns;
		idle_changed(cpu, true);
	} else {
		idle_changed(cpu, false);
		restart_sampling(v, now_ns);
	}
	return 0;
}

#endif /* UNSPIN_BPF_TICKS_H */

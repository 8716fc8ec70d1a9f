/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Each vCPU's signs of life and how much it spins, by its ticks and its ways into idle and
 * out of it alone: for the scheduler, and where watching is to cost next to nothing. Who
 * includes this defines answered_after(), idle_changed(), found_spinning() and
 * spins_in_user() before.
 */
#ifndef UNSPIN_BPF_TICKS_H
#define UNSPIN_BPF_TICKS_H

#include "looks.h"

static void sign_of_life(struct vcpu *v, u64 now_ns, u64 due)
{
	struct activity_limits limits = settings.limits;
	struct found_off found = {};
	u64 asked_ns = v->activity.idle ? activity_asked_ns(&v->activity) : 0;

	if (asked_ns && now_ns > asked_ns)
		answered_after(now_ns - asked_ns);
	judge(v, &limits, now_ns, due, &found);
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(local_timer_entry, int vector)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();
	bool was_idle;

	if (!v)
		return 0;
	was_idle = v->activity.idle;
	sign_of_life(v, now_ns, due_ns(v, now_ns));
	if (!was_idle && look(v, now_ns))
		found_spinning(now_ns);
	return 0;
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(local_timer_exit, int vector)
{
	struct vcpu *v = this_vcpu();

	if (v)
		sign_of_life(v, bpf_ktime_get_ns(), kernels_due_ns());
	return 0;
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, u32 entered, u32 cpu)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();

	if (!v)
		return 0;
	sign_of_life(v, now_ns, due_ns(v, now_ns));
	if (entered != PWR_EVENT_EXIT) {
		activity_idle(&v->activity, now_ns, due_ns(v, now_ns));
		v->idle_since_ns = now_ns;
		idle_changed(cpu, true);
	} else {
		idle_changed(cpu, false);
		begin_looks(v, now_ns);
	}
	return 0;
}

#endif /* UNSPIN_BPF_TICKS_H */

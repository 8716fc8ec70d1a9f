// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest scheduler. Tasks wait in the queues of vCPUs (queues.h); those that run take
 * from the queues of those that do not. How many vCPUs are in use is decided by
 * policy/pack.h, every PACK_WINDOW_NS, from what each was: on, off, idle, spinning. One that
 * is not in use runs tasks that may run nowhere else.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "scx.h"
#include "run.h"
#include "peek.h"
#include "vcpu.h"

char LICENSE[] SEC("license") = "GPL";

/* Set before loading. */
const volatile struct run_settings settings = {};

#include "seats.h"
#include "groups.h"
#include "shares.h"
#include "queues.h"
#include "limits.h"
#include "holders.h"

/* Nothing here acts on it, so it is not looked for. */
static bool spins_in_user(u64 ip)
{
	return false;
}

#include "ticks.h"
#include "packing.h"

/* Another vCPU asks for something, or whether this one is on. */
SEC("tp_btf/reschedule_entry")
int BPF_PROG(reschedule_entry, int vector)
{
	struct activity_limits limits = settings.limits;
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();

	if (v && !activity_is_early(&v->activity, &limits, now_ns))
		sign_of_life(v, now_ns, due_ns(v, now_ns));
	give_way(now_ns);
	return 0;
}

/* A timer's interrupt on a vCPU whose task's group has used its time. */
static void throttle(struct run_state *s, struct seat *seat, u64 now_ns)
{
	s32 here = bpf_get_smp_processor_id();
	bool in_kernel = (s64)interrupted_at() < 0;

	if (in_kernel || goes_on(s, seat, now_ns)) {
		set_lookout(here, now_ns);
		return;
	}
	seat->throttled_tid = bpf_get_current_pid_tgid();
	scx_bpf_kick_cpu(here, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* After what the timer has done, the tick included. */
SEC("tp_btf/local_timer_exit")
int BPF_PROG(timer_done, int vector)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	struct run_state *s = state();
	u64 now_ns = bpf_ktime_get_ns();

	if (s && seat && seat->spent)
		throttle(s, seat, now_ns);
	else
		give_way(now_ns);
	return 0;
}

/* Whether the task can go on here, because who wakes it will sleep at once. Others wait no
 * longer than a slice for such pairs. */
static bool can_take_over(const struct task_struct *p, s32 here)
{
	struct seat *seat = seat_of(here);

	return seat && seat->used && seat->since_ns - seat->served_ns < settings.slice_ns &&
	       bpf_cpumask_test_cpu(here, p->cpus_ptr) &&
	       !scx_bpf_dsq_nr_queued(SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL));
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(run_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 here = bpf_get_smp_processor_id();
	struct run_state *s = state();
	s32 cpu;

	if (wake_flags & SCX(scx_wake_flags, SCX_WAKE_SYNC) && can_take_over(p, here))
		cpu = here;
	else
		cpu = take_idle(p, prev_cpu);
	if (cpu < 0)
		return prev_cpu;
	note_wake(cpu);
	insert(p, SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL), LONG_NS, 0);
	if (s) {
		s->placed++;
		s->woken++;
	}
	return cpu;
}

/* A task has earned no more than a slice by sleeping, or two if an interrupt wakes it. One
 * that has waited is owed more if its group is to have much more than its tasks would, and
 * who has had too much owes: what time makes up for in a while. */
static u64 place_in_time(const struct task_struct *p, u64 enq_flags)
{
	u64 earned_ns = in_interrupt() ? 2 * settings.slice_ns : settings.slice_ns;
	u64 vtime = p->scx.dsq_vtime, latest = vtime_now + AHEAD_MAX_NS, earliest;

	if (!(enq_flags & SCX(scx_enq_flags, SCX_ENQ_WAKEUP)) && is_heavy(group_of(p)))
		earned_ns = AHEAD_MAX_NS;
	earliest = vtime_now - earned_ns;
	if ((s64)(vtime - earliest) < 0)
		return earliest;
	return (s64)(vtime - latest) > 0 ? latest : vtime;
}

/* Whether what runs there has had so much more that the task should run first. Tasks that
 * hand little pieces of work to each other are not to interrupt each other at every one;
 * what a timer or a device wakes is not of that kind. */
static bool should_preempt(const struct seat *seat, u64 vtime, u64 now_ns)
{
	u64 runs_vtime = seat->since_vtime + (now_ns - seat->since_ns);
	u64 more_ns = in_interrupt() ? 0 : settings.slice_ns * 2 / 3;

	return seat->used && seat->since_ns && !seat->due_ns &&
	       (s64)(runs_vtime - vtime) > (s64)more_ns;
}

/* What runs there makes way, unless it holds a lock: only its own vCPU can tell that. */
static void preempt(struct run_state *s, struct seat *seat, s32 cpu, u64 now_ns)
{
	s->preempted++;
	if (settings.no_handoff || !(seat->holder || may_hold(seat->process, now_ns))) {
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	} else if (cpu != bpf_get_smp_processor_id()) {
		seat->due_ns = now_ns;
		scx_bpf_kick_cpu(cpu, 0);
	} else if (!goes_on(s, seat, now_ns)) {
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
}

/* Makes a vCPU run the task that waits now, if one should. */
static void wake_for(const struct task_struct *p, s32 line, u64 vtime, u64 enq_flags, u64 now_ns)
{
	struct seat *seat = seat_of(line);
	struct run_state *s = state();
	s32 cpu = take_idle(p, line);

	/* It may be on its way into idle, and have looked for tasks already. */
	if (cpu < 0 && (!is_used(line) || scx_bpf_test_and_clear_cpu_idle(line)))
		cpu = line;
	if (cpu >= 0) {
		note_wake(cpu);
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
	} else if (s && seat && enq_flags & SCX(scx_enq_flags, SCX_ENQ_WAKEUP) &&
		   should_preempt(seat, vtime, now_ns)) {
		preempt(s, seat, line, now_ns);
	}
}

/* Whether this task has just left its vCPU because there is no time for its group. */
static bool is_to_wait(const struct task_struct *p, s32 was)
{
	struct seat *seat = seat_of(was);
	u32 tid;

	if (!seat || !seat->throttled_tid)
		return false;
	tid = seat->throttled_tid;
	seat->throttled_tid = 0;
	return tid == (u32)p->pid && is_throttled(p);
}

SEC("struct_ops/enqueue")
void BPF_PROG(run_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 local = SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL), now_ns = bpf_ktime_get_ns();
	s32 was = scx_bpf_task_cpu(p), line;
	struct run_state *s = state();
	u64 vtime;

	/* The kernel's own threads of a vCPU, which others wait for. */
	if (p->nr_cpus_allowed == 1 && p->flags & PF_KTHREAD) {
		insert(p, local, LONG_NS, enq_flags | SCX(scx_enq_flags, SCX_ENQ_PREEMPT));
		return;
	}
	if (is_to_wait(p, was)) {
		insert_in_order(p, THROTTLED, LONG_NS, now_ns, enq_flags);
		if (s)
			s->throttled++;
		return;
	}
	line = line_for(p, was, now_ns);
	/* Nobody else wants this vCPU. */
	if (enq_flags & SCX(scx_enq_flags, SCX_ENQ_LAST) && line == was) {
		insert(p, local, LONG_NS, enq_flags);
		return;
	}
	vtime = place_in_time(p, enq_flags);
	if (s) {
		s->queued++;
		s->woken += enq_flags & SCX(scx_enq_flags, SCX_ENQ_WAKEUP) ? 1 : 0;
	}
	queue_at(p, line, vtime, enq_flags);
	wake_for(p, line, vtime, enq_flags, now_ns);
}

SEC("struct_ops/dispatch")
void BPF_PROG(run_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct seat *seat = seat_of(cpu);
	struct run_state *s = state();

	if (!seat || !s)
		return;
	seat->served_ns = now_ns;
	if (take_wanted(s, seat))
		return;
	if (seat->used)
		take_next(seat, cpu, now_ns);
	else
		take_at(seat, cpu);
}

/* Whether somebody waits who is to run before what this vCPU runs. */
static bool others_wait(struct seat *seat, u32 cpu, u64 ran_ns, u64 now_ns)
{
	return scx_bpf_dsq_nr_queued(QUEUE(cpu)) ||
	       (seat->used && late_queue(seat, cpu, seat->since_vtime + ran_ns, now_ns) >= 0);
}

/* A task that has had its turn gives way to those that wait, and one that may run elsewhere
 * leaves a vCPU that is not in use. */
SEC("struct_ops/tick")
void BPF_PROG(run_tick, struct task_struct *p)
{
	u64 now_ns = bpf_ktime_get_ns(), ran_ns;
	u32 cpu = bpf_get_smp_processor_id();
	struct seat *seat = seat_of(cpu);
	struct run_state *s = state();

	if (!seat || !s)
		return;
	charge_limits(seat, now_ns);
	ran_ns = now_ns - seat->since_ns;
	if (!seat->used && may_run_everywhere(p))
		p->scx.slice = 0;
	else if (is_throttled(p))
		seat->spent = 1;
	else if (ran_ns < settings.slice_ns || !others_wait(seat, cpu, ran_ns, now_ns))
		return;
	else if (!goes_on(s, seat, now_ns))
		p->scx.slice = 0;
}

SEC("struct_ops/running")
void BPF_PROG(run_running, struct task_struct *p)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id()), *from;
	u64 latest = vtime_now + AHEAD_MAX_NS;
	struct vcpu *v = this_vcpu();

	if (!seat || !v)
		return;
	/* One that comes from those without time was there by the clock. */
	if ((s64)(p->scx.dsq_vtime - latest) > 0)
		p->scx.dsq_vtime = vtime_now;
	seat->since_ns = seat->charged_ns = bpf_ktime_get_ns();
	seat->since_off_ns = v->off_ns;
	seat->process = p->tgid;
	seat->weight = p->scx.weight;
	seat->group = group_of(p);
	seat->due_ns = 0;
	seat->extended = 0;
	seat->holder = is_named(p);
	seat->since_vtime = p->scx.dsq_vtime;
	from = seat_of(seat->from);
	if (from)
		from->first_vtime = p->scx.dsq_vtime;
	seat->from = -1;
	if ((s64)(p->scx.dsq_vtime - vtime_now) > 0)
		vtime_now = p->scx.dsq_vtime;
	seat->spent = 0;
	seat->throttled_tid = 0;
}

/* What it ran is charged, without what its vCPU was off meanwhile. */
SEC("struct_ops/stopping")
void BPF_PROG(run_stopping, struct task_struct *p, bool runnable)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	struct vcpu *v = this_vcpu();
	u64 now_ns = bpf_ktime_get_ns(), ran_ns, off_ns;

	if (!seat || !v)
		return;
	charge_limits(seat, now_ns);
	ran_ns = now_ns - seat->since_ns;
	off_ns = v->off_ns - seat->since_off_ns;
	ran_ns -= off_ns < ran_ns ? off_ns : ran_ns;
	p->scx.dsq_vtime += charge_ns(ran_ns, p->scx.weight, seat->group);
	seat->group = 0;
	seat->spent = 0;
}

SEC("struct_ops/enable")
void BPF_PROG(run_enable, struct task_struct *p)
{
	p->scx.dsq_vtime = vtime_now;
}

SEC("struct_ops.s/init")
s32 BPF_PROG(run_init)
{
	struct clockwork *clockwork;
	struct run_state *s = state();
	struct seat *seat;
	u32 zero = 0, i;
	s32 error = 0;

	vcpu_count = scx_bpf_nr_cpu_ids();
	clockwork = bpf_map_lookup_elem(&clockworks, &zero);
	if (!clockwork || !s)
		return -1;
	bpf_for(i, 0, vcpu_count) {
		error = scx_bpf_create_dsq(QUEUE(i), -1);
		if (error)
			break;
		seat = seat_of(i);
		if (seat)
			seat->used = 1;
	}
	if (!error)
		error = scx_bpf_create_dsq(THROTTLED, -1);
	if (error)
		return error;
	s->pack.vcpus = vcpu_count;
	s->governor.vcpus = vcpu_count;
	s->use = vcpu_count;
	s->online = vcpu_count;
	error = bpf_timer_init(&clockwork->timer, &clockworks, CLOCK_MONOTONIC);
	if (!error)
		error = bpf_timer_set_callback(&clockwork->timer, window);
	if (!error)
		error = bpf_timer_start(&clockwork->timer, PACK_WINDOW_NS, 0);
	return error;
}

SEC("struct_ops/exit")
void BPF_PROG(run_exit, struct scx_exit_info *info)
{
	struct run_end *end;
	u32 zero = 0;

	end = bpf_map_lookup_elem(&ends, &zero);
	if (!end)
		return;
	bpf_probe_read_kernel_str(end->reason, sizeof(end->reason), info->reason);
	bpf_probe_read_kernel_str(end->message, sizeof(end->message), info->msg);
	end->code = info->exit_code;
	end->kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops unspin = {
	.select_cpu = (void *)run_select_cpu,
	.enqueue = (void *)run_enqueue,
	.dispatch = (void *)run_dispatch,
	.tick = (void *)run_tick,
	.running = (void *)run_running,
	.stopping = (void *)run_stopping,
	.enable = (void *)run_enable,
	.init = (void *)run_init,
	.exit = (void *)run_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.timeout_ms = 10000,
	.name = "unspin",
};

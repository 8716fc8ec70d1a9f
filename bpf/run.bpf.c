// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest scheduler. Tasks wait in one queue that all vCPUs in use take from, in the
 * order of their virtual time. A vCPU takes a task when it runs, so no task waits for one
 * that is off. How many vCPUs are in use is decided by policy/pack.h, every PACK_WINDOW_NS,
 * from what each was: on, off, idle, spinning.
 *
 * Tasks that may not run everywhere wait in the queue of a vCPU where they may; a vCPU that
 * is not in use runs those of its own queue, and no others.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "scx.h"
#include "run.h"
#include "vcpu.h"

char LICENSE[] SEC("license") = "GPL";

/* Set before loading. */
const volatile struct run_settings settings = {};

#include "seats.h"
#include "packing.h"

/* An idle vCPU in use where the task may run, the one where it was first; it is taken. */
static s32 take_idle(const struct task_struct *p, s32 prev_cpu)
{
	s32 cpu;
	u32 i;

	bpf_for(i, 0, vcpu_count) {
		cpu = prev_cpu + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		if (is_used(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
		    scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return -1;
}

/* A vCPU where a task that may not run everywhere is to wait: one in use if it may run on
 * one, where it was if possible. */
static s32 home_of(const struct task_struct *p)
{
	s32 was = scx_bpf_task_cpu(p), home = -1, cpu;
	u32 i;

	bpf_for(i, 0, vcpu_count) {
		cpu = was + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (is_used(cpu))
			return cpu;
		if (home < 0)
			home = cpu;
	}
	return home < 0 ? was : home;
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
	insert(p, SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL), LONG_NS, 0);
	if (s)
		s->placed++;
	return cpu;
}

/* A task has earned no more than a slice by sleeping. */
static u64 place_in_time(const struct task_struct *p)
{
	u64 earliest = vtime_now - settings.slice_ns;
	u64 vtime = p->scx.dsq_vtime;

	return (s64)(vtime - earliest) < 0 ? earliest : vtime;
}

/* Whether what runs there has had so much more that the task should run first. */
static bool should_preempt(s32 cpu, u64 vtime)
{
	struct seat *seat = seat_of(cpu);
	u64 runs_vtime;

	if (!seat || !seat->used || !seat->since_ns)
		return false;
	runs_vtime = seat->since_vtime + (bpf_ktime_get_ns() - seat->since_ns);
	return (s64)(runs_vtime - vtime) > (s64)(settings.slice_ns / 3);
}

/* Where it may not run everywhere, a task waits for a certain vCPU. */
static void wait_at_home(struct task_struct *p, s32 home, u64 vtime, u64 enq_flags)
{
	insert_in_order(p, OWN(home), LONG_NS, vtime, enq_flags);
	/* That one may be about to idle, or be one that nobody else takes from. */
	scx_bpf_kick_cpu(home, 0);
}

static void wait_in_line(struct task_struct *p, s32 was, u64 vtime, u64 enq_flags)
{
	struct run_state *s = state();
	s32 cpu;

	insert_in_order(p, SHARED, LONG_NS, vtime, enq_flags);
	cpu = take_idle(p, was);
	if (cpu >= 0) {
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
	} else if (enq_flags & SCX(scx_enq_flags, SCX_ENQ_WAKEUP) && should_preempt(was, vtime)) {
		scx_bpf_kick_cpu(was, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
		if (s)
			s->preempted++;
	}
}

SEC("struct_ops/enqueue")
void BPF_PROG(run_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 was = scx_bpf_task_cpu(p), home = may_run_everywhere(p) ? -1 : home_of(p);
	u64 local = SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	u64 vtime = place_in_time(p);
	struct run_state *s = state();

	/* The kernel's own threads of a vCPU, which others wait for. */
	if (p->nr_cpus_allowed == 1 && p->flags & PF_KTHREAD) {
		insert(p, local, LONG_NS, enq_flags | SCX(scx_enq_flags, SCX_ENQ_PREEMPT));
		return;
	}
	/* Nobody else wants this vCPU. */
	if (enq_flags & SCX(scx_enq_flags, SCX_ENQ_LAST) && (is_used(was) || home == was)) {
		insert(p, local, LONG_NS, enq_flags);
		return;
	}
	if (s)
		s->queued++;
	if (home < 0)
		wait_in_line(p, was, vtime, enq_flags);
	else
		wait_at_home(p, home, vtime, enq_flags);
}

static bool take_shared(void)
{
	struct run_state *s = state();

	if (!take_from(SHARED))
		return false;
	if (s)
		s->taken++;
	return true;
}

SEC("struct_ops/dispatch")
void BPF_PROG(run_dispatch, s32 cpu, struct task_struct *prev)
{
	struct seat *seat = seat_of(cpu);
	u32 i, other;

	if (!seat)
		return;
	if (!seat->used) {
		take_from(OWN(cpu));
		return;
	}
	seat->turn ^= 1;
	seat->served_ns = bpf_ktime_get_ns();
	if ((seat->turn && take_shared()) || take_from(OWN(cpu)) || (!seat->turn && take_shared()))
		return;
	/* Tasks that wait elsewhere and may run here. */
	bpf_for(i, 1, vcpu_count) {
		other = cpu + i;
		if (other >= vcpu_count)
			other -= vcpu_count;
		if (scx_bpf_dsq_nr_queued(OWN(other)) && take_from(OWN(other)))
			return;
	}
}

/* A task that has had its turn gives way to those that wait, and one that may run elsewhere
 * leaves a vCPU that is not in use. */
SEC("struct_ops/tick")
void BPF_PROG(run_tick, struct task_struct *p)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct seat *seat = seat_of(cpu);

	if (!seat)
		return;
	if (!seat->used && may_run_everywhere(p))
		p->scx.slice = 0;
	else if (bpf_ktime_get_ns() - seat->since_ns >= settings.slice_ns &&
		 (scx_bpf_dsq_nr_queued(OWN(cpu)) ||
		  (seat->used && scx_bpf_dsq_nr_queued(SHARED))))
		p->scx.slice = 0;
}

SEC("struct_ops/running")
void BPF_PROG(run_running, struct task_struct *p)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	struct vcpu *v = this_vcpu();

	if (!seat || !v)
		return;
	seat->since_ns = bpf_ktime_get_ns();
	seat->since_off_ns = v->off_ns;
	seat->since_vtime = p->scx.dsq_vtime;
	if ((s64)(p->scx.dsq_vtime - vtime_now) > 0)
		vtime_now = p->scx.dsq_vtime;
}

/* What it ran is charged, without what its vCPU was off meanwhile. */
SEC("struct_ops/stopping")
void BPF_PROG(run_stopping, struct task_struct *p, bool runnable)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	struct vcpu *v = this_vcpu();
	u64 ran_ns, off_ns;

	if (!seat || !v)
		return;
	ran_ns = bpf_ktime_get_ns() - seat->since_ns;
	off_ns = v->off_ns - seat->since_off_ns;
	ran_ns -= off_ns < ran_ns ? off_ns : ran_ns;
	p->scx.dsq_vtime += ran_ns * WEIGHT / (p->scx.weight ? p->scx.weight : WEIGHT);
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
	s32 error;

	vcpu_count = scx_bpf_nr_cpu_ids();
	clockwork = bpf_map_lookup_elem(&clockworks, &zero);
	if (!clockwork || !s)
		return -1;
	error = scx_bpf_create_dsq(SHARED, -1);
	bpf_for(i, 0, vcpu_count) {
		if (error)
			break;
		error = scx_bpf_create_dsq(OWN(i), -1);
		seat = seat_of(i);
		if (seat)
			seat->used = 1;
	}
	if (error)
		return error;
	s->pack.vcpus = vcpu_count;
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

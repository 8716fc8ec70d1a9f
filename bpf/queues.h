/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues of tasks that wait, one a vCPU, in the order of virtual time; policy/place.h
 * says which one a task goes to, and which one is taken from.
 */
#ifndef UNSPIN_BPF_QUEUES_H
#define UNSPIN_BPF_QUEUES_H

/* Queues of others that a vCPU looks at beside its own, one after the other in turn. */
#define LOOKS 2
/* Idle vCPUs that a task has to choose from. */
#define CHOICES 4
/* A queue of tasks that may not leave it is left alone for so long. */
#define BOUND_NS 1000000ULL

static bool is_off(struct vcpu *v, u64 now_ns)
{
	struct activity_limits limits = settings.limits;

	return activity_look(&v->activity, &limits, now_ns) == ACTIVITY_OFF;
}

static u64 wait_ns(s32 cpu, u64 now_ns)
{
	struct activity_limits limits = settings.limits;
	struct seat *seat = seat_of(cpu);
	struct vcpu *v = vcpu_of(cpu);
	struct place place = {};

	if (!v || !seat)
		return ~0ULL;
	place.state = activity_look(&v->activity, &limits, now_ns);
	place.waiting = scx_bpf_dsq_nr_queued(QUEUE(cpu));
	place.left_ns = activity_left_ns(&v->activity, now_ns);
	place.off_ns = v->activity.off_mean_ns;
	place.wake_ns = seat->wake_ns;
	return place_wait_ns(&place, settings.slice_ns);
}

/* An idle vCPU in use where the task may run, and which answers soon; it is taken. */
static s32 take_idle(const struct task_struct *p, s32 prev_cpu)
{
	u64 least_ns = ~0ULL, ns;
	u32 i, choices = 0;
	struct seat *seat;
	struct vcpu *v;
	s32 cpu, best = -1;

	if (none_is_idle())
		return -1;
	bpf_for(i, 0, vcpu_count) {
		cpu = prev_cpu + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		seat = seat_of(cpu);
		v = vcpu_of(cpu);
		/* One that was asked to run already is taken. */
		if (!seat || !v || !seat->used || !v->activity.idle || v->activity.woken_ns ||
		    !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		ns = seat->wake_ns;
		if (best < 0 || (!settings.no_place && place_is_better(ns, least_ns))) {
			best = cpu;
			least_ns = ns;
		}
		if (++choices >= CHOICES)
			break;
	}
	return best >= 0 && scx_bpf_test_and_clear_cpu_idle(best) ? best : -1;
}

/* A vCPU that has been idle is told to run. */
static void note_wake(s32 cpu)
{
	struct vcpu *v = vcpu_of(cpu);

	if (v)
		activity_wake(&v->activity, bpf_ktime_get_ns());
}

static bool may_wait_at(const struct task_struct *p, s32 cpu)
{
	return is_used(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Where the task is to wait: where it was, or, if that is better, where this program runs,
 * on a vCPU that is on. One that is not in use only if the task may run on no other. */
static s32 line_for(const struct task_struct *p, s32 was, u64 now_ns)
{
	s32 here = bpf_get_smp_processor_id(), cpu, bound = -1;
	bool may_stay = may_wait_at(p, was), may_come = may_wait_at(p, here);
	u32 i;

	if (may_stay && (settings.no_place || here == was || !may_come ||
			 !place_is_better(wait_ns(here, now_ns), wait_ns(was, now_ns))))
		return was;
	if (may_come)
		return here;
	bpf_for(i, 0, vcpu_count) {
		cpu = was + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		if (may_wait_at(p, cpu))
			return cpu;
		if (bound < 0 && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			bound = cpu;
	}
	return bound < 0 ? was : bound;
}

static void queue_at(struct task_struct *p, s32 cpu, u64 vtime, u64 enq_flags)
{
	struct seat *seat = seat_of(cpu);

	if (seat && (!scx_bpf_dsq_nr_queued(QUEUE(cpu)) || (s64)(vtime - seat->first_vtime) < 0))
		seat->first_vtime = vtime;
	insert_in_order(p, QUEUE(cpu), LONG_NS, vtime, enq_flags);
}

/* What is known of a queue's first task is from when one was put there, or taken. */
static void look_at_first(struct seat *seat, s32 cpu)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, QUEUE(cpu), 0) {
		seat->first_vtime = p->scx.dsq_vtime;
		break;
	}
}

/* Whether that queue's first task is to run before one of that virtual time. */
static bool comes_first(s32 cpu, u64 vtime, u64 now_ns)
{
	struct place_queue queue = {};
	struct seat *seat = seat_of(cpu);
	struct vcpu *v = vcpu_of(cpu);

	if (!seat || !v || !scx_bpf_dsq_nr_queued(QUEUE(cpu)) || now_ns < seat->bound_ns)
		return false;
	queue.first_vtime = seat->first_vtime;
	queue.served_ns = seat->served_ns;
	queue.serves = seat->used && !is_off(v, now_ns);
	if (!place_takes(vtime, &queue, now_ns, settings.slice_ns))
		return false;
	look_at_first(seat, cpu);
	queue.first_vtime = seat->first_vtime;
	return place_takes(vtime, &queue, now_ns, settings.slice_ns);
}

/* Another vCPU's queue that is to be served before one of that virtual time; -1: none of
 * those that were looked at. */
static s32 late_queue(struct seat *seat, s32 cpu, u64 vtime, u64 now_ns)
{
	s32 other;
	u32 i;

	bpf_for(i, 0, LOOKS) {
		other = ++seat->looked_at;
		if (other >= (s32)vcpu_count)
			other = seat->looked_at = 0;
		if (other != cpu && comes_first(other, vtime, now_ns))
			return other;
	}
	return -1;
}

static bool take_at(struct seat *seat, s32 cpu)
{
	struct run_state *s = state();

	if (!take_from(QUEUE(cpu)))
		return false;
	seat->from = cpu;
	if (s)
		s->taken++;
	return true;
}

/* Takes a task of another vCPU, if one may run here. */
static bool pull_from(struct seat *seat, s32 cpu, u64 now_ns)
{
	struct seat *other = seat_of(cpu);
	struct run_state *s = state();

	if (!other || !s)
		return false;
	if (take_at(seat, cpu)) {
		s->pulled++;
		return true;
	}
	other->bound_ns = now_ns + BOUND_NS;
	return false;
}

/* The next task for this vCPU. */
static void take_next(struct seat *seat, s32 cpu, u64 now_ns)
{
	bool waits = scx_bpf_dsq_nr_queued(QUEUE(cpu));
	s32 other;
	u32 i;

	other = late_queue(seat, cpu, waits ? seat->first_vtime : ~0ULL >> 1, now_ns);
	if (other >= 0 && pull_from(seat, other, now_ns))
		return;
	if (waits && take_at(seat, cpu))
		return;
	bpf_for(i, 1, vcpu_count) {
		other = cpu + i;
		if (other >= (s32)vcpu_count)
			other -= vcpu_count;
		if (scx_bpf_dsq_nr_queued(QUEUE(other)) && pull_from(seat, other, now_ns))
			return;
	}
}

#endif /* UNSPIN_BPF_QUEUES_H */

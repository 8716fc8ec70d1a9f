/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues of waiting tasks, one for each vCPU, ordered by virtual time. policy/place.h chooses
 * the queue that a task goes to, and the queue that a vCPU takes from.
 */
#ifndef UNSPIN_BPF_QUEUES_H
#define UNSPIN_BPF_QUEUES_H

/* The number of other vCPUs' queues that a vCPU checks before its own. It continues where it
 * stopped the last time. */
#define SCAN_QUEUES 2
/* The number of idle vCPUs among which a task's vCPU is chosen. */
#define CHOICES 4
/* The number of attempts to claim one of them. */
#define IDLE_TRIES 2
/* How long other vCPUs skip a queue whose tasks may not leave it. */
#define BOUND_NS 1000000ULL

static bool is_off(struct vcpu *v, u64 now_ns)
{
	struct activity_limits limits = settings.limits;

	return activity_look(&v->activity, &limits, now_ns) == ACTIVITY_OFF;
}

static u64 wait_ns(s32 cpu, u64 now_ns)
{
	struct activity_limits limits = settings.limits;
	struct cpu_ctx *cctx = ctx_of(cpu);
	struct vcpu *v = vcpu_of(cpu);
	struct place place = {};

	if (!v || !cctx)
		return ~0ULL;
	place.state = activity_look(&v->activity, &limits, now_ns);
	place.waiting = waiting_at(cpu);
	place.left_ns = activity_left_ns(&v->activity, now_ns);
	place.off_ns = v->activity.off_mean_ns;
	place.wake_ns = cctx->wake_ns;
	return place_wait_ns(&place, settings.slice_ns);
}

/* Returns an idle vCPU where the task may run; -1: none. Takes the nearest one from prev_cpu on
 * or, with the mechanism `place`, one that responds soon. Only a bound task gets a vCPU that is
 * not in use. */
static s32 find_idle(const struct task_struct *p, s32 prev_cpu)
{
	u64 least_ns = ~0ULL, ns;
	bool bound = is_bound(p);
	u32 i, choices = 0;
	struct cpu_ctx *cctx;
	struct vcpu *v;
	s32 cpu, best = -1;

	bpf_for(i, 0, vcpu_count) {
		cpu = prev_cpu + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		cctx = ctx_of(cpu);
		v = vcpu_of(cpu);
		/* A vCPU that has already been woken is taken. */
		if (!cctx || !v || !(cctx->used || (bound && cctx->online)) ||
		    !v->activity.idle || v->activity.woken_ns ||
		    !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		ns = cctx->wake_ns;
		if (best < 0 || place_is_better(ns, least_ns)) {
			best = cpu;
			least_ns = ns;
		}
		if (!settings.place || ++choices >= CHOICES)
			break;
	}
	return best;
}

/* Does the same, and claims the vCPU. If another vCPU claims it at the same time, tries the next
 * one. */
static s32 take_idle(const struct task_struct *p, s32 prev_cpu)
{
	s32 cpu;
	u32 i;

	if (none_is_idle())
		return -1;
	bpf_for(i, 0, IDLE_TRIES) {
		cpu = find_idle(p, prev_cpu);
		if (cpu < 0)
			return -1;
		if (scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
		prev_cpu = cpu + 1 < (s32)vcpu_count ? cpu + 1 : 0;
	}
	return -1;
}

/* Notes that an idle vCPU is being woken. */
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

/* Returns the vCPU at whose queue the task is to wait. This is the vCPU where it ran last or, if
 * `place` finds it better, the current one, which is on. If the task may wait at neither, it is
 * the next vCPU where it may. A vCPU that is not in use is chosen only if the task may run on no
 * other. */
static s32 pick_queue(const struct task_struct *p, s32 was, u64 now_ns)
{
	s32 here = bpf_get_smp_processor_id(), cpu, bound = -1;
	bool may_stay = may_wait_at(p, was), may_come = may_wait_at(p, here);
	u32 i;

	if (may_stay && !(settings.place && here != was && may_come &&
			  place_is_better(wait_ns(here, now_ns), wait_ns(was, now_ns))))
		return was;
	if (may_come)
		return here;
	bpf_for(i, 0, vcpu_count) {
		cpu = was + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		if (may_wait_at(p, cpu))
			return cpu;
		if (bound < 0 && is_online(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			bound = cpu;
	}
	return bound < 0 ? was : bound;
}

static void queue_at(struct task_struct *p, s32 cpu, u64 vtime, u64 enq_flags)
{
	struct cpu_ctx *cctx = ctx_of(cpu);

	if (cctx && (!waiting_at(cpu) || (s64)(vtime - cctx->first_vtime) < 0))
		cctx->first_vtime = vtime;
	insert_in_order(p, QUEUE(cpu), LONG_NS, vtime, enq_flags);
}

/* Refreshes the virtual time of a queue's first task, which dates from the last time that a task
 * was queued or taken. */
static void look_at_first(struct cpu_ctx *cctx, s32 cpu)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, QUEUE(cpu), 0) {
		cctx->first_vtime = p->scx.dsq_vtime;
		break;
	}
}

/* Returns whether that queue's first task should run before a task of that virtual time. */
static bool comes_first(s32 cpu, u64 vtime, u64 now_ns)
{
	struct place_queue queue = {};
	struct cpu_ctx *cctx = ctx_of(cpu);
	struct vcpu *v = vcpu_of(cpu);

	if (!cctx || !v || !waiting_at(cpu) || now_ns < cctx->bound_ns)
		return false;
	queue.first_vtime = cctx->first_vtime;
	queue.served_ns = cctx->served_ns;
	queue.serves = cctx->used && !is_off(v, now_ns);
	if (!place_takes(vtime, &queue, now_ns, settings.slice_ns))
		return false;
	look_at_first(cctx, cpu);
	queue.first_vtime = cctx->first_vtime;
	return place_takes(vtime, &queue, now_ns, settings.slice_ns);
}

/* Returns another vCPU's queue that should be served before a task of that virtual time; -1: none
 * of the queues that were checked. */
static s32 late_queue(struct cpu_ctx *cctx, s32 cpu, u64 vtime, u64 now_ns)
{
	s32 other;
	u32 i;

	bpf_for(i, 0, SCAN_QUEUES) {
		other = ++cctx->scanned;
		if (other >= (s32)vcpu_count)
			other = cctx->scanned = 0;
		if (other != cpu && comes_first(other, vtime, now_ns))
			return other;
	}
	return -1;
}

static bool take_at(struct cpu_ctx *cctx, s32 cpu)
{
	if (!take_from(QUEUE(cpu)))
		return false;
	cctx->from = cpu;
	cctx->counts.taken++;
	return true;
}

/* Takes a task from another vCPU's queue, if one may run here. */
static bool pull_from(struct cpu_ctx *cctx, s32 cpu, u64 now_ns)
{
	struct cpu_ctx *other = ctx_of(cpu);

	if (!other)
		return false;
	if (take_at(cctx, cpu)) {
		cctx->counts.pulled++;
		return true;
	}
	other->bound_ns = now_ns + BOUND_NS;
	return false;
}

/* Takes a task of that queue that is bound to vCPUs out of use, including this one. */
static bool take_bound(struct cpu_ctx *cctx, u64 queue, s32 here)
{
	u64 local = SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	struct task_struct *p;
	u32 looked = 0;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (is_bound(p) && may_go_to(p, here) && TAKE_THIS(p, local)) {
			cctx->counts.taken++;
			return true;
		}
		if (++looked >= SEARCH)
			break;
	}
	return false;
}

/* Takes the next task for this vCPU, if there is one. A vCPU that is not in use takes only bound
 * tasks, even from its own queue. */
static bool take_next(struct cpu_ctx *cctx, s32 cpu, u64 now_ns)
{
	bool waits = waiting_at(cpu);
	s32 other;
	u32 i;

	if (!cctx->used) {
		bpf_for(i, 0, vcpu_count) {
			other = cpu + i;
			if (other >= (s32)vcpu_count)
				other -= vcpu_count;
			if (waiting_at(other) && !is_used(other) &&
			    take_bound(cctx, QUEUE(other), cpu))
				return true;
		}
		return false;
	}
	other = late_queue(cctx, cpu, waits ? cctx->first_vtime : ~0ULL >> 1, now_ns);
	if (other >= 0 && pull_from(cctx, other, now_ns))
		return true;
	if (waits && take_at(cctx, cpu))
		return true;
	bpf_for(i, 1, vcpu_count) {
		other = cpu + i;
		if (other >= (s32)vcpu_count)
			other -= vcpu_count;
		if (waiting_at(other) && pull_from(cctx, other, now_ns))
			return true;
	}
	return false;
}

/* This vCPU is about to halt, which others can see from now on. A task may have been queued after
 * this vCPU looked for one, and before it counted as idle; then no vCPU was woken for that task.
 * So the vCPU checks the queues of others once more. For its own queue, it has been woken. Queues
 * that it then fails to take from are skipped for a while, so it halts at the second attempt. */
static void look_again(s32 here)
{
	/* A task that was sent here meanwhile may have been missed. */
	bool missed = placed_at(here);
	struct cpu_ctx *cctx;
	u32 i;

	if (!missed && !is_used(here))
		return;
	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (!cctx || missed)
			break;
		missed = i != here && waiting_at(i) && bpf_ktime_get_ns() >= cctx->bound_ns;
	}
	if (missed)
		scx_bpf_kick_cpu(here, SCX(scx_kick_flags, SCX_KICK_IDLE));
}

/* Returns whether a task waits for this vCPU, or a task that waits for another vCPU should run
 * before the current one. The waker of a task that took over this vCPU's local queue may not have
 * gone to sleep as expected. */
static bool others_wait(struct cpu_ctx *cctx, u32 cpu, u64 ran_ns, u64 now_ns)
{
	u64 vtime = cctx->since_vtime + charge_ns(ran_ns, cctx->weight, cctx->group);

	return scx_bpf_dsq_nr_queued(SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL)) > 0 ||
	       placed_at(cpu) || waiting_at(cpu) || late_queue(cctx, cpu, vtime, now_ns) >= 0;
}

#endif /* UNSPIN_BPF_QUEUES_H */

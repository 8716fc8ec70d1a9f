/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits the scheduler to as many vCPUs as the agent wants, and chooses those that deliver most.
 */
#ifndef UNSPIN_BPF_PACKING_H
#define UNSPIN_BPF_PACKING_H

/* The window over which each vCPU's capacity is measured. */
#define RUN_WINDOW_NS 25000000ULL
/* After so many windows, the vCPUs to use are chosen again even if their number stays the same:
 * the host may give others more time now. */
#define RANK_WINDOWS 40
/* If tasks wait for so many windows while none is taken, all vCPUs are used for STUCK_NS:
 * real-time tasks may occupy those in use. */
#define STUCK_WINDOWS 2
/* How long a vCPU has to release its task before it is kicked again. */
#define CLEAR_NS 20000000ULL
/* The share of the wanted time, in percent, that vCPUs must be off to count as overcommitted. */
#define OVERCOMMIT_PERCENT 10

/* The number of vCPUs that the agent wants to use; 0: all. */
static u32 wanted_vcpus;
/* A lock. 1: a choice of the vCPUs to use is under way, or the vCPUs are not known yet. */
static u64 choosing = 1;

/* Sums over all vCPUs since the start, at the end of the last window. */
static struct {
	u64 idle_ns;
	u64 off_ns;
	u64 taken;
} sums;

static u64 stacks_sum;
/* 1: all vCPUs are idle, and the window's timer is stopped. */
static u64 resting;

/* These return a vCPU's total time off or idle, including the interval under way. */
static u64 off_so_far_ns(const struct vcpu *v, u64 now_ns)
{
	struct activity_limits limits = settings.limits;

	if (v->activity.idle || !v->activity.due_ns ||
	    activity_look(&v->activity, &limits, now_ns) != ACTIVITY_OFF)
		return v->off_ns;
	return v->off_ns + now_ns - v->activity.due_ns;
}

static u64 idle_so_far_ns(const struct vcpu *v, u64 now_ns)
{
	if (!v->idle_since_ns || now_ns < v->idle_since_ns)
		return v->idle_ns;
	return v->idle_ns + now_ns - v->idle_since_ns;
}

GLOBAL int sum_up(u64 now_ns)
{
	struct run_state *s = state();
	u64 off_ns, idle_ns;
	struct cpu_ctx *cctx;
	struct vcpu *v;
	u32 i;

	if (!s)
		return 0;
	__builtin_memset(&sums, 0, sizeof(sums));
	s->waiting = 0;
	bpf_for(i, 0, vcpu_count) {
		v = vcpu_of(i);
		cctx = ctx_of(i);
		if (!v || !cctx)
			break;
		if (!cctx->online)
			continue;
		sums.taken += cctx->counts.taken;
		s->waiting += waiting_at(i);
		off_ns = off_so_far_ns(v, now_ns);
		idle_ns = idle_so_far_ns(v, now_ns);
		capacity_look(&cctx->capacity, off_ns, idle_ns, s->t_ns ? now_ns - s->t_ns : 0);
		sums.idle_ns += idle_ns;
		sums.off_ns += off_ns;
	}
	return 0;
}

static u32 stack_of(u32 cpu)
{
	u32 *first = bpf_map_lookup_elem(&stacks, &cpu);

	return first && *first ? *first - 1 : cpu;
}

/* Returns whether the set of vCPUs that share pCPUs has changed. */
static bool stacks_have_changed(void)
{
	u64 sum = 0;
	bool changed;
	u32 i;

	bpf_for(i, 0, vcpu_count)
		sum = sum * 31 + stack_of(i);
	changed = sum != stacks_sum;
	stacks_sum = sum;
	return changed;
}

/* Returns how many vCPUs on the same pCPU rank before this one. */
static u32 behind(struct cpu_ctx *cctx, u32 cpu)
{
	u32 i, count = 0, stack = stack_of(cpu);
	struct cpu_ctx *other;

	bpf_for(i, 0, vcpu_count) {
		other = ctx_of(i);
		/* An offline vCPU may still be listed as sharing. */
		if (other && other->online && i != cpu && stack_of(i) == stack &&
		    capacity_is_more(&other->capacity, i, &cctx->capacity, cpu))
			count++;
	}
	return count;
}

/* Counts the vCPUs that come before this one in the choice. */
static void rank(struct cpu_ctx *cctx, u32 cpu)
{
	struct cpu_ctx *other;
	u32 i;

	cctx->rank = 0;
	bpf_for(i, 0, vcpu_count) {
		other = ctx_of(i);
		if (!other)
			break;
		if (other->online && i != cpu &&
		    capacity_comes_first(&other->capacity, i, &cctx->capacity, cpu))
			cctx->rank++;
	}
}

/* Puts so many vCPUs into use, those that deliver most. */
GLOBAL int use_vcpus(u32 use)
{
	struct run_state *s = state();
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_ctx *cctx;
	u32 i;

	if (!s)
		return 0;
	if (!stacks_have_changed() && use == s->use &&
	    (use == s->online || s->windows % RANK_WINDOWS))
		return 0;
	s->use = use;
	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (cctx)
			cctx->capacity.behind = behind(cctx, i);
	}
	/* Add vCPUs before removing others: with none in use, every task would count as bound. */
	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (!cctx)
			break;
		if (!cctx->online)
			continue;
		rank(cctx, i);
		if (cctx->rank < use)
			set_used(cctx, i, true);
	}
	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (!cctx)
			break;
		if (!cctx->online || !cctx->used || cctx->rank < use)
			continue;
		/* Clear this before the kick, because the vCPU may look for its next task at
		 * once. */
		set_used(cctx, i, false);
		s->cleared++;
		cctx->cleared_ns = now_ns;
		scx_bpf_kick_cpu(i, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	/* Wake those in use, so that they take the tasks that wait on vCPUs out of use. */
	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (cctx && cctx->online && cctx->used)
			scx_bpf_kick_cpu(i, SCX(scx_kick_flags, SCX_KICK_IDLE));
	}
	return 0;
}

static u64 grown(u64 now, u64 before)
{
	return now > before ? now - before : 0;
}

/* Returns whether vCPUs were off for much of the time that they wanted to run. */
static bool is_overcommitted(const struct run_state *s, u64 now_ns)
{
	u64 all_ns = s->online * (now_ns - s->t_ns), idle_ns = grown(sums.idle_ns, s->idle_ns);

	return all_ns > idle_ns && grown(sums.off_ns, s->off_ns) * 100 >
					   (all_ns - idle_ns) * OVERCOMMIT_PERCENT;
}

/* Ends a window. */
static void end_window(struct run_state *s, u64 now_ns)
{
	sum_up(now_ns);
	s->overcommitted = s->t_ns && is_overcommitted(s, now_ns);
	s->stuck = s->t_ns && s->waiting && sums.taken == s->taken ? s->stuck + 1 : 0;
	if (s->stuck >= STUCK_WINDOWS)
		s->stuck_until_ns = now_ns + STUCK_NS;
	s->idle_ns = sums.idle_ns;
	s->off_ns = sums.off_ns;
	s->taken = sums.taken;
	s->t_ns = now_ns;
	s->windows++;
}

/* Returns the number of vCPUs to use from now on. */
static u32 to_use(const struct run_state *s, u64 now_ns)
{
	u32 wanted = *(volatile u32 *)&wanted_vcpus;

	return wanted && wanted < s->online && now_ns >= s->stuck_until_ns ? wanted : s->online;
}

/* Takes the lock. The capacities must not change during a choice, and both the agent's thread and
 * the window's timer make choices. */
static bool begin_choice(void)
{
	return __sync_bool_compare_and_swap(&choosing, 0, 1);
}

static void end_choice(void)
{
	barrier();
	*(volatile u64 *)&choosing = 0;
}

/* Kicks vCPUs out of use that still run a task which may run elsewhere. Returns how many there
 * are. */
GLOBAL int clear_vcpus(void)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_ctx *cctx;
	int count = 0;
	u32 i;

	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (!cctx)
			break;
		if (!cctx->online || cctx->used || !cctx->since_ns || cctx->bound)
			continue;
		count++;
		if (now_ns < cctx->cleared_ns + CLEAR_NS)
			continue;
		cctx->cleared_ns = now_ns;
		scx_bpf_kick_cpu(i, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	return count;
}

static bool all_are_idle(const struct run_state *s)
{
	return vcpu_count <= IDLE_BITS && __builtin_popcountll(idle_vcpus) >= s->online &&
	       !s->waiting && scx_bpf_dsq_nr_queued(THROTTLED) <= 0;
}

/* Restarts the windows, because a tick has found a task or a task has to wait. Tasks that run for
 * less than a tick, as in an idle machine, therefore do not cost a window each. */
static void end_rest(void)
{
	struct window_timer *timer;
	u32 zero = 0;

	if (!resting || !__sync_bool_compare_and_swap(&resting, 1, 0))
		return;
	timer = bpf_map_lookup_elem(&window_timers, &zero);
	if (timer)
		bpf_timer_start(&timer->timer, RUN_WINDOW_NS, 0);
}

static int window(void *map, u32 *key, struct window_timer *timer)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct run_state *s = state();
	bool rests;

	if (!s)
		return 0;
	rests = all_are_idle(s);
	if (!rests)
		bpf_timer_start(&timer->timer, RUN_WINDOW_NS, 0);
	weigh_groups(now_ns);
	keep_limits(now_ns);
	keep_placed(now_ns);
	sweep(now_ns);
	if (begin_choice()) {
		end_window(s, now_ns);
		use_vcpus(to_use(s, now_ns));
		end_choice();
	}
	if (rests)
		s->t_ns = 0;
	/* This comes last, because from now on another vCPU may start the timer. A vCPU that got
	 * work before did not start it, so look again. */
	if (rests && !__sync_lock_test_and_set(&resting, 1) && !all_are_idle(s))
		end_rest();
	return 0;
}

#endif /* UNSPIN_BPF_PACKING_H */

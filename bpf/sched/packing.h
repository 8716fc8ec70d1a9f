/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Uses as many vCPUs as the agent wants, those that deliver most.
 */
#ifndef UNSPIN_BPF_PACKING_H
#define UNSPIN_BPF_PACKING_H

/* What each vCPU delivers is looked at once in so long. */
#define RUN_WINDOW_NS 25000000ULL
/* After so many windows the vCPUs to use are chosen again, though they are as many as before: the
 * host may give others more time now. */
#define RANK_WINDOWS 40
/* Tasks that wait for so many windows while none is taken get all vCPUs for STUCK_NS: real-time
 * tasks may have those in use. */
#define STUCK_WINDOWS 2
/* How long a vCPU has to let go of its task before it is asked again. */
#define CLEAR_NS 20000000ULL
/* From this share of the wanted time off, in percent, vCPUs are overcommitted. */
#define OVERCOMMIT_PERCENT 10

/* How many vCPUs the agent wants to be used; 0: all. */
static u32 wanted_vcpus;
/* 1: somebody chooses the vCPUs to use, or they are not known yet. */
static u64 choosing = 1;

/* Sums over all vCPUs since the start, as the last window found them. */
static struct {
	u64 idle_ns;
	u64 off_ns;
	u64 taken;
} sums;

static u64 stacks_sum;
/* 1: all vCPUs are idle, and the window's timer is not running. */
static u64 resting;

/* What a vCPU was off and idle since the start, what lasts included. */
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

/* Whether it is known of other vCPUs now that they share a pCPU. */
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

/* How many of those on the same pCPU come before this vCPU. */
static u32 behind(struct cpu_ctx *cctx, u32 cpu)
{
	u32 i, count = 0, stack = stack_of(cpu);
	struct cpu_ctx *other;

	bpf_for(i, 0, vcpu_count) {
		other = ctx_of(i);
		/* One that has left may be known to have shared. */
		if (other && other->online && i != cpu && stack_of(i) == stack &&
		    capacity_is_more(&other->capacity, i, &cctx->capacity, cpu))
			count++;
	}
	return count;
}

/* How many vCPUs come before this one in the choice of those to use. */
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

/* Uses so many vCPUs, those that deliver most. */
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
	/* Those that come before those that leave: with none in use, every task would be bound. */
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
		/* First, because the vCPU may look for its next task at once. */
		set_used(cctx, i, false);
		s->cleared++;
		cctx->cleared_ns = now_ns;
		scx_bpf_kick_cpu(i, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	/* What waits where nobody takes it any more is for those in use. */
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

/* Whether vCPUs were off for much of the time that they wanted. */
static bool is_overcommitted(const struct run_state *s, u64 now_ns)
{
	u64 all_ns = s->online * (now_ns - s->t_ns), idle_ns = grown(sums.idle_ns, s->idle_ns);

	return all_ns > idle_ns && grown(sums.off_ns, s->off_ns) * 100 >
					   (all_ns - idle_ns) * OVERCOMMIT_PERCENT;
}

/* A window has passed. */
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

/* How many vCPUs to use from now on. */
static u32 to_use(const struct run_state *s, u64 now_ns)
{
	u32 wanted = *(volatile u32 *)&wanted_vcpus;

	return wanted && wanted < s->online && now_ns >= s->stuck_until_ns ? wanted : s->online;
}

/* What vCPUs deliver must not change while the ones to use are chosen by it: the agent's thread and
 * the window's timer take turns. */
static bool begin_choice(void)
{
	return __sync_bool_compare_and_swap(&choosing, 0, 1);
}

static void end_choice(void)
{
	barrier();
	*(volatile u64 *)&choosing = 0;
}

/* Asks vCPUs that are not in use, and still run a task that may run elsewhere, to let go of it.
 * Returns how many these are. */
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

/* The windows go on: a tick has found a task, or a task has to wait. So tasks that run for less
 * than a tick, as in an idle machine, do not cost a window each. */
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
	/* Last: from then on another vCPU may start the timer. One that had work before that did not,
	 * so look again. */
	if (rests && !__sync_lock_test_and_set(&resting, 1) && !all_are_idle(s))
		end_rest();
	return 0;
}

#endif /* UNSPIN_BPF_PACKING_H */

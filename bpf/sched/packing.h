/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many vCPUs are used: what each one was in the last window is summed up, and
 * policy/pack.h decides.
 */
#ifndef UNSPIN_BPF_PACKING_H
#define UNSPIN_BPF_PACKING_H

#include "sched/progress.h"

/* Sums over all vCPUs since the start, as the last window found them: nanoseconds, and what is
 * counted. */
static struct {
	u64 idle_ns;
	u64 off_ns;
	u64 spin_ns;
	u64 page_faults;
	u64 given_up;
	u64 woken;
	u64 taken;
} sums;

/* After so many windows the vCPUs to use are chosen again, though they are as many as before: the
 * host may give others more time now. */
#define RANK_WINDOWS 40

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
	s32 waiting;
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
		sums.page_faults += page_faults(i);
		sums.given_up += objects_given_up(i);
		sums.woken += cctx->counts.woken;
		sums.taken += cctx->counts.taken;
		waiting = scx_bpf_dsq_nr_queued(QUEUE(i));
		s->waiting += waiting > 0 ? waiting : 0;
		off_ns = off_so_far_ns(v, now_ns);
		idle_ns = idle_so_far_ns(v, now_ns);
		capacity_look(&cctx->capacity, off_ns, idle_ns, s->t_ns ? now_ns - s->t_ns : 0);
		sums.idle_ns += idle_ns;
		sums.off_ns += off_ns;
		sums.spin_ns += v->samples.spin_ns;
	}
	return 0;
}

static u64 grown(u64 now, u64 before)
{
	return now > before ? now - before : 0;
}

static u32 grown_u32(u64 now, u64 before)
{
	u64 by = grown(now, before);

	return by < ~0U ? by : ~0U;
}

static u32 thousandths(u64 now, u64 before, u64 window_ns)
{
	return grown(now, before) * 1000 / window_ns;
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
	struct cpu_ctx *cctx;
	u32 i, wanted;

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
	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (!cctx)
			break;
		if (!cctx->online)
			continue;
		rank(cctx, i);
		wanted = cctx->rank < use;
		if (cctx->used == wanted)
			continue;
		cctx->used = wanted;
		s->cleared += !wanted;
		scx_bpf_kick_cpu(i, wanted ? SCX(scx_kick_flags, SCX_KICK_IDLE)
					   : SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	return 0;
}

/* How many vCPUs to use from now on. */
GLOBAL u32 decide(u64 now_ns)
{
	struct run_state *s = state();
	u64 window_ns, all_m, away_m;
	struct pack_facts facts = {};

	if (!s)
		return 0;
	window_ns = now_ns - s->t_ns;
	all_m = s->online * 1000;
	if (!s->t_ns || !window_ns)
		return s->use;
	facts.off_m = thousandths(sums.off_ns, s->off_ns, window_ns);
	facts.spin_m = thousandths(sums.spin_ns, s->spin_ns, window_ns);
	away_m = facts.off_m + thousandths(sums.idle_ns, s->idle_ns, window_ns);
	facts.on_m = away_m < all_m ? all_m - away_m : 0;
	facts.wakes = grown_u32(sums.woken, s->woken);
	facts.done = grown(sums.page_faults, s->page_faults) + grown(sums.given_up, s->given_up);
	facts.taken = grown_u32(sums.taken, s->taken);
	facts.queued_m = s->waiting * 1000;
	s->facts = facts;
	s->windows++;
	s->used_sum += s->use;
	if (settings.pack_rule == PACK_BY_WASTE)
		return pack_step(&s->pack, &facts, now_ns);
	if (settings.pack_rule == PACK_AS_STEAL_GOVERNOR)
		return steal_governor_step(&s->governor, facts.off_m, now_ns);
	return s->use;
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
		bpf_timer_start(&timer->timer, PACK_WINDOW_NS, 0);
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
		bpf_timer_start(&timer->timer, PACK_WINDOW_NS, 0);
	weigh_groups(now_ns);
	keep_limits(now_ns);
	sweep(now_ns);
	sum_up(now_ns);
	use_vcpus(decide(now_ns));
	s->idle_ns = sums.idle_ns;
	s->off_ns = sums.off_ns;
	s->spin_ns = sums.spin_ns;
	s->page_faults = sums.page_faults;
	s->given_up = sums.given_up;
	s->woken = sums.woken;
	s->taken = sums.taken;
	s->t_ns = rests ? 0 : now_ns;
	/* Last: from then on another vCPU may start the timer. */
	resting = rests;
	return 0;
}

#endif /* UNSPIN_BPF_PACKING_H */

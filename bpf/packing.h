/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many vCPUs are used: what each one was in the last window is summed up, and
 * policy/pack.h decides.
 */
#ifndef UNSPIN_BPF_PACKING_H
#define UNSPIN_BPF_PACKING_H

#include "progress.h"

/* Sums over all vCPUs since the start: nanoseconds, and what is counted. */
struct sums {
	u64 idle_ns;
	u64 off_ns;
	u64 spin_ns;
	u64 page_faults;
	u64 given_up;
};

static u64 stacks_sum;

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

static void sum_up(struct run_state *s, u64 now_ns, struct sums *sums)
{
	u64 off_ns, idle_ns;
	struct seat *seat;
	struct vcpu *v;
	s32 waiting;
	u32 i;

	s->counted = 0;
	s->waiting = 0;
	bpf_for(i, 0, vcpu_count) {
		v = vcpu_of(i);
		seat = seat_of(i);
		if (!v || !seat)
			break;
		/* Since the machine's start: who appears later must not add all of it at once. */
		sums->page_faults += page_faults(i);
		sums->given_up += objects_given_up(i);
		/* It may be possible and not there. */
		if (!v->activity.alive_ns)
			continue;
		s->counted++;
		waiting = scx_bpf_dsq_nr_queued(QUEUE(i));
		s->waiting += waiting > 0 ? waiting : 0;
		off_ns = off_so_far_ns(v, now_ns);
		idle_ns = idle_so_far_ns(v, now_ns);
		capacity_look(&seat->capacity, off_ns, idle_ns, now_ns - s->t_ns);
		sums->idle_ns += idle_ns;
		sums->off_ns += off_ns;
		sums->spin_ns += v->looks.spin_ns;
	}
	s->online = s->counted;
}

static u64 grown(u64 now, u64 before)
{
	return now > before ? now - before : 0;
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
static u32 behind(struct seat *seat, u32 cpu)
{
	u32 i, count = 0, stack = stack_of(cpu);
	struct seat *other;
	struct vcpu *v;

	bpf_for(i, 0, vcpu_count) {
		other = seat_of(i);
		v = vcpu_of(i);
		/* One that has left may be known to have shared. */
		if (other && v && v->activity.alive_ns && i != cpu && stack_of(i) == stack &&
		    capacity_is_more(&other->capacity, i, &seat->capacity, cpu))
			count++;
	}
	return count;
}

/* How many vCPUs come before this one in the choice of those to use. */
static void rank(struct seat *seat, u32 cpu)
{
	struct seat *other;
	struct vcpu *v;
	u32 i;

	seat->rank = 0;
	bpf_for(i, 0, vcpu_count) {
		other = seat_of(i);
		v = vcpu_of(i);
		if (!other || !v)
			break;
		if (v->activity.alive_ns && i != cpu &&
		    capacity_comes_first(&other->capacity, i, &seat->capacity, cpu))
			seat->rank++;
	}
}

/* Uses so many vCPUs, those that deliver most. */
static void use_vcpus(struct run_state *s, u32 use)
{
	struct seat *seat;
	u32 i, wanted;

	if (!stacks_have_changed() && use == s->use)
		return;
	s->use = use;
	bpf_for(i, 0, vcpu_count) {
		seat = seat_of(i);
		if (seat)
			seat->capacity.behind = behind(seat, i);
	}
	bpf_for(i, 0, vcpu_count) {
		seat = seat_of(i);
		if (!seat)
			break;
		rank(seat, i);
		wanted = seat->rank < use;
		if (seat->used == wanted)
			continue;
		seat->used = wanted;
		s->cleared += !wanted;
		scx_bpf_kick_cpu(i, wanted ? SCX(scx_kick_flags, SCX_KICK_IDLE)
					   : SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
}

static void decide(struct run_state *s, const struct sums *sums, u64 now_ns)
{
	u64 window_ns = now_ns - s->t_ns, all_m = s->online * 1000, away_m;
	struct pack_facts facts = {};

	if (!s->t_ns || !window_ns)
		return;
	facts.off_m = thousandths(sums->off_ns, s->off_ns, window_ns);
	facts.spin_m = thousandths(sums->spin_ns, s->spin_ns, window_ns);
	away_m = facts.off_m + thousandths(sums->idle_ns, s->idle_ns, window_ns);
	facts.on_m = away_m < all_m ? all_m - away_m : 0;
	facts.wakes = s->woken - s->wakes;
	facts.done = grown(sums->page_faults, s->page_faults) + grown(sums->given_up, s->given_up);
	facts.taken = s->taken - s->taken_before;
	s->taken_before = s->taken;
	facts.queued_m = s->waiting * 1000;
	s->facts = facts;
	s->windows++;
	s->used_sum += s->use;
	if (settings.pack_rule == PACK_BY_WASTE)
		use_vcpus(s, pack_step(&s->pack, &facts, now_ns));
	else if (settings.pack_rule == PACK_AS_STEAL_GOVERNOR)
		use_vcpus(s, steal_governor_step(&s->governor, facts.off_m, now_ns));
}

/* Tasks of a great weight hardly move virtual time on; the others would wait for ever. */
static void move_on(u64 window_ns)
{
	u64 least = vtime_before + window_ns / SLOWEST;

	if ((s64)(least - vtime_now) > 0)
		vtime_now = least;
	vtime_before = vtime_now;
}

static int window(void *map, u32 *key, struct clockwork *clockwork)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct run_state *s = state();
	struct sums sums = {};

	bpf_timer_start(&clockwork->timer, PACK_WINDOW_NS, 0);
	if (!s)
		return 0;
	if (s->t_ns)
		move_on(now_ns - s->t_ns);
	weigh_groups(now_ns);
	keep_limits(now_ns);
	sum_up(s, now_ns, &sums);
	decide(s, &sums, now_ns);
	s->idle_ns = sums.idle_ns;
	s->off_ns = sums.off_ns;
	s->spin_ns = sums.spin_ns;
	s->page_faults = sums.page_faults;
	s->given_up = sums.given_up;
	s->wakes = s->woken;
	s->t_ns = now_ns;
	return 0;
}

#endif /* UNSPIN_BPF_PACKING_H */

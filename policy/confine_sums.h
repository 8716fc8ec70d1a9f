/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sums what the windows with one number of vCPUs brought, and compares two numbers (confine.h).
 */
#ifndef UNSPIN_POLICY_CONFINE_SUMS_H
#define UNSPIN_POLICY_CONFINE_SUMS_H

#include "base.h"

/* The activity of all vCPUs in a window of time, in thousandths of a vCPU unless it is a
 * count. */
struct confine_facts {
	/* The vCPUs ran. */
	u32 on_m;
	/* The vCPUs wanted to run and were off. */
	u32 off_m;
	/* The vCPUs were in a slow path that waits without sleeping, on or off. */
	u32 spin_m;
	/* The vCPUs were off in such a slow path, as far as is known. Like off_m, it counts in
	 * the window in which an off interval ends, so it may be longer than the window. */
	u32 spin_off_m;
	/* Half of the time off that lies in slow paths that held back ticks, in which the vCPUs
	 * may have been on as well. This half counts as on, the other half as off. */
	u32 held_m;
	/* The number of such slow paths that ended: a count. */
	u32 paths;
	/* The vCPUs switched between tasks, estimated at a fixed price for each switch, or moved
	 * tasks that were running. */
	u32 switch_m;
	/* The ticks that found a vCPU busy, and those of them in user mode: counts. */
	u32 ticks;
	u32 user_ticks;
	/* The weight of the window in a mean, in windows, if it was longer than one; 0 means
	 * 1. */
	u32 windows;
};

/* Sums over windows. Zeroed at first. */
struct confine_sums {
	/* The windows that count, and the windows before them that were skipped because they show
	 * the change itself. */
	u32 windows;
	u32 skipped;
	/* The weight of the windows that count. Each sum below is weighted by it. */
	u64 weight;
	u64 on_m;
	u64 wanted_m;
	u64 spin_m;
	u64 spin_off_m;
	u64 held_m;
	u64 switch_m;
};

/* This many windows after a change do not count: vCPUs that are off move their tasks only when
 * they are on again, and their earlier time off counts then. */
#define CONFINE_SKIP_WINDOWS 2
/* In the settled phase, the sums are halved whenever this many windows have been added up. */
#define CONFINE_MEMORY_WINDOWS 8
/* A window with at most this many slow paths, and less than this percentage of spinning, has
 * nothing to spin for. Work that contends for anything shows ten times as many paths, however few
 * vCPUs it has. */
#define CONFINE_CALM_PATHS 3
#define CONFINE_CALM_PERCENT 1
/* If tasks switch for at least this percentage of the time on, they do little else: they yield
 * for a lock, or switching is their work, or they change their affinity. Useful time says little
 * about them. hackbench reaches a seventh at most. */
#define CONFINE_SWITCHES_PERCENT 20
/* A loss of useful time of more than this percentage is clear. */
#define CONFINE_CLEAR_LOSS_PERCENT 40
/* If the vCPUs spin for at least this percentage of the wanted time, off intervals are hidden. */
#define CONFINE_BLIND_PERCENT 75

POLICY void confine_forget(struct confine_sums *sums)
{
	struct confine_sums none = {};

	*sums = none;
}

/* Returns how many windows a window counts for. */
POLICY u32 confine_weight(const struct confine_facts *facts)
{
	return facts->windows ? facts->windows : 1;
}

POLICY void confine_add(struct confine_sums *sums, const struct confine_facts *facts, int fades)
{
	u32 weight = confine_weight(facts);

	if (sums->skipped < CONFINE_SKIP_WINDOWS) {
		sums->skipped++;
		return;
	}
	if (fades && sums->windows >= CONFINE_MEMORY_WINDOWS) {
		sums->windows /= 2;
		sums->weight /= 2;
		sums->on_m /= 2;
		sums->wanted_m /= 2;
		sums->spin_m /= 2;
		sums->spin_off_m /= 2;
		sums->held_m /= 2;
		sums->switch_m /= 2;
	}
	sums->windows++;
	sums->weight += weight;
	sums->on_m += (u64)weight * facts->on_m;
	sums->wanted_m += (u64)weight * ((u64)facts->on_m + facts->off_m);
	sums->spin_m += (u64)weight * facts->spin_m;
	sums->spin_off_m += (u64)weight * facts->spin_off_m;
	sums->held_m += (u64)weight * facts->held_m;
	sums->switch_m += (u64)weight * facts->switch_m;
}

POLICY void confine_join(struct confine_sums *sums, const struct confine_sums *others)
{
	sums->windows += others->windows;
	sums->weight += others->weight;
	sums->on_m += others->on_m;
	sums->wanted_m += others->wanted_m;
	sums->spin_m += others->spin_m;
	sums->spin_off_m += others->spin_off_m;
	sums->held_m += others->held_m;
	sums->switch_m += others->switch_m;
}

POLICY u64 confine_mean(const struct confine_sums *sums, u64 sum)
{
	return sum / (sums->weight ? sums->weight : 1);
}

/* Returns the mean useful time: the time on, less spinning and context switches. Unseen time off
 * lies in a slow path and counts both as on and as spun, so it makes no difference. Context
 * switches do not count as work either. If they belong to the work, both numbers of vCPUs switch
 * equally often for equal work. Tasks that yield until another one releases a lock switch a
 * thousand times as often on fewer vCPUs. */
POLICY u64 confine_useful_m(const struct confine_sums *sums)
{
	u64 on_m = sums->on_m + sums->spin_off_m, wasted_m = sums->spin_m + sums->switch_m;

	return on_m > wasted_m ? confine_mean(sums, on_m - wasted_m) : 0;
}

POLICY u32 confine_spin_percent(const struct confine_sums *sums)
{
	u64 spin_m = sums->spin_m < sums->wanted_m ? sums->spin_m : sums->wanted_m;

	return sums->wanted_m ? (u32)(spin_m * 100 / sums->wanted_m) : 0;
}

POLICY int confine_switches_much(const struct confine_sums *sums)
{
	return sums->windows && sums->switch_m * 100 >= sums->on_m * CONFINE_SWITCHES_PERCENT;
}

POLICY u32 confine_off_percent(const struct confine_sums *sums)
{
	return sums->wanted_m ? (u32)((sums->wanted_m - sums->on_m) * 100 / sums->wanted_m) : 0;
}

/* Returns the largest percentage that the vCPUs may have been off, counting held time as off. */
POLICY u32 confine_most_off_percent(const struct confine_sums *sums)
{
	u64 off_m = sums->wanted_m - sums->on_m + sums->held_m;

	return sums->wanted_m ? (u32)(off_m * 100 / sums->wanted_m) : 0;
}

/* Returns the shortest time that the vCPUs may have been on, not counting held time as on. */
POLICY u32 confine_least_on_m(const struct confine_sums *sums)
{
	return (u32)confine_mean(sums, sums->on_m > sums->held_m ? sums->on_m - sums->held_m : 0);
}

/* Whether the vCPUs spin so much that the time on proves nothing: spinners that are off pass for
 * on. */
POLICY int confine_is_blind(const struct confine_sums *sums)
{
	return confine_spin_percent(sums) >= CONFINE_BLIND_PERCENT;
}

POLICY int confine_is_calm(const struct confine_facts *facts)
{
	u64 wanted_m = (u64)facts->on_m + facts->off_m;

	return facts->paths <= CONFINE_CALM_PATHS &&
	       (u64)facts->spin_m * 100 < wanted_m * CONFINE_CALM_PERCENT;
}

/* Whether a window with more vCPUs spins for more than `percent` of the wanted time, and for a
 * larger share than the windows before. */
POLICY int confine_spins_more(const struct confine_sums *before, const struct confine_facts *facts,
			      u32 percent)
{
	u32 share = confine_spin_percent(before);
	u64 wanted_m = (u64)facts->on_m + facts->off_m;

	if (share < percent)
		share = percent;
	return (u64)facts->spin_m * 100 > wanted_m * share;
}

/* Whether `sums` has at least `percent` more useful time than `than`, and a smaller share of
 * spinning. */
POLICY int confine_gains(const struct confine_sums *sums, const struct confine_sums *than,
			 u32 percent)
{
	u64 useful_m = confine_useful_m(sums);

	return confine_spin_percent(sums) < confine_spin_percent(than) && useful_m &&
	       useful_m * 100 >= confine_useful_m(than) * (100 + percent);
}

/* Whether `sums` has more than `percent` less useful time than `than`. */
POLICY int confine_loses(const struct confine_sums *sums, const struct confine_sums *than,
			 u32 percent)
{
	return confine_useful_m(sums) * 100 < confine_useful_m(than) * (100 - percent);
}

/* Whether `sums` fails so clearly against `than` that the trial needs no more windows. */
POLICY int confine_fails(const struct confine_sums *sums, const struct confine_sums *than)
{
	return confine_switches_much(sums) ||
	       confine_loses(sums, than, CONFINE_CLEAR_LOSS_PERCENT);
}

#endif /* UNSPIN_POLICY_CONFINE_SUMS_H */

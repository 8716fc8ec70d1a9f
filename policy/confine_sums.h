/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What windows with one number of vCPUs brought, and how two numbers compare (confine.h).
 */
#ifndef UNSPIN_POLICY_CONFINE_SUMS_H
#define UNSPIN_POLICY_CONFINE_SUMS_H

#include "base.h"

/* What all vCPUs did in a window of time, in thousandths of a vCPU. */
struct confine_facts {
	/* They ran. */
	u32 on_m;
	/* They wanted to run and were off. */
	u32 off_m;
	/* They were in a slow path that waits without sleeping, whether on or off. */
	u32 spin_m;
	/* They were off in one, as far as is known. As the time off, it counts where an off
	 * interval ends, and may be longer than the window. */
	u32 spin_off_m;
	/* They were on or off in one that held ticks back: as much again counts as off. */
	u32 held_m;
	/* How many such slow paths ended: this is a count. */
	u32 paths;
	/* They switched between tasks, an estimate with a price for each time, or moved tasks that
	 * were running. */
	u32 switch_m;
	/* How many ticks found it at work, and how many of these in user mode: counts. */
	u32 ticks;
	u32 user_ticks;
	/* As how many windows it counts in a mean, where it was longer than one; 0 is 1. */
	u32 windows;
};

/* Sums over windows. Zeroed at first. */
struct confine_sums {
	/* Those that count, and those before them that show the change itself. */
	u32 windows;
	u32 skipped;
	/* As how many they count, which their sums are of. */
	u64 weight;
	u64 on_m;
	u64 wanted_m;
	u64 spin_m;
	u64 spin_off_m;
	u64 held_m;
	u64 switch_m;
};

/* So many windows after a change do not count: vCPUs that are off move their tasks when they are
 * on again, and what they were off before counts then. */
#define CONFINE_SKIP_WINDOWS 2
/* A settled number's sums count half of the windows before the last ones. */
#define CONFINE_MEMORY_WINDOWS 8
/* A window with no more slow paths, and a smaller share of spinning in percent, has nothing to
 * spin for: work that contends for anything shows ten times as many, however few vCPUs it has. */
#define CONFINE_CALM_PATHS 3
#define CONFINE_CALM_PERCENT 1
/* From this share of the time on, in percent, tasks do little but switch: they yield for a lock, or
 * to switch is their work, or they change their affinity. Useful time says little about them.
 * hackbench has a seventh at most. */
#define CONFINE_SWITCHES_PERCENT 20
/* A loss that is clear, in percent. */
#define CONFINE_CLEAR_LOSS_PERCENT 40
/* From this share of spins on, in percent, off intervals are hidden. */
#define CONFINE_BLIND_PERCENT 75

POLICY void confine_forget(struct confine_sums *sums)
{
	struct confine_sums none = {};

	*sums = none;
}

POLICY void confine_add(struct confine_sums *sums, const struct confine_facts *facts, int fades)
{
	u32 weight = facts->windows ? facts->windows : 1;

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

/* Time on, less what was spun in it. A time off that was not seen lies in a slow path, and counts as
 * on and as spun: it makes no difference. Context switches are no work either: where they belong to
 * the work, both of two numbers have as many for as much work; tasks that yield until another one
 * lets go of a lock switch a thousand times as often on fewer vCPUs. */
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

/* The most that it may have been. */
POLICY u32 confine_most_off_percent(const struct confine_sums *sums)
{
	u64 off_m = sums->wanted_m - sums->on_m + sums->held_m;

	return sums->wanted_m ? (u32)(off_m * 100 / sums->wanted_m) : 0;
}

/* The least time on that there may have been. */
POLICY u32 confine_least_on_m(const struct confine_sums *sums)
{
	return (u32)confine_mean(sums, sums->on_m > sums->held_m ? sums->on_m - sums->held_m : 0);
}

/* Whether so much is spun that time on says nothing: spinners that are off pass for on. */
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

/* Whether a window with more vCPUs spins, in percent, and a larger share than with those before. */
POLICY int confine_spins_more(const struct confine_sums *before, const struct confine_facts *facts,
			      u32 percent)
{
	u32 share = confine_spin_percent(before);
	u64 wanted_m = (u64)facts->on_m + facts->off_m;

	if (share < percent)
		share = percent;
	return (u64)facts->spin_m * 100 > wanted_m * share;
}

/* Whether it brought so much more useful time and a smaller share of spinning. */
POLICY int confine_gains(const struct confine_sums *sums, const struct confine_sums *than,
			 u32 percent)
{
	u64 useful_m = confine_useful_m(sums);

	return confine_spin_percent(sums) < confine_spin_percent(than) && useful_m &&
	       useful_m * 100 >= confine_useful_m(than) * (100 + percent);
}

/* Whether it brought so much less useful time. */
POLICY int confine_loses(const struct confine_sums *sums, const struct confine_sums *than,
			 u32 percent)
{
	return confine_useful_m(sums) * 100 < confine_useful_m(than) * (100 - percent);
}

/* Whether it failed so clearly that nothing more has to be seen. */
POLICY int confine_fails(const struct confine_sums *sums, const struct confine_sums *than)
{
	return confine_switches_much(sums) ||
	       confine_loses(sums, than, CONFINE_CLEAR_LOSS_PERCENT);
}

#endif /* UNSPIN_POLICY_CONFINE_SUMS_H */

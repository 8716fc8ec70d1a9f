/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Decides how much spinning justifies a trial of fewer vCPUs (confine.h).
 *
 * The spinning that fewer vCPUs avoid must be worth more than the time that they give away. If
 * other VMs want the same pCPUs, they get what a limit leaves: four vCPUs beside four rivals have
 * half of the host's time, two have a third. If vCPUs are off for most of the time, the reason
 * may be rivals, or three vCPUs on one pCPU. Time on and off cannot distinguish the two, but a
 * trial shows how much of the time on is left.
 */
#ifndef UNSPIN_POLICY_CONFINE_SPIN_H
#define UNSPIN_POLICY_CONFINE_SPIN_H

#include "confine_sums.h"

/* The share of the wanted time that is spun, in percent, from which fewer vCPUs are tried.
 * Without that spinning, useful time would be a quarter longer. A trial costs some 100 ms, and
 * below this share it does not pay. */
#define CONFINE_SPIN_PERCENT 20
/* The same if no overcommit is seen: off intervals too short for ticks pass for time on. */
#define CONFINE_SPIN_ANYWAY_PERCENT 40
/* vCPUs are overcommitted if they are off for this percentage of the wanted time. */
#define CONFINE_OFF_PERCENT 10
/* If vCPUs are off for this percentage of the wanted time, rivals may be the reason. Then this
 * spin share, in percent, justifies a trial until a trial has shown whether they are. */
#define CONFINE_CONTESTED_PERCENT 60
#define CONFINE_CONTESTED_SPIN_PERCENT 45
/* The fewest windows that the share is a mean of, because spins come in bursts. Under a limit,
 * bursts remain, because the host may put two vCPUs on one pCPU for some slices. */
#define CONFINE_SPIN_WINDOWS 2
#define CONFINE_SPIN_AGAIN_WINDOWS 6
/* A vCPU that is on for this many thousandths of a window is on for all of it: beside as many
 * greedy vCPUs, the most was 830. */
#define CONFINE_WHOLE_M 900
/* The gain that fewer vCPUs must bring, in percent: a smaller one is the noise of three
 * windows. */
#define CONFINE_GAIN_PERCENT 10

/* Returns how much of the time on fewer vCPUs kept, in percent, from 1 to 100. */
POLICY u32 confine_left_percent(const struct confine_sums *fewer, const struct confine_sums *before)
{
	u64 was_m = confine_mean(before, before->on_m), is_m = confine_mean(fewer, fewer->on_m);

	if (is_m >= was_m)
		return 100;
	return is_m * 100 < was_m ? 1 : (u32)(is_m * 100 / was_m);
}

/* Whether the vCPUs in use have no rivals: they were on for a whole window and did not spin,
 * which would hide time off. A single vCPU proves nothing, because a slice can be that long. */
POLICY int confine_is_whole(const struct confine_facts *facts, u32 use)
{
	u64 wanted_m = (u64)facts->on_m + facts->off_m;

	return use > 1 && facts->on_m >= use * CONFINE_WHOLE_M &&
	       (u64)facts->spin_m * 100 < wanted_m * CONFINE_SPIN_PERCENT;
}

/* Returns the spin share, in percent, from which fewer vCPUs are tried. `all` is nonzero if all
 * vCPUs are in use. `left` is the percentage of the time on that fewer vCPUs kept in the last
 * trial; 0: unknown. */
POLICY u32 confine_spin_wanted(const struct confine_sums *sums, int all, u32 left)
{
	u32 off = confine_off_percent(sums), gives_away;

	if (off < CONFINE_OFF_PERCENT || !all)
		return CONFINE_SPIN_ANYWAY_PERCENT;
	if (confine_most_off_percent(sums) < CONFINE_CONTESTED_PERCENT)
		return CONFINE_SPIN_PERCENT;
	if (!left)
		return CONFINE_CONTESTED_SPIN_PERCENT;
	gives_away = 100 - left * 100 / (100 + CONFINE_GAIN_PERCENT);
	return gives_away > CONFINE_SPIN_PERCENT ? gives_away : CONFINE_SPIN_PERCENT;
}

/* Returns how many windows the spin share must be a mean of. In a collapse, one is enough. */
POLICY u32 confine_spin_windows(const struct confine_sums *sums, int all)
{
	if (!all)
		return CONFINE_SPIN_AGAIN_WINDOWS;
	return confine_is_blind(sums) ? 1 : CONFINE_SPIN_WINDOWS;
}

/* Whether both the mean of the last windows and the very last one justify fewer vCPUs. */
POLICY int confine_wasteful(const struct confine_sums *sums, const struct confine_facts *facts,
			    int all, u32 left)
{
	u32 percent = confine_spin_wanted(sums, all, left);

	return sums->windows >= confine_spin_windows(sums, all) && confine_spin_percent(sums) >= percent &&
	       (u64)facts->spin_m * 100 >= ((u64)facts->on_m + facts->off_m) * percent;
}

/* Whether a window with more vCPUs did more although it spun: the host keeps none of them off,
 * and they spin too little for a trial of fewer. Work that contends even while every vCPU is on
 * behaves like this. */
POLICY int confine_gains_anyway(const struct confine_sums *before, const struct confine_facts *facts)
{
	struct confine_sums window = { .skipped = CONFINE_SKIP_WINDOWS };

	confine_add(&window, facts, 0);
	return confine_most_off_percent(&window) < CONFINE_OFF_PERCENT &&
	       confine_spin_percent(&window) < CONFINE_SPIN_ANYWAY_PERCENT &&
	       confine_useful_m(&window) * 100 >=
		       confine_useful_m(before) * (100 + CONFINE_GAIN_PERCENT);
}

#endif /* UNSPIN_POLICY_CONFINE_SPIN_H */

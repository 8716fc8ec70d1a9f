/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the windows since a number of vCPUs came into use brought (pack.h), in sums and on average.
 */
#ifndef UNSPIN_POLICY_PACK_SUMS_H
#define UNSPIN_POLICY_PACK_SUMS_H

#include "pack_facts.h"

/* The first window after a change shows the change itself; so many do not count. */
#define PACK_SKIP 1

/* Zeroed at first. */
struct pack_sums {
	/* Those that do not count included. */
	u64 windows;
	u64 useful_m;
	u64 spin_m;
	u64 off_m;
	u64 on_m;
	u64 queued_m;
	u64 wakes;
	u64 done;
	/* Windows in which much was done. */
	u64 done_often;
};

POLICY void pack_sums_forget(struct pack_sums *sums)
{
	struct pack_sums none = {};

	*sums = none;
}

/* Counts half of what has been until now. */
POLICY void pack_sums_fade(struct pack_sums *sums)
{
	sums->windows = PACK_SKIP + (sums->windows - PACK_SKIP) / 2;
	sums->useful_m /= 2;
	sums->spin_m /= 2;
	sums->off_m /= 2;
	sums->on_m /= 2;
	sums->queued_m /= 2;
	sums->wakes /= 2;
	sums->done /= 2;
	sums->done_often /= 2;
}

POLICY void pack_sums_add(struct pack_sums *sums, const struct pack_facts *facts)
{
	sums->windows++;
	if (sums->windows <= PACK_SKIP)
		return;
	sums->useful_m += pack_useful_m(facts);
	sums->spin_m += facts->spin_m;
	sums->off_m += facts->off_m;
	sums->on_m += facts->on_m;
	sums->queued_m += facts->queued_m;
	sums->wakes += facts->wakes;
	sums->done += facts->done;
	sums->done_often += facts->done >= PACK_OFTEN;
}

/* One of the sums, as a mean over the windows that count. */
POLICY u32 pack_mean(const struct pack_sums *sums, u64 sum)
{
	return (u32)(sum / (sums->windows > PACK_SKIP ? sums->windows - PACK_SKIP : 1));
}

/* What is done in less than half of the windows, such as by a program that starts, says
 * nothing of the others. */
POLICY struct pack_progress pack_progress(const struct pack_sums *sums)
{
	struct pack_progress progress = {
		.useful_m = pack_mean(sums, sums->useful_m),
		.wakes = pack_mean(sums, sums->wakes),
		.done = pack_mean(sums, 2 * sums->done_often) ? pack_mean(sums, sums->done) : 0,
	};

	return progress;
}

#endif /* UNSPIN_POLICY_PACK_SUMS_H */

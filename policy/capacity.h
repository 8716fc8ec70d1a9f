/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What each vCPU really delivers: the share of the time that it wants to run in which it does
 * (vcap of vSched, EuroSys '25). Where fewer vCPUs are used, those that deliver most are, and
 * of those that share a pCPU (topology.h) one after the other.
 */
#ifndef UNSPIN_POLICY_CAPACITY_H
#define UNSPIN_POLICY_CAPACITY_H

#include "base.h"

/* Zeroed at first. */
struct capacity {
	/* Times until the last look, nanoseconds since the start. */
	u64 off_ns;
	u64 idle_ns;
	/* The share, in thousandths, as a moving mean; 0: not known yet. */
	u32 share_m;
	/* How many of those on the same pCPU come before it. */
	u32 behind;
};

/* A vCPU that hardly wanted to run in a window shows nothing, in percent of it. */
#define CAPACITY_WANTED_PERCENT 10
/* Shares that differ by less count as equal, in thousandths. */
#define CAPACITY_STEP_M 250

/* A window has passed; off and idle times are sums since the start. */
POLICY void capacity_look(struct capacity *c, u64 off_ns, u64 idle_ns, u64 window_ns)
{
	u64 off = off_ns > c->off_ns ? off_ns - c->off_ns : 0;
	u64 idle = idle_ns > c->idle_ns ? idle_ns - c->idle_ns : 0;
	u64 wanted = window_ns > idle ? window_ns - idle : 0;
	u64 share_m;

	c->off_ns = off_ns;
	c->idle_ns = idle_ns;
	if (!window_ns || wanted * 100 < window_ns * CAPACITY_WANTED_PERCENT)
		return;
	share_m = off < wanted ? (wanted - off) * 1000 / wanted : 0;
	c->share_m = (u32)policy_mean(c->share_m, share_m ? share_m : 1);
}

/* In steps; one of which nothing is known counts as whole. */
POLICY u32 capacity_level(const struct capacity *c)
{
	return ((c->share_m ? c->share_m : 1000) + CAPACITY_STEP_M / 2) / CAPACITY_STEP_M;
}

/* Whether a vCPU delivers more than another one; of equals, the first. */
POLICY int capacity_is_more(const struct capacity *a, u32 a_index, const struct capacity *b,
			    u32 b_index)
{
	u32 of_a = capacity_level(a), of_b = capacity_level(b);

	return of_a != of_b ? of_a > of_b : a_index < b_index;
}

/* Whether it comes before the other one in the choice of those to use. */
POLICY int capacity_comes_first(const struct capacity *a, u32 a_index, const struct capacity *b,
				u32 b_index)
{
	if (a->behind != b->behind)
		return a->behind < b->behind;
	return capacity_is_more(a, a_index, b, b_index);
}

#endif /* UNSPIN_POLICY_CAPACITY_H */

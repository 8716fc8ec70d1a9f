/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Measures what each vCPU really delivers: the share of the time in which it wants to run that it
 * does run (vcap of vSched, EuroSys '25). If fewer than all vCPUs are used, those that deliver
 * the most come first. Of vCPUs that share a pCPU (topology.h), the first of each pCPU comes
 * before the second of any.
 */
#ifndef UNSPIN_POLICY_CAPACITY_H
#define UNSPIN_POLICY_CAPACITY_H

#include "base.h"

/* The record of one vCPU. Zeroed at first. */
struct capacity {
	/* The vCPU's off time and idle time up to the last call of capacity_look(), in
	 * nanoseconds since the start. */
	u64 off_ns;
	u64 idle_ns;
	/* The share that it delivers, in thousandths, as a moving mean; 0: unknown. */
	u32 share_m;
	/* How many vCPUs on the same pCPU come before this one. */
	u32 behind;
};

/* A window counts only if the vCPU wanted to run for at least this percentage of it. */
#define CAPACITY_WANTED_PERCENT 10
/* The width of the levels, in thousandths, within which shares count as equal. */
#define CAPACITY_STEP_M 250

/* Notes that a window has passed. off_ns and idle_ns are sums since the start. */
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

/* Returns the share as a level, in steps of CAPACITY_STEP_M. An unknown share counts as the
 * whole. */
POLICY u32 capacity_level(const struct capacity *c)
{
	return ((c->share_m ? c->share_m : 1000) + CAPACITY_STEP_M / 2) / CAPACITY_STEP_M;
}

/* Whether vCPU a delivers more than vCPU b; among equals, the lower index wins. */
POLICY int capacity_is_more(const struct capacity *a, u32 a_index, const struct capacity *b,
			    u32 b_index)
{
	u32 of_a = capacity_level(a), of_b = capacity_level(b);

	return of_a != of_b ? of_a > of_b : a_index < b_index;
}

/* Whether vCPU a is chosen for use before vCPU b. */
POLICY int capacity_comes_first(const struct capacity *a, u32 a_index, const struct capacity *b,
				u32 b_index)
{
	if (a->behind != b->behind)
		return a->behind < b->behind;
	return capacity_is_more(a, a_index, b, b_index);
}

#endif /* UNSPIN_POLICY_CAPACITY_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A baseline: how many vCPUs Linux' steal_governor would use (drivers/virt/steal_governor.c,
 * commits 9a8e740ee9f6 and 4ee29b029058, for 7.4). Once a second it looks which share of
 * all vCPUs' time was stolen: above 5 % it leaves one more vCPU alone, up to 2 % one
 * less. Here the time that vCPUs were found off takes the place of steal time, so it works
 * in guests that have none; what it does with the figure is the same.
 */
#ifndef UNSPIN_POLICY_STEAL_GOVERNOR_H
#define UNSPIN_POLICY_STEAL_GOVERNOR_H

#include "base.h"

#define STEAL_GOVERNOR_INTERVAL_NS 1000000000ULL
/* Of all vCPUs' time, in thousandths. */
#define STEAL_GOVERNOR_HIGH 50
#define STEAL_GOVERNOR_LOW 20

/* Zeroed at first, except vcpus. */
struct steal_governor {
	u32 vcpus;
	/* That are to be used; 0: all. */
	u32 use;
	/* Since when times are added up, over how many windows, and thousandths of a vCPU that
	 * were off in them. */
	u64 since_ns;
	u64 windows;
	u64 off_sum;
};

/* A window has passed in which so many thousandths of a vCPU were off. Returns how many
 * vCPUs to use from now on. */
POLICY u32 steal_governor_step(struct steal_governor *g, u32 off_m, u64 now_ns)
{
	u64 stolen;

	if (!g->use)
		g->use = g->vcpus;
	if (!g->since_ns)
		g->since_ns = now_ns;
	g->off_sum += off_m;
	g->windows++;
	if (now_ns - g->since_ns < STEAL_GOVERNOR_INTERVAL_NS)
		return g->use;
	stolen = g->off_sum / g->windows / (g->vcpus ? g->vcpus : 1);
	if (stolen > STEAL_GOVERNOR_HIGH && g->use > 1)
		g->use--;
	else if (stolen <= STEAL_GOVERNOR_LOW && g->use < g->vcpus)
		g->use++;
	g->since_ns = now_ns;
	g->off_sum = 0;
	g->windows = 0;
	return g->use;
}

#endif /* UNSPIN_POLICY_STEAL_GOVERNOR_H */

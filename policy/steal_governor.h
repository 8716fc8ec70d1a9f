/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A baseline: computes how many vCPUs Linux's steal_governor would use
 * (drivers/virt/steal_governor.c, commits 9a8e740ee9f6 and 4ee29b029058, for 7.4). Once a second,
 * the governor determines which share of all vCPUs' time was stolen. Above 5 % it uses one vCPU
 * less, up to 2 % one more. Here the time in which vCPUs were found off replaces steal time, so
 * the baseline also works in guests that have none. The rule is otherwise the same.
 */
#ifndef UNSPIN_POLICY_STEAL_GOVERNOR_H
#define UNSPIN_POLICY_STEAL_GOVERNOR_H

#include "base.h"

#define STEAL_GOVERNOR_INTERVAL_NS 1000000000ULL
/* Thresholds of the stolen share of all vCPUs' time, in thousandths. */
#define STEAL_GOVERNOR_HIGH 50
#define STEAL_GOVERNOR_LOW 20

/* The governor's state. Zeroed at first, except vcpus. */
struct steal_governor {
	u32 vcpus;
	/* The number of vCPUs to use; 0: not decided yet, so all. */
	u32 use;
	/* The start of the interval, the windows in it, and the thousandths of a vCPU that were
	 * off, summed over them. */
	u64 since_ns;
	u64 windows;
	u64 off_sum;
};

/* Notes a window in which off_m thousandths of a vCPU were off. Returns how many vCPUs to use
 * from now on. */
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

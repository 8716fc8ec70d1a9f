/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Computes what a task's weight is worth if tasks are in groups that have weights themselves
 * (cgroups, cpu.weight).
 *
 * In a group, its own tasks and the groups below it share what the group gets, by weight, as far
 * as they are ready to run. Multiplied down the tree, these shares give each group's share of
 * everything (as scx_flatcg flattens a hierarchy), and the group's tasks divide it by their own
 * weights. So each weight counts multiplied by a factor, the same for all tasks of a group, and
 * no queue needs to know about groups.
 */
#ifndef UNSPIN_POLICY_SHARE_H
#define UNSPIN_POLICY_SHARE_H

#include "base.h"

/* As a share: everything. As a factor: one, which leaves a weight unchanged. */
#define SHARE_ONE (1ULL << 20)
/* The largest ratio between a factor and SHARE_ONE, in either direction. */
#define SHARE_MOST 10000

/* Returns the share of a group. `parents` is its parent's share; `beside` is the sum of all
 * weights that are ready in the parent, including the group's own. */
POLICY u64 share_of(u64 parents, u64 weight, u64 beside)
{
	return weight < beside ? parents * weight / beside : parents;
}

/* Returns the factor for the group's tasks. ready_in_group is the weight of what is ready in the
 * group (its own tasks and the groups below it), ready_in_all that of all ready tasks. */
POLICY u64 share_factor(u64 share, u64 ready_in_group, u64 ready_in_all)
{
	u64 factor = ready_in_group ? share * ready_in_all / ready_in_group : SHARE_ONE;

	if (factor > SHARE_ONE * SHARE_MOST)
		return SHARE_ONE * SHARE_MOST;
	return factor > SHARE_ONE / SHARE_MOST ? factor : SHARE_ONE / SHARE_MOST;
}

/* Returns the virtual time that a task is charged for ran_ns. 100 is the normal weight; 0 counts
 * as 100. */
POLICY u64 share_charge_ns(u64 ran_ns, u64 weight, u64 factor)
{
	u64 counts = (weight ? weight : 100) * factor / SHARE_ONE;

	return ran_ns * 100 / (counts ? counts : 1);
}

#endif /* UNSPIN_POLICY_SHARE_H */

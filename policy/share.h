/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a task's weight is worth where tasks are in groups that have weights themselves
 * (cgroups, cpu.weight).
 *
 * In a group, its own tasks and the groups below it share what the group gets, by weight,
 * as far as they are ready to run. Multiplied down the tree that is each group's share of
 * everything (as scx_flatcg flattens a hierarchy), and the group's tasks share it by their
 * own weights. So a weight counts by a factor, one for all tasks of a group, and no queue
 * has to know of groups.
 */
#ifndef UNSPIN_POLICY_SHARE_H
#define UNSPIN_POLICY_SHARE_H

#include "base.h"

/* Of shares and factors: all, and as it is. */
#define SHARE_ONE (1ULL << 20)
/* A factor is no further from SHARE_ONE than this many times. */
#define SHARE_MOST 10000

/* The share of a group by its parent's share, its own weight, and the weights of all that is
 * ready in the parent, itself included. */
POLICY u64 share_of(u64 parents, u64 weight, u64 beside)
{
	return weight < beside ? parents * weight / beside : parents;
}

/* The factor of a group's tasks by its share and the weights of the tasks that are ready: of
 * the group's own and the groups below it, and of all tasks. */
POLICY u64 share_factor(u64 share, u64 ready_in_group, u64 ready_in_all)
{
	u64 factor = ready_in_group ? share * ready_in_all / ready_in_group : SHARE_ONE;

	if (factor > SHARE_ONE * SHARE_MOST)
		return SHARE_ONE * SHARE_MOST;
	return factor > SHARE_ONE / SHARE_MOST ? factor : SHARE_ONE / SHARE_MOST;
}

/* What a task of a weight is charged for a time, if 100 is the normal weight. */
POLICY u64 share_charge_ns(u64 ran_ns, u64 weight, u64 factor)
{
	u64 counts = (weight ? weight : 100) * factor / SHARE_ONE;

	return ran_ns * 100 / (counts ? counts : 1);
}

#endif /* UNSPIN_POLICY_SHARE_H */

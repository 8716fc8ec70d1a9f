/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The entities of a run queue: threads (vCPUs and neighbours), and groups' parts on one pCPU.
 *
 * Follows struct sched_entity and calc_delta_fair(). Threads and group entities share one
 * number space: entities 0 to HOST_ENTITIES_MAX - 1 are threads, the rest are groups' parts.
 *
 * Leaves out: PELT. A load is the weight of all entities queued at this moment. Weights divide
 * exactly instead of through inverse tables, rounded down.
 */
#ifndef UNSPIN_POLICY_HOST_ENTITY_H
#define UNSPIN_POLICY_HOST_ENTITY_H

#include "config.h"

#define HOST_NODES_MAX (HOST_ENTITIES_MAX + HOST_GROUPS_MAX * HOST_PCPUS_MAX)

struct host_entity {
	u32 weight;
	/* The run queue that it belongs to, and its neighbours in that list while it is queued. */
	u32 rq, prev, next;
	/* 1: on its run queue. A running entity stays queued. */
	u32 queued;
	/* EEVDF, 1: it sleeps, and is queued until it has paid for what it had too much. */
	u32 delayed;
	/* 1: the deadline counts from vruntime (PLACE_REL_DEADLINE). */
	u32 relative;
	u64 vruntime, deadline;
	/* EEVDF: the lag that it took along when it left the run queue. */
	s64 lag;
	/* EEVDF, RUN_TO_PARITY: it is not preempted while its deadline is this one. */
	u64 protect;
	/* CFS: ran_ns at the moment when it was picked. */
	u64 picked_ran_ns;
	/* Time on, for a group that of all its threads. */
	u64 ran_ns;
};

/* The part of a thread that groups lack. */
struct host_thread {
	u32 group;
	/* enum host_state; one that is delayed is HOST_BLOCKED. */
	u32 state;
	/* Where it runs or waits, or ran last. */
	u32 pcpu;
	/* Where it may run. */
	u32 first, last;
	/* 1: it has been woken before. */
	u32 known;
	/* 1: it is in a critical section; 1: it runs on beyond its slice for that. See extend.h. */
	u32 critical, extended;
	/* Since when it has been queued or on. */
	u64 since;
};

/* How far virtual time goes in `ns` at this weight. */
HOST_POLICY u64 host_virtual(u64 ns, u32 weight)
{
	return weight == HOST_WEIGHT ? ns : ns * HOST_WEIGHT / weight;
}

/* Virtual times wrap: whether `a` comes before `b`. */
HOST_POLICY u32 host_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

HOST_POLICY u32 host_may_run(const struct host_thread *t, u32 p)
{
	return t->first <= p && p <= t->last;
}

HOST_POLICY s64 host_floor_div(s64 a, s64 b)
{
	return a >= 0 ? a / b : -((-a + b - 1) / b);
}

HOST_POLICY s64 host_clamp(s64 value, s64 limit)
{
	return value > limit ? limit : value < -limit ? -limit : value;
}

#endif /* UNSPIN_POLICY_HOST_ENTITY_H */

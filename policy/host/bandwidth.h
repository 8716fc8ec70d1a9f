/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * cpu.max: a group may run its quota in each period, on all pCPUs together.
 *
 * Follows __account_cfs_rq_runtime(), __assign_cfs_rq_runtime(), __return_cfs_rq_runtime() and
 * do_sched_cfs_period_timer() of Linux 5.4 to 6.12: a pCPU takes slices of 5 ms from the
 * group's pool, and throttles the group's own queue as a whole when the pool is empty.
 * The group pays later for the time that it overran until the next tick.
 *
 * Leaves out: bursts, the 5 ms slack timer (unused time goes back at once), nested quotas, the
 * per-task throttling of 6.18. Periods are counted from time 0.
 */
#ifndef UNSPIN_POLICY_HOST_BANDWIDTH_H
#define UNSPIN_POLICY_HOST_BANDWIDTH_H

#include "runqueue.h"

#define HOST_QUOTA_SLICE_NS 5000000LL
/* The part of its slice that a pCPU keeps when the group stops running on it. */
#define HOST_QUOTA_KEEP_NS 1000000LL

/* Fills the pCPU's slice up from the pool. Returns 1 if any time is left afterwards. */
HOST_POLICY u32 host_quota_take(struct host_group *g, struct host_rq *q)
{
	s64 wanted = HOST_QUOTA_SLICE_NS - q->quota_left_ns;

	if (wanted > g->pool_ns)
		wanted = g->pool_ns;
	if (wanted > 0) {
		g->pool_ns -= wanted;
		q->quota_left_ns += wanted;
	}
	return q->quota_left_ns > 0;
}

/* The group has run on this queue's pCPU: whether it may go on. */
HOST_POLICY u32 host_quota_charge(struct host_group *g, struct host_rq *q, u64 ns)
{
	if (!g->quota_ns)
		return 1;
	q->quota_left_ns -= (s64)ns;
	return q->quota_left_ns > 0 || host_quota_take(g, q);
}

HOST_POLICY u32 host_quota_has(struct host_group *g, struct host_rq *q)
{
	return !g->quota_ns || q->quota_left_ns > 0 || host_quota_take(g, q);
}

/* The group has nothing left to run here. */
HOST_POLICY void host_quota_return(struct host_group *g, struct host_rq *q)
{
	s64 spare = q->quota_left_ns - HOST_QUOTA_KEEP_NS;

	if (!g->quota_ns || spare <= 0)
		return;
	g->pool_ns += spare;
	q->quota_left_ns -= spare;
}

/* A new period, if one has begun: 1. The pool keeps no rest of the last one. */
HOST_POLICY u32 host_quota_refill(struct host_group *g, u64 now)
{
	if (!g->quota_ns || now - g->period_start < g->period_ns)
		return 0;
	g->period_start = now - now % g->period_ns;
	g->pool_ns = (s64)g->quota_ns;
	return 1;
}

#endif /* UNSPIN_POLICY_HOST_BANDWIDTH_H */

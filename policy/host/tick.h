/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Ticks and new periods of quotas.
 *
 * Follows task_tick_fair() and sched_cfs_period_timer() with distribute_cfs_runtime(). All pCPUs
 * tick at the same instants (skew_tick is off). Idle pCPUs have no ticks, and groups of which
 * nobody wants to run have no periods (NO_HZ_IDLE).
 */
#ifndef UNSPIN_POLICY_HOST_TICK_H
#define UNSPIN_POLICY_HOST_TICK_H

#include "balance.h"
#include "extend.h"

/* A new period: each throttled queue gets just enough to go on and ask for a slice. */
HOST_POLICY void host_refill(struct host *h, u32 group, u64 now)
{
	struct host_group *g = &h->group[group];
	u32 p;

	if (!host_quota_refill(g, now))
		return;
	for (p = 0; p < h->config.pcpus; p++) {
		u32 rq = host_rq_of(group, p);
		struct host_rq *q = &h->rq[rq];
		s64 gets = host_clamp(1 - q->quota_left_ns, g->pool_ns);

		if (!q->throttled || g->pool_ns <= 0)
			continue;
		g->pool_ns -= gets;
		q->quota_left_ns += gets;
		if (q->quota_left_ns <= 0)
			continue;
		host_charge(h, p, now);
		host_unthrottle(h, rq);
	}
}

/* When a group's next period begins; never while nobody needs it. */
HOST_POLICY u64 host_next_refill(const struct host *h, u32 group)
{
	u32 p;

	if (h->group[group].quota_ns)
		for (p = 0; p < h->config.pcpus; p++)
			if (h->rq[host_rq_of(group, p)].count)
				return h->group[group].period_start + h->group[group].period_ns;
	return HOST_NEVER;
}

/* When host_update() has something to do next, or HOST_NEVER. Idle pCPUs have no ticks. */
HOST_POLICY u64 host_next(const struct host *h)
{
	u64 next = HOST_NEVER;
	u32 i;

	for (i = 0; i < h->config.pcpus; i++)
		next = host_min(next, h->pcpu[i].tick_at);
	for (i = 1; i < h->groups; i++)
		next = host_min(next, host_next_refill(h, i));
	return next;
}

HOST_POLICY void host_tick(struct host *h, u32 p, u64 now)
{
	u32 current = h->pcpu[p].current, pending = h->pcpu[p].need_resched, e;

	h->pcpu[p].tick_at = host_tick_after(&h->config, now);
	host_charge(h, p, now);
	if (current == HOST_NONE)
		return;
	for (e = current; host_is_cfs(h) && e != HOST_NONE; e = host_parent(h, e))
		if (host_cfs_tick(h, &h->rq[h->entity[e].rq], e))
			host_kick(h, p);
	host_extend(h, p, pending);
	host_update_shares(h, h->entity[current].rq);
	host_balance(h, p, now);
}

/* The ticks and refills that are due. Several ticks of a pCPU that are overdue count as one. */
HOST_POLICY void host_update(struct host *h, u64 now)
{
	u32 i;

	for (i = 1; i < h->groups; i++)
		host_refill(h, i, now);
	for (i = 0; i < h->config.pcpus; i++)
		if (h->pcpu[i].tick_at <= now)
			host_tick(h, i, now);
	host_kick_idle(h);
}

#endif /* UNSPIN_POLICY_HOST_TICK_H */

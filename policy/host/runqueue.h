/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Run queues: each group has one on each pCPU, and group 0, the root, has those that pCPUs
 * pick from. A root queue holds the root's threads and the entities of groups with something
 * to run.
 *
 * Follows struct cfs_rq, avg_vruntime(), entity_eligible(), update_min_vruntime() and the
 * buddies. A queue is a list in order of arrival. The weighted sums are taken over the list
 * whenever they are needed instead of being kept up to date, so they cannot be out of date.
 *
 * Leaves out: the red-black tree (a scan has the same result), deeper group hierarchies.
 */
#ifndef UNSPIN_POLICY_HOST_RUNQUEUE_H
#define UNSPIN_POLICY_HOST_RUNQUEUE_H

#include "entity.h"

struct host_rq {
	u32 first, last;
	/* The entity that runs, and the buddies; HOST_NONE: none. `prior` is CFS's last buddy. */
	u32 current, next, skip, prior;
	/* Entities, and of these the delayed threads. */
	u32 count, delayed;
	/* The group is out of quota here. */
	u32 throttled;
	u64 weight;
	u64 min_vruntime;
	/* Time that the group may still use here before it asks its pool for more. */
	s64 quota_left_ns;
};

struct host_pcpu {
	u32 current, need_resched;
	/* 1: the injector has taken it. */
	u32 taken;
	/* Threads that run, wait or are delayed here, those of throttled groups not counted: the
	 * kernel's nr_running. */
	u32 runnable;
	/* Its balancing attempts in a row that moved nothing. */
	u32 balance_failed;
	u64 tick_at, balance_at;
};

struct host_group {
	u32 weight;
	/* 0: unlimited. */
	u64 quota_ns, period_ns;
	/* The start of the current period. */
	u64 period_start;
	s64 pool_ns;
	u64 throttles;
};

/* Counts of the Debooster's outcomes. */
struct host_gifts {
	/* The target became eligible by it. */
	u64 made;
	/* The target was eligible anyway. */
	u64 unneeded;
	/* The target stays ineligible. */
	u64 refused;
};

/* Zeroed, then host_init(). */
struct host {
	struct host_config config;
	u32 entities, groups;
	struct host_gifts gifts;
	/* Threads moved to a pCPU that had nothing to run, and by periodic balancing. */
	u64 pulls, balances;
	/* Threads that were left a tick more: extend.h. */
	u64 extensions;
	struct host_pcpu pcpu[HOST_PCPUS_MAX];
	struct host_group group[HOST_GROUPS_MAX];
	struct host_rq rq[HOST_GROUPS_MAX * HOST_PCPUS_MAX];
	struct host_thread thread[HOST_ENTITIES_MAX];
	struct host_entity entity[HOST_NODES_MAX];
};

HOST_POLICY u32 host_rq_of(u32 group, u32 p)
{
	return group * HOST_PCPUS_MAX + p;
}

HOST_POLICY u32 host_rq_pcpu(u32 rq)
{
	return rq % HOST_PCPUS_MAX;
}

/* A group's entity on a pCPU. */
HOST_POLICY u32 host_group_entity(u32 group, u32 p)
{
	return HOST_ENTITIES_MAX + host_rq_of(group, p);
}

/* The entity one level up that contains entity `e`; HOST_NONE at the root. */
HOST_POLICY u32 host_parent(const struct host *h, u32 e)
{
	u32 rq = h->entity[e].rq;

	return rq < HOST_PCPUS_MAX ? HOST_NONE : HOST_ENTITIES_MAX + rq;
}

/* The run queue inside a group's entity; HOST_NONE for a thread. */
HOST_POLICY u32 host_inside(u32 e)
{
	return e < HOST_ENTITIES_MAX ? HOST_NONE : e - HOST_ENTITIES_MAX;
}

HOST_POLICY void host_link(struct host *h, struct host_rq *q, u32 e)
{
	struct host_entity *se = &h->entity[e];

	se->prev = q->last;
	se->next = HOST_NONE;
	if (q->last == HOST_NONE)
		q->first = e;
	else
		h->entity[q->last].next = e;
	q->last = e;
	se->queued = 1;
	q->count++;
	q->weight += se->weight;
}

HOST_POLICY void host_unlink(struct host *h, struct host_rq *q, u32 e)
{
	struct host_entity *se = &h->entity[e];

	if (se->prev == HOST_NONE)
		q->first = se->next;
	else
		h->entity[se->prev].next = se->next;
	if (se->next == HOST_NONE)
		q->last = se->prev;
	else
		h->entity[se->next].prev = se->prev;
	se->queued = 0;
	q->count--;
	q->weight -= se->weight;
}

/* A descheduled entity waits behind those with equal claims. */
HOST_POLICY void host_to_tail(struct host *h, struct host_rq *q, u32 e)
{
	host_unlink(h, q, e);
	host_link(h, q, e);
}

/* The sum of weight * (vruntime - min_vruntime) over all that are queued. */
HOST_POLICY s64 host_weighted_sum(const struct host *h, const struct host_rq *q)
{
	s64 sum = 0;
	u32 e;

	for (e = q->first; e != HOST_NONE; e = h->entity[e].next)
		sum += (s64)(h->entity[e].vruntime - q->min_vruntime) * h->entity[e].weight;
	return sum;
}

/* V, the weighted mean of the virtual times, rounded down. */
HOST_POLICY u64 host_mean(const struct host *h, const struct host_rq *q)
{
	if (!q->weight)
		return q->min_vruntime;
	return q->min_vruntime + host_floor_div(host_weighted_sum(h, q), (s64)q->weight);
}

/* Whether it has had no more than its share: v <= V, without rounding. */
HOST_POLICY u32 host_eligible(const struct host *h, const struct host_rq *q, u32 e)
{
	s64 ahead = (s64)(h->entity[e].vruntime - q->min_vruntime);

	return host_weighted_sum(h, q) >= ahead * (s64)q->weight;
}

/* The queue's clock: the smallest virtual time, and never back. */
HOST_POLICY void host_update_min(const struct host *h, struct host_rq *q)
{
	u64 least;
	u32 e = q->first;

	if (e == HOST_NONE)
		return;
	for (least = h->entity[e].vruntime; e != HOST_NONE; e = h->entity[e].next)
		if (host_before(h->entity[e].vruntime, least))
			least = h->entity[e].vruntime;
	if (host_before(q->min_vruntime, least))
		q->min_vruntime = least;
}

/* Entity `e` is nobody's buddy any longer, nor are its parents where they were so for it. */
HOST_POLICY void host_clear_buddies(struct host *h, u32 e)
{
	u32 next = 1, skip = 1, prior = 1;

	for (; e != HOST_NONE; e = host_parent(h, e)) {
		struct host_rq *q = &h->rq[h->entity[e].rq];

		next = next && q->next == e;
		skip = skip && q->skip == e;
		prior = prior && q->prior == e;
		if (next)
			q->next = HOST_NONE;
		if (skip)
			q->skip = HOST_NONE;
		if (prior)
			q->prior = HOST_NONE;
	}
}

HOST_POLICY void host_set_next(struct host *h, u32 e)
{
	for (; e != HOST_NONE && h->entity[e].queued; e = host_parent(h, e))
		h->rq[h->entity[e].rq].next = e;
}

/* Entity `e`, which is queued, falls asleep or awakes without leaving its queue. */
HOST_POLICY void host_set_delayed(struct host *h, u32 e, u32 delayed)
{
	h->entity[e].delayed = delayed;
	if (e < HOST_ENTITIES_MAX)
		h->rq[h->entity[e].rq].delayed += delayed ? 1 : -1;
}

/* Threads of the pCPU that are delayed, those of throttled groups not counted. */
HOST_POLICY u32 host_delayed(const struct host *h, u32 p)
{
	u32 group, delayed = 0;

	for (group = 0; group < h->groups; group++) {
		const struct host_rq *q = &h->rq[host_rq_of(group, p)];

		delayed += q->throttled ? 0 : q->delayed;
	}
	return delayed;
}

HOST_POLICY void host_kick(struct host *h, u32 p)
{
	h->pcpu[p].need_resched = 1;
}

HOST_POLICY u32 host_is_idle(const struct host *h, u32 p)
{
	return h->pcpu[p].current == HOST_NONE && !h->pcpu[p].taken;
}

#endif /* UNSPIN_POLICY_HOST_RUNQUEUE_H */

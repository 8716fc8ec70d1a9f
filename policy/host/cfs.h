/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * CFS: the entity with the smallest virtual time runs, for its part of the latency.
 *
 * Follows __sched_period(), sched_slice(), place_entity() (GENTLE_FAIR_SLEEPERS, START_DEBIT),
 * check_preempt_tick(), wakeup_preempt_entity(), check_preempt_wakeup() (LAST_BUDDY),
 * pick_next_entity(), yield_task_fair() and yield_to_task_fair() of Linux 5.6.
 *
 * Leaves out: SCHED_BATCH and SCHED_IDLE, the NEXT_BUDDY feature for wake-ups (off by default).
 */
#ifndef UNSPIN_POLICY_HOST_CFS_H
#define UNSPIN_POLICY_HOST_CFS_H

#include "runqueue.h"

#define HOST_CFS_LATENCY_COUNT 8

/* The part of the period that belongs to the entity, through all levels. */
HOST_POLICY u64 host_cfs_slice(const struct host *h, u32 e)
{
	const struct host_rq *q = &h->rq[h->entity[e].rq];
	u32 count = q->count + !h->entity[e].queued;
	u64 slice = host_latency_ns(&h->config);

	if (count > HOST_CFS_LATENCY_COUNT)
		slice = count * host_slice_ns(&h->config);
	for (; e != HOST_NONE; e = host_parent(h, e)) {
		const struct host_entity *se = &h->entity[e];
		u64 weight = h->rq[se->rq].weight + (se->queued ? 0 : se->weight);

		slice = slice * se->weight / weight;
	}
	return slice;
}

HOST_POLICY void host_cfs_place(struct host *h, struct host_rq *q, u32 e, u32 initial)
{
	struct host_entity *se = &h->entity[e];
	u64 v = q->min_vruntime;

	if (initial)
		v += host_virtual(host_cfs_slice(h, e), se->weight);
	else
		v -= host_latency_ns(&h->config) / 2;
	if (host_before(se->vruntime, v))
		se->vruntime = v;
}

/* The smallest virtual time but that of `but`. Of equal ones, the current comes last. */
HOST_POLICY u32 host_cfs_leftmost(const struct host *h, const struct host_rq *q, u32 but)
{
	u32 e, best = HOST_NONE;

	for (e = q->first; e != HOST_NONE; e = h->entity[e].next) {
		if (e == but || e == q->current)
			continue;
		if (best == HOST_NONE || host_before(h->entity[e].vruntime, h->entity[best].vruntime))
			best = e;
	}
	e = q->current;
	if (e == HOST_NONE || e == but || !h->entity[e].queued)
		return best;
	if (best == HOST_NONE || host_before(h->entity[e].vruntime, h->entity[best].vruntime))
		best = e;
	return best;
}

/* Whether `e` is so far behind `current` that it preempts it. */
HOST_POLICY u32 host_cfs_preempts(const struct host *h, u32 current, u32 e)
{
	const struct host_entity *se = &h->entity[e];
	s64 behind = (s64)(h->entity[current].vruntime - se->vruntime);

	return behind > 0 &&
	       behind > (s64)host_virtual(host_wakeup_ns(&h->config), se->weight);
}

/* At a tick: 1 if the current entity of this queue has had its part. */
HOST_POLICY u32 host_cfs_tick(struct host *h, struct host_rq *q, u32 e)
{
	const struct host_entity *se = &h->entity[e];
	u64 slice = host_cfs_slice(h, e), ran = se->ran_ns - se->picked_ran_ns;
	u32 first = host_cfs_leftmost(h, q, e);
	s64 ahead;

	if (first == HOST_NONE)
		return 0;
	if (ran > slice) {
		host_clear_buddies(h, e);
		return 1;
	}
	if (ran < host_slice_ns(&h->config))
		return 0;
	ahead = (s64)(se->vruntime - h->entity[first].vruntime);
	return ahead > (s64)slice;
}

/* The leftmost, unless a buddy is not much further right. */
HOST_POLICY u32 host_cfs_pick(struct host *h, struct host_rq *q)
{
	u32 left = host_cfs_leftmost(h, q, HOST_NONE), best = left;

	if (left == HOST_NONE)
		return left;
	if (q->skip == left) {
		u32 second = host_cfs_leftmost(h, q, left);

		if (second != HOST_NONE && !host_cfs_preempts(h, second, left))
			best = second;
	}
	if (q->prior != HOST_NONE && !host_cfs_preempts(h, q->prior, left))
		best = q->prior;
	if (q->next != HOST_NONE && host_has(&h->config, HOST_NEXT_BUDDY) &&
	    !host_cfs_preempts(h, q->next, left))
		best = q->next;
	return best;
}

/* An entity that was preempted by a wake-up is the one to go back to. */
HOST_POLICY void host_cfs_preempted(struct host *h, u32 e)
{
	for (; e != HOST_NONE && h->entity[e].queued; e = host_parent(h, e))
		h->rq[h->entity[e].rq].prior = e;
}

#endif /* UNSPIN_POLICY_HOST_CFS_H */

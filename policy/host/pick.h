/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The next thread of a pCPU, and the switch to it.
 *
 * Follows pick_next_task_fair(), put_prev_entity() and set_next_entity(). A buddy is an entity that
 * was asked to run next; once it is picked, the request is met and forgotten. On each level, an
 * entity that goes on running keeps its slice.
 */
#ifndef UNSPIN_POLICY_HOST_PICK_H
#define UNSPIN_POLICY_HOST_PICK_H

#include "balance.h"

/* The entity of this queue that is to run. Delayed ones whose turn it would be leave. */
HOST_POLICY u32 host_pick_in(struct host *h, u32 rq)
{
	u32 e;

	if (host_is_cfs(h))
		return host_cfs_pick(h, &h->rq[rq]);
	e = host_eevdf_pick(h, &h->rq[rq]);
	while (e != HOST_NONE && h->entity[e].delayed) {
		host_end_delay(h, e);
		e = host_eevdf_pick(h, &h->rq[rq]);
	}
	return e;
}

/* The next thread of the pCPU. Throttles groups whose quota turns out to be used up. */
HOST_POLICY u32 host_pick(struct host *h, u32 p, u64 now)
{
	u32 tries, e, rq;

	for (tries = 0; tries < 2 * HOST_GROUPS_MAX && !h->pcpu[p].taken; tries++) {
		e = host_pick_in(h, p);
		if (!h->rq[p].count) {
			host_pull(h, p, now);
			e = host_pick_in(h, p);
		}
		if (!h->rq[p].count)
			continue;
		/* With absurd weights or times, sums overflow, and nobody is eligible. */
		if (e == HOST_NONE)
			return HOST_NONE;
		rq = host_inside(e);
		if (rq == HOST_NONE)
			return e;
		if (!host_quota_has(&h->group[rq / HOST_PCPUS_MAX], &h->rq[rq])) {
			host_throttle(h, rq);
			continue;
		}
		e = host_pick_in(h, rq);
		/* All of its threads were delayed, if it is empty now. */
		if (h->rq[rq].count)
			return e;
	}
	return HOST_NONE;
}

/* Entity `e`, or none, becomes the running one of this queue. */
HOST_POLICY void host_set_current(struct host *h, u32 rq, u32 e)
{
	struct host_rq *q = &h->rq[rq];

	if (q->current == e)
		return;
	if (q->current != HOST_NONE)
		host_to_tail(h, q, q->current);
	q->current = e;
	if (e == HOST_NONE)
		return;
	h->entity[e].protect = h->entity[e].deadline;
	h->entity[e].picked_ran_ns = h->entity[e].ran_ns;
}

/* From thread `prev` to thread `next` on the pCPU, on all levels. */
HOST_POLICY void host_switch(struct host *h, u32 p, u32 prev, u32 next, u64 now)
{
	u32 top = next, group;

	if (prev != HOST_NONE && prev != next) {
		h->thread[prev].state = HOST_QUEUED;
		h->thread[prev].extended = 0;
		h->thread[prev].since = now;
		host_set_current(h, h->entity[prev].rq, HOST_NONE);
	}
	if (next != HOST_NONE) {
		host_clear_buddies(h, next);
		h->thread[next].state = HOST_ON;
		h->thread[next].since = now;
		host_set_current(h, h->entity[next].rq, next);
		group = host_parent(h, next);
		if (group != HOST_NONE) {
			/* CFS forgets the request when it picks an entity. EEVDF does so when an
			 * entity begins to run: where the pCPU goes from one thread of a group to
			 * another, the group ran before, and stays a buddy. */
			if (host_is_cfs(h) || h->rq[p].current != group)
				host_clear_buddies(h, group);
			top = group;
		}
	}
	host_set_current(h, p, top);
	h->pcpu[p].current = next;
}

#endif /* UNSPIN_POLICY_HOST_PICK_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * EEVDF: of the entities that have had no more than their share, the one with the earliest
 * virtual deadline runs.
 *
 * Follows update_deadline(), update_entity_lag(), place_entity(), pick_eevdf(),
 * pick_next_entity(), check_preempt_wakeup_fair() and yield_task_fair() of Linux 6.12.117,
 * with "sched/fair: Forfeit vruntime on yield" (79104becf42b, in 6.12 since 6.12.63).
 * DELAY_DEQUEUE is in group.h.
 *
 * All slices are equal here, so of PREEMPT_SHORT only did_preempt_short() has an effect. Leaves
 * out: slices of sched_setattr(), idle policies.
 */
#ifndef UNSPIN_POLICY_HOST_EEVDF_H
#define UNSPIN_POLICY_HOST_EEVDF_H

#include "runqueue.h"

HOST_POLICY u64 host_eevdf_vslice(const struct host *h, const struct host_entity *se)
{
	return host_virtual(host_slice_ns(&h->config), se->weight);
}

/* did_preempt_short(): whether the running entity has had too much, and lacks the protection of a
 * slice. That is so for one that its pick found running already, at the end of its last slice. */
HOST_POLICY u32 host_eevdf_overstays(const struct host *h, const struct host_rq *q, u32 e)
{
	return host_has(&h->config, HOST_PREEMPT_SHORT) &&
	       h->entity[e].protect != h->entity[e].deadline && !host_eligible(h, q, e);
}

/* The entity has run: 1 if another one waits, and its slice is used up or it overstays. */
HOST_POLICY u32 host_eevdf_ran(struct host *h, struct host_rq *q, u32 e)
{
	struct host_entity *se = &h->entity[e];
	u32 over = !host_before(se->vruntime, se->deadline);

	if (over)
		se->deadline = se->vruntime + host_eevdf_vslice(h, se);
	if (q->count < 2 || !(over || host_eevdf_overstays(h, q, e)))
		return 0;
	host_clear_buddies(h, e);
	return 1;
}

/* How large a lag the kernel keeps: two slices or a tick. */
HOST_POLICY u64 host_eevdf_lag_max(const struct host *h, const struct host_entity *se)
{
	u64 longest = host_max(2 * host_slice_ns(&h->config), host_tick_ns(&h->config));

	return host_virtual(longest, se->weight);
}

/* The entity's lag, within that bound. */
HOST_POLICY s64 host_eevdf_lag(const struct host *h, const struct host_rq *q, u32 e)
{
	const struct host_entity *se = &h->entity[e];

	return host_clamp((s64)(host_mean(h, q) - se->vruntime), (s64)host_eevdf_lag_max(h, se));
}

/* It leaves the queue for now. Must be called while it is still linked. */
HOST_POLICY void host_eevdf_leave(struct host *h, struct host_rq *q, u32 e, u32 sleeps)
{
	struct host_entity *se = &h->entity[e];

	se->lag = host_eevdf_lag(h, q, e);
	se->protect = 0;
	if (!sleeps && !se->relative) {
		se->deadline -= se->vruntime;
		se->relative = 1;
	}
}

/*
 * Its place in a queue that it is about to join. Its weight moves V, so the lag that is to be
 * left of it afterwards has to be larger before.
 */
HOST_POLICY void host_eevdf_place(struct host *h, struct host_rq *q, u32 e, u32 initial)
{
	struct host_entity *se = &h->entity[e];
	u64 vslice = host_eevdf_vslice(h, se);
	s64 lag = 0;

	if (host_has(&h->config, HOST_PLACE_LAG) && q->count) {
		lag = se->lag * (s64)(q->weight + se->weight);
		lag /= (s64)q->weight;
	}
	se->vruntime = host_mean(h, q) - lag;
	if (se->relative) {
		se->deadline += se->vruntime;
		se->relative = 0;
		return;
	}
	se->deadline = se->vruntime + (initial ? vslice / 2 : vslice);
}

/* Its weight changes: lag and request are kept in real time. */
HOST_POLICY void host_eevdf_reweigh(struct host *h, struct host_rq *q, u32 e, u32 weight)
{
	struct host_entity *se = &h->entity[e];
	u32 queued = se->queued, was = se->weight;

	if (queued) {
		host_eevdf_leave(h, q, e, 0);
		host_unlink(h, q, e);
	}
	se->lag = se->lag * (s64)was / (s64)weight;
	if (se->relative)
		se->deadline = (u64)((s64)se->deadline * (s64)was / (s64)weight);
	se->weight = weight;
	if (queued) {
		host_eevdf_place(h, q, e, 0);
		host_link(h, q, e);
		host_update_min(h, q);
	}
}

HOST_POLICY u32 host_eevdf_earlier(const struct host *h, u32 best, u32 e)
{
	if (best != HOST_NONE && !host_before(h->entity[e].deadline, h->entity[best].deadline))
		return best;
	return e;
}

/* The eligible entity with the earliest deadline; the current one while it is protected. */
HOST_POLICY u32 host_eevdf_best(const struct host *h, const struct host_rq *q)
{
	s64 sum = host_weighted_sum(h, q);
	u32 e, best = HOST_NONE, current = q->current;

	if (current != HOST_NONE && h->entity[current].protect == h->entity[current].deadline &&
	    host_has(&h->config, HOST_RUN_TO_PARITY) && host_eligible(h, q, current))
		return current;
	for (e = q->first; e != HOST_NONE; e = h->entity[e].next) {
		s64 ahead = (s64)(h->entity[e].vruntime - q->min_vruntime);

		if (e != current && sum >= ahead * (s64)q->weight)
			best = host_eevdf_earlier(h, best, e);
	}
	if (current != HOST_NONE && host_eligible(h, q, current))
		best = host_eevdf_earlier(h, best, current);
	return best;
}

HOST_POLICY u32 host_eevdf_pick(const struct host *h, const struct host_rq *q)
{
	if (host_has(&h->config, HOST_NEXT_BUDDY) && q->next != HOST_NONE &&
	    host_eligible(h, q, q->next))
		return q->next;
	return host_eevdf_best(h, q);
}

/* Whether an entity that has just joined the queue preempts the current one. */
HOST_POLICY u32 host_eevdf_preempts(const struct host *h, const struct host_rq *q, u32 e)
{
	return host_eevdf_best(h, q) == e;
}

/* The virtual time that the current entity gives up by yielding. */
HOST_POLICY u64 host_eevdf_forfeit(const struct host *h, const struct host_rq *q, u32 e)
{
	const struct host_entity *se = &h->entity[e];

	if (!host_has(&h->config, HOST_YIELD_FORFEIT) || !host_eligible(h, q, e))
		return 0;
	return host_before(se->vruntime, se->deadline) ? se->deadline - se->vruntime : 0;
}

/* Moves the entity ahead to virtual time `to`, with a new request. */
HOST_POLICY void host_eevdf_forward(struct host *h, struct host_rq *q, u32 e, u64 to)
{
	struct host_entity *se = &h->entity[e];

	se->vruntime = to;
	se->deadline = to + host_eevdf_vslice(h, se);
	host_update_min(h, q);
}

/* sched_yield(): the rest of the request is forfeited; before 6.12.63 it was only put off. */
HOST_POLICY void host_eevdf_yield(struct host *h, struct host_rq *q, u32 e)
{
	struct host_entity *se = &h->entity[e];

	if (!host_has(&h->config, HOST_YIELD_FORFEIT))
		se->deadline += host_eevdf_vslice(h, se);
	else if (host_eligible(h, q, e))
		host_eevdf_forward(h, q, e, se->deadline);
}

#endif /* UNSPIN_POLICY_HOST_EEVDF_H */

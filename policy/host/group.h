/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The two levels of run queues and the time that is charged to them.
 *
 * Follows enqueue_task_fair(), dequeue_entities(), requeue_delayed_entity(), update_curr(),
 * calc_group_shares(), reweight_entity(), throttle_cfs_rq() and unthrottle_cfs_rq(). Both threads
 * and groups' entities can be delayed: those that count in load and in V, but have nothing to run.
 * A group's entity on a pCPU weighs the group's shares times its part of the group's load; the
 * weight is updated when an entity joins or leaves that pCPU's queue, and at the pCPU's ticks.
 *
 * Leaves out: PELT (loads are those of this moment), the runnable-weighted hierarchy of 7.x.
 */
#ifndef UNSPIN_POLICY_HOST_GROUP_H
#define UNSPIN_POLICY_HOST_GROUP_H

#include "bandwidth.h"
#include "cfs.h"
#include "eevdf.h"

/* How an entity joins a queue. */
enum host_join { HOST_JOIN_WAKE, HOST_JOIN_NEW, HOST_JOIN_MOVE };

HOST_POLICY u32 host_is_cfs(const struct host *h)
{
	return h->config.scheduler == HOST_CFS;
}

HOST_POLICY void host_join(struct host *h, u32 e, u32 how)
{
	struct host_rq *q = &h->rq[h->entity[e].rq];

	if (!host_is_cfs(h))
		host_eevdf_place(h, q, e, how == HOST_JOIN_NEW);
	else if (how != HOST_JOIN_MOVE)
		host_cfs_place(h, q, e, how == HOST_JOIN_NEW);
	host_link(h, q, e);
	host_update_min(h, q);
}

HOST_POLICY void host_leave(struct host *h, u32 e, u32 sleeps)
{
	struct host_rq *q = &h->rq[h->entity[e].rq];

	host_clear_buddies(h, e);
	if (!host_is_cfs(h))
		host_eevdf_leave(h, q, e, sleeps);
	host_unlink(h, q, e);
	if (q->current == e)
		q->current = HOST_NONE;
	host_update_min(h, q);
}

/*
 * DELAY_DEQUEUE: an entity that falls asleep after more than its share stays on its queue until it
 * would be picked, so it pays its debt with time asleep. Returns 0 if it is to leave instead.
 */
HOST_POLICY u32 host_delay(struct host *h, u32 e)
{
	struct host_rq *q = &h->rq[h->entity[e].rq];

	if (host_is_cfs(h) || !host_has(&h->config, HOST_DELAY_DEQUEUE) || host_eligible(h, q, e))
		return 0;
	host_clear_buddies(h, e);
	host_set_delayed(h, e, 1);
	if (q->current == e) {
		host_to_tail(h, q, e);
		q->current = HOST_NONE;
	}
	return 1;
}

/* A delayed entity has something to run again. It stays where it is, unless it is owed time, which
 * it forfeits (DELAY_ZERO). */
HOST_POLICY void host_requeue(struct host *h, u32 e)
{
	struct host_rq *q = &h->rq[h->entity[e].rq];

	host_set_delayed(h, e, 0);
	if (host_eevdf_lag(h, q, e) <= 0)
		return;
	host_unlink(h, q, e);
	h->entity[e].lag = 0;
	host_eevdf_place(h, q, e, 0);
	host_link(h, q, e);
	host_update_min(h, q);
}

/* The weight of a group's entity on the pCPU of its run queue `rq`. */
HOST_POLICY u32 host_shares(const struct host *h, u32 rq)
{
	u32 p, group = rq / HOST_PCPUS_MAX;
	u64 all = 0, shares = h->group[group].weight;

	for (p = 0; p < h->config.pcpus; p++)
		all += h->rq[host_rq_of(group, p)].weight;
	if (all)
		shares = shares * h->rq[rq].weight / all;
	return (u32)host_max(shares, HOST_WEIGHT_MIN);
}

HOST_POLICY void host_update_shares(struct host *h, u32 rq)
{
	u32 e = HOST_ENTITIES_MAX + rq, weight;

	if (rq < HOST_PCPUS_MAX || !h->rq[rq].weight)
		return;
	weight = host_shares(h, rq);
	if (weight == h->entity[e].weight)
		return;
	if (!host_is_cfs(h)) {
		host_eevdf_reweigh(h, &h->rq[h->entity[e].rq], e, weight);
		return;
	}
	if (h->entity[e].queued)
		h->rq[h->entity[e].rq].weight += weight - (u64)h->entity[e].weight;
	h->entity[e].weight = weight;
}

/* Charges the pCPU's current thread and its group with the time since the last charge. */
HOST_POLICY void host_charge(struct host *h, u32 p, u64 now)
{
	u32 thread = h->pcpu[p].current, e;
	u64 ran;

	if (thread == HOST_NONE || now <= h->thread[thread].since)
		return;
	ran = now - h->thread[thread].since;
	h->thread[thread].since = now;
	for (e = thread; e != HOST_NONE; e = host_parent(h, e)) {
		struct host_entity *se = &h->entity[e];
		struct host_rq *q = &h->rq[se->rq];

		se->ran_ns += ran;
		se->vruntime += host_virtual(ran, se->weight);
		if (!host_is_cfs(h) && host_eevdf_ran(h, q, e))
			host_kick(h, p);
		host_update_min(h, q);
		if (!host_quota_charge(&h->group[se->rq / HOST_PCPUS_MAX], q, ran))
			host_kick(h, p);
	}
}

/* A group's queue `rq` gets something to run: its entity joins the root queue. */
HOST_POLICY void host_join_root(struct host *h, u32 rq, u32 how)
{
	host_join(h, HOST_ENTITIES_MAX + rq, how);
	h->pcpu[host_rq_pcpu(rq)].runnable += h->rq[rq].count;
}

HOST_POLICY void host_leave_root(struct host *h, u32 rq, u32 sleeps)
{
	host_leave(h, HOST_ENTITIES_MAX + rq, sleeps);
	h->pcpu[host_rq_pcpu(rq)].runnable -= h->rq[rq].count;
}

/* The group is out of quota on this queue's pCPU. The pCPU has been charged. */
HOST_POLICY void host_throttle(struct host *h, u32 rq)
{
	h->rq[rq].throttled = 1;
	h->group[rq / HOST_PCPUS_MAX].throttles++;
	if (h->entity[HOST_ENTITIES_MAX + rq].queued)
		host_leave_root(h, rq, 1);
}

HOST_POLICY void host_unthrottle(struct host *h, u32 rq)
{
	h->rq[rq].throttled = 0;
	if (!h->rq[rq].count)
		return;
	host_update_shares(h, rq);
	host_join_root(h, rq, HOST_JOIN_WAKE);
}

/* A thread starts to wait for its pCPU, which has been charged. */
HOST_POLICY void host_enqueue(struct host *h, u32 thread, u32 how)
{
	u32 rq = h->entity[thread].rq, p = host_rq_pcpu(rq);
	struct host_rq *q = &h->rq[rq];

	host_join(h, thread, how);
	if (rq < HOST_PCPUS_MAX) {
		h->pcpu[p].runnable++;
		return;
	}
	if (h->entity[HOST_ENTITIES_MAX + rq].delayed)
		host_requeue(h, HOST_ENTITIES_MAX + rq);
	host_update_shares(h, rq);
	if (q->throttled)
		return;
	if (h->entity[HOST_ENTITIES_MAX + rq].queued)
		h->pcpu[p].runnable++;
	else if (host_quota_has(&h->group[rq / HOST_PCPUS_MAX], q))
		host_join_root(h, rq, HOST_JOIN_WAKE);
	else
		host_throttle(h, rq);
}

/* A thread stops waiting or running. Its pCPU has been charged. */
HOST_POLICY void host_dequeue(struct host *h, u32 thread, u32 sleeps)
{
	u32 rq = h->entity[thread].rq, p = host_rq_pcpu(rq);
	struct host_rq *q = &h->rq[rq];

	host_leave(h, thread, sleeps);
	if (rq < HOST_PCPUS_MAX) {
		h->pcpu[p].runnable--;
		return;
	}
	if (h->entity[HOST_ENTITIES_MAX + rq].queued) {
		h->pcpu[p].runnable--;
		/* The kernel takes even a group whose last thread migrates for one that sleeps. */
		if (!q->count && !host_delay(h, HOST_ENTITIES_MAX + rq))
			host_leave_root(h, rq, 1);
		else if (q->count && sleeps && h->thread[thread].state != HOST_QUEUED)
			host_set_next(h, HOST_ENTITIES_MAX + rq);
	}
	if (!q->count)
		host_quota_return(&h->group[rq / HOST_PCPUS_MAX], q);
	host_update_shares(h, rq);
}

/* A delayed entity would be picked, so it has paid: it leaves. Its pCPU has been charged. */
HOST_POLICY void host_end_delay(struct host *h, u32 e)
{
	host_set_delayed(h, e, 0);
	if (e < HOST_ENTITIES_MAX)
		host_dequeue(h, e, 1);
	else
		host_leave_root(h, host_inside(e), 1);
	if (h->entity[e].lag > 0)
		h->entity[e].lag = 0;
}

/* A blocked or just dequeued thread belongs to another pCPU from now on. */
HOST_POLICY void host_set_pcpu(struct host *h, u32 thread, u32 p)
{
	struct host_entity *se = &h->entity[thread];
	u32 rq = host_rq_of(h->thread[thread].group, p);

	if (host_is_cfs(h))
		se->vruntime += h->rq[rq].min_vruntime - h->rq[se->rq].min_vruntime;
	se->rq = rq;
	h->thread[thread].pcpu = p;
}

#endif /* UNSPIN_POLICY_HOST_GROUP_H */

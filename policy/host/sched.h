/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The simulated host's scheduler, as its user calls it.
 *
 * The user keeps the clock and never goes back in time. After every call it calls
 * host_resched() for each pCPU that needs it, in ascending order, until none does. Only
 * host_resched() gives a pCPU a new current thread; host_block() and host_take() remove it.
 * host_update() is called at host_next(). The same calls have the same results.
 *
 * Follows try_to_wake_up(), deactivate_task() and schedule(). Each header states what it
 * leaves out; README.md lists it.
 */
#ifndef UNSPIN_POLICY_HOST_SCHED_H
#define UNSPIN_POLICY_HOST_SCHED_H

#include "pick.h"
#include "tick.h"
#include "yield.h"

/* `h` is zeroed before. */
HOST_POLICY void host_init(struct host *h, const struct host_config *c)
{
	u32 i;

	h->config = *c;
	h->groups = 1;
	for (i = 0; i < HOST_GROUPS_MAX * HOST_PCPUS_MAX; i++) {
		struct host_rq *q = &h->rq[i];
		struct host_entity *se = &h->entity[HOST_ENTITIES_MAX + i];

		q->first = q->last = HOST_NONE;
		q->current = q->next = q->skip = q->prior = HOST_NONE;
		se->rq = host_rq_pcpu(i);
		se->weight = HOST_WEIGHT;
	}
	for (i = 0; i < HOST_PCPUS_MAX; i++) {
		h->pcpu[i].current = HOST_NONE;
		h->pcpu[i].tick_at = HOST_NEVER;
	}
}

/* A new group with a weight (cpu.weight's 100 is 1024 here) and a quota, 0: unlimited. Group 0,
 * the root, exists. Returns HOST_NONE after HOST_GROUPS_MAX. */
HOST_POLICY u32 host_group(struct host *h, u32 weight, u64 quota_ns, u64 period_ns)
{
	u32 group = h->groups;
	struct host_group *g = &h->group[group];

	if (group == HOST_GROUPS_MAX)
		return HOST_NONE;
	h->groups++;
	g->weight = weight ? weight : HOST_WEIGHT;
	g->quota_ns = period_ns ? quota_ns : 0;
	g->period_ns = period_ns;
	g->pool_ns = (s64)g->quota_ns;
	return group;
}

/* A new thread, blocked, that may run on the pCPUs from first to last. Its number: 0, 1, 2...;
 * Returns HOST_NONE after HOST_ENTITIES_MAX, or if the group or a pCPU does not exist. */
HOST_POLICY u32 host_add(struct host *h, u32 group, u32 weight, u32 pcpu_first, u32 pcpu_last)
{
	u32 e = h->entities;

	if (e == HOST_ENTITIES_MAX || group >= h->groups || pcpu_first > pcpu_last ||
	    pcpu_last >= h->config.pcpus)
		return HOST_NONE;
	h->entities++;
	h->entity[e].weight = weight ? weight : HOST_WEIGHT;
	h->entity[e].rq = host_rq_of(group, pcpu_first);
	h->thread[e].group = group;
	h->thread[e].pcpu = h->thread[e].first = pcpu_first;
	h->thread[e].last = pcpu_last;
	return e;
}

/* As ttwu_runnable(): a delayed thread awakes on its own pCPU. Its lag is judged before that is
 * charged, since requeue_delayed_entity() does not call update_curr(). */
HOST_POLICY void host_wake_delayed(struct host *h, u32 e, u64 now)
{
	host_requeue(h, e);
	host_charge(h, h->thread[e].pcpu, now);
	h->thread[e].state = HOST_QUEUED;
	h->thread[e].since = now;
}

HOST_POLICY void host_wake_blocked(struct host *h, u32 e, u32 waker_pcpu, u64 now)
{
	struct host_thread *t = &h->thread[e];
	u32 p = host_place(h, e, waker_pcpu);

	host_charge(h, p, now);
	if (p != t->pcpu)
		host_set_pcpu(h, e, p);
	t->state = HOST_QUEUED;
	t->since = now;
	host_enqueue(h, e, t->known ? HOST_JOIN_WAKE : HOST_JOIN_NEW);
	t->known = 1;
}

HOST_POLICY void host_wake(struct host *h, u32 e, u32 waker_pcpu, u64 now)
{
	if (h->thread[e].state != HOST_BLOCKED)
		return;
	/* Nobody asked for refills while all of its group were blocked. */
	host_refill(h, h->thread[e].group, now);
	if (h->entity[e].delayed)
		host_wake_delayed(h, e, now);
	else
		host_wake_blocked(h, e, waker_pcpu, now);
	host_check_preempt(h, e);
	host_kick_idle(h);
}

HOST_POLICY void host_block(struct host *h, u32 e, u64 now)
{
	struct host_thread *t = &h->thread[e];
	struct host_pcpu *pcpu = &h->pcpu[t->pcpu];

	if (t->state == HOST_BLOCKED)
		return;
	host_charge(h, t->pcpu, now);
	if (pcpu->current == e) {
		pcpu->current = HOST_NONE;
		pcpu->need_resched = 1;
	}
	if (!host_delay(h, e))
		host_dequeue(h, e, 1);
	t->state = HOST_BLOCKED;
	t->extended = 0;
}

HOST_POLICY u32 host_need_resched(const struct host *h, u32 p)
{
	return h->pcpu[p].need_resched;
}

/* The thread that runs on the pCPU, or HOST_NONE. */
HOST_POLICY u32 host_current(const struct host *h, u32 p)
{
	return h->pcpu[p].current;
}

/* The pCPU schedules. Returns its new current thread, or HOST_NONE. */
HOST_POLICY u32 host_resched(struct host *h, u32 p, u64 now)
{
	struct host_pcpu *pcpu = &h->pcpu[p];
	u32 next;

	host_charge(h, p, now);
	pcpu->need_resched = 1;
	next = host_pick(h, p, now);
	host_switch(h, p, pcpu->current, next, now);
	pcpu->need_resched = 0;
	if (next == HOST_NONE)
		pcpu->tick_at = HOST_NEVER;
	else if (pcpu->tick_at == HOST_NEVER)
		pcpu->tick_at = host_tick_after(&h->config, now);
	host_kick_idle(h);
	return next;
}

HOST_POLICY u32 host_state(const struct host *h, u32 e)
{
	return h->thread[e].state;
}

/* The pCPU that it runs on or waits for, or ran on last. */
HOST_POLICY u32 host_pcpu(const struct host *h, u32 e)
{
	return h->thread[e].pcpu;
}

/* Whether the thread, which runs, is in a critical section. To be said before host_update(). */
HOST_POLICY void host_set_critical(struct host *h, u32 e, u32 critical)
{
	h->thread[e].critical = critical;
}

/* For how long it has been on. */
HOST_POLICY u64 host_runtime(const struct host *h, u32 e, u64 now)
{
	const struct host_thread *t = &h->thread[e];

	return h->entity[e].ran_ns + (t->state == HOST_ON ? now - t->since : 0);
}

/* enum host_yield. After HOST_YIELDED the pCPUs of both need to schedule. */
HOST_POLICY u32 host_yield_to(struct host *h, u32 from, u32 to, u64 now)
{
	u32 p = h->thread[from].pcpu, other = h->thread[to].pcpu;

	if (h->thread[to].state == HOST_BLOCKED)
		return HOST_YIELD_NOT_QUEUED;
	if (h->thread[to].state == HOST_ON)
		return HOST_YIELD_RUNNING;
	if (h->thread[from].state != HOST_ON ||
	    (h->pcpu[p].runnable == 1 && h->pcpu[other].runnable == 1))
		return HOST_YIELD_REFUSED;
	if (h->rq[h->entity[to].rq].throttled)
		return HOST_YIELD_THROTTLED;
	host_charge(h, other, now);
	host_yield_current(h, from, to, now);
	if (!h->pcpu[other].taken)
		host_kick(h, other);
	return HOST_YIELDED;
}

HOST_POLICY void host_yield(struct host *h, u32 from, u64 now)
{
	if (h->thread[from].state == HOST_ON)
		host_yield_current(h, from, HOST_NONE, now);
}

/* The injector takes the pCPU: it runs nobody until it is given back. */
HOST_POLICY void host_take(struct host *h, u32 p, u64 now)
{
	h->pcpu[p].taken = 1;
	host_resched(h, p, now);
}

HOST_POLICY void host_give(struct host *h, u32 p, u64 now)
{
	(void)now;
	h->pcpu[p].taken = 0;
	host_kick(h, p);
}

#endif /* UNSPIN_POLICY_HOST_SCHED_H */

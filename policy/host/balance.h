/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Moving waiting threads between pCPUs.
 *
 * Follows sched_balance_newidle(): a pCPU with nothing to run pulls one thread from the pCPU with
 * most to run. Follows sched_balance_rq() at ticks, every 16 ms times the number of pCPUs
 * (busy_factor; 32 in 5.6), half as often while they are balanced. If the most loaded pCPU is
 * 17 % above this one, threads move until one of both reaches the mean. A thread that outweighs
 * the imbalance moves after further failed attempts. The thread that has waited longest moves
 * first.
 *
 * Leaves out: cache hotness, sched_migration_cost, active balancing, domains, nohz kicks. Here
 * an idle pCPU is kicked as soon as a thread waits elsewhere that it could run.
 */
#ifndef UNSPIN_POLICY_HOST_BALANCE_H
#define UNSPIN_POLICY_HOST_BALANCE_H

#include "place.h"
#include "preempt.h"

#define HOST_IMBALANCE_PCT 117

/* Linux 5.10 takes a tick off, so that the periods of domains are not multiples of each other. */
HOST_POLICY u64 host_balance_ns(const struct host_config *c)
{
	u64 ns = c->pcpus * 16000000ULL, tick = host_tick_ns(c);

	if (c->scheduler == HOST_CFS)
		return 2 * ns;
	return ns > tick ? ns - tick : tick;
}

/* How many threads will still wait on the pCPU once it has scheduled. */
HOST_POLICY u32 host_waiting(const struct host *h, u32 p)
{
	u32 runnable = h->pcpu[p].runnable - host_delayed(h, p);

	return runnable - (runnable && !h->pcpu[p].taken);
}

/* Whether the thread waits, and may do so on pCPU `p`. */
HOST_POLICY u32 host_is_movable(const struct host *h, u32 thread, u32 p)
{
	const struct host_thread *t = &h->thread[thread];

	return t->state == HOST_QUEUED && t->pcpu != p && host_may_run(t, p) &&
	       !h->rq[h->entity[thread].rq].throttled &&
	       !h->rq[host_rq_of(t->group, p)].throttled;
}

/* The thread on pCPU `from` that has waited longest of those that may move to `p`. */
HOST_POLICY u32 host_longest_waiting(const struct host *h, u32 from, u32 p, u64 load_max)
{
	u32 group, e, best = HOST_NONE;

	for (group = 0; group < h->groups; group++) {
		const struct host_rq *q = &h->rq[host_rq_of(group, from)];

		for (e = q->first; e != HOST_NONE; e = h->entity[e].next) {
			u64 load = h->entity[e].weight;

			if (e >= HOST_ENTITIES_MAX || !host_is_movable(h, e, p))
				continue;
			if (group)
				load = load * h->entity[host_group_entity(group, from)].weight /
				       q->weight;
			if (load > load_max)
				continue;
			if (best == HOST_NONE || h->thread[e].since < h->thread[best].since)
				best = e;
		}
	}
	return best;
}

HOST_POLICY void host_move(struct host *h, u32 thread, u32 p, u64 now)
{
	host_charge(h, h->thread[thread].pcpu, now);
	host_charge(h, p, now);
	host_dequeue(h, thread, 0);
	host_set_pcpu(h, thread, p);
	host_enqueue(h, thread, HOST_JOIN_MOVE);
	host_check_preempt(h, thread);
}

/* The pCPU with most to run of those that have a thread for `p`: its thread, or HOST_NONE. */
HOST_POLICY u32 host_find_pull(const struct host *h, u32 p)
{
	u32 from, best = HOST_NONE, thread = HOST_NONE;

	for (from = 0; from < h->config.pcpus; from++) {
		u32 e;

		if (from == p || !host_waiting(h, from))
			continue;
		if (best != HOST_NONE && h->pcpu[from].runnable <= h->pcpu[best].runnable)
			continue;
		e = host_longest_waiting(h, from, p, HOST_NEVER);
		if (e != HOST_NONE) {
			best = from;
			thread = e;
		}
	}
	return thread;
}

/* pCPU `p` has nothing to run. */
HOST_POLICY void host_pull(struct host *h, u32 p, u64 now)
{
	u32 thread = host_find_pull(h, p);

	if (thread == HOST_NONE)
		return;
	host_move(h, thread, p, now);
	h->pulls++;
}

/* Idle pCPUs that could run a thread that waits elsewhere are to look for it. */
HOST_POLICY void host_kick_idle(struct host *h)
{
	u32 p, waiting = 0;

	for (p = 0; p < h->config.pcpus; p++)
		waiting += host_waiting(h, p);
	for (p = 0; p < h->config.pcpus; p++) {
		if (!host_is_idle(h, p) || h->pcpu[p].need_resched)
			continue;
		if (h->pcpu[p].runnable || (waiting && host_find_pull(h, p) != HOST_NONE))
			host_kick(h, p);
	}
}

/* The most loaded pCPU with something that waits; one that is taken comes first. */
HOST_POLICY u32 host_find_busiest(const struct host *h, u32 p)
{
	u32 q, best = p;

	for (q = 0; q < h->config.pcpus; q++) {
		u32 taken = h->pcpu[q].taken, best_taken = h->pcpu[best].taken;

		if (!host_waiting(h, q))
			continue;
		if (taken > best_taken ||
		    (taken == best_taken && host_load(h, q) > host_load(h, best)))
			best = q;
	}
	return best;
}

/* How much weight should move from `busiest` to `p`; 0: they are balanced. */
HOST_POLICY u64 host_imbalance(const struct host *h, u32 busiest, u32 p)
{
	u64 all = 0, mean, own = host_load(h, p), load = host_load(h, busiest);
	u32 q, count = 0;

	for (q = 0; q < h->config.pcpus; q++) {
		all += host_load(h, q);
		count += !h->pcpu[q].taken;
	}
	mean = all / count;
	if (mean <= own)
		return 0;
	if (h->pcpu[busiest].taken)
		return host_min(load, mean - own);
	if (load <= mean || load * 100 <= own * HOST_IMBALANCE_PCT)
		return 0;
	return host_min(load - mean, mean - own);
}

/* Periodic balancing at a tick of pCPU `p`, which runs something. Every other interval is a tick
 * longer: without the noise of a real host, balancing would meet the same thread each time. */
HOST_POLICY void host_balance(struct host *h, u32 p, u64 now)
{
	struct host_pcpu *pcpu = &h->pcpu[p];
	u32 busiest, thread, moved = 0;
	u64 imbalance;

	if (now < pcpu->balance_at)
		return;
	busiest = host_find_busiest(h, p);
	imbalance = busiest == p ? 0 : host_imbalance(h, busiest, p);
	pcpu->balance_at = now + host_balance_ns(&h->config) * (imbalance ? 1 : 2) +
			   h->balances % 2 * host_tick_ns(&h->config);
	while (imbalance) {
		u64 most = (imbalance << host_min(pcpu->balance_failed, 16));
		u64 before = host_load(h, busiest), gone;

		thread = host_longest_waiting(h, busiest, p, most);
		if (thread == HOST_NONE)
			break;
		host_move(h, thread, p, now);
		moved++;
		gone = before - host_min(before, host_load(h, busiest));
		imbalance -= host_min(imbalance, host_max(gone, 1));
	}
	h->balances += moved;
	if (moved || !imbalance)
		pcpu->balance_failed = 0;
	else
		pcpu->balance_failed++;
}

#endif /* UNSPIN_POLICY_HOST_BALANCE_H */

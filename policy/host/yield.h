/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Directed yield: one vCPU gives way so that another one runs.
 *
 * Follows yield_to() of kernel/sched/core.c with preempt set, as KVM calls it, and
 * yield_to_task_fair(). The scheduler may not honour a target that has had more than its share.
 * A Debooster changes that (Ishiguro et al., VEE '21). Its forms, where the yielder and
 * the target, or their groups' entities, share a run queue:
 *
 *   off       Mainline: the target is the next buddy, and the yielder forfeits its request.
 *   penalty   The paper's: the yielder's virtual time rises until the target is eligible; under
 *             CFS, until it lies a wakeup granularity below the target's (ple-kvm). All others
 *             gain lag.
 *   transfer  The yielder's forfeit goes to the target as far as it needs it. The weighted
 *             sum of virtual times stays, so nobody else gains or loses by the gift. CFS has no
 *             forfeit, so it applies the penalty.
 *   credit    As "semantics-aware vCPU scheduling" (Li, version 3, 2026; not merged): the target
 *             gets the lag that it lacks, and nobody pays for it but all others' lag. Leaves out
 *             its limit of one credit in 6 ms. CFS knows no lag, so it applies the penalty.
 *
 * The virtual times of two pCPUs cannot be compared, so no gift crosses them.
 */
#ifndef UNSPIN_POLICY_HOST_YIELD_H
#define UNSPIN_POLICY_HOST_YIELD_H

#include "preempt.h"

enum host_yield {
	HOST_YIELDED,
	/* The target halts. */
	HOST_YIELD_NOT_QUEUED,
	/* The target runs, or is the yielder. */
	HOST_YIELD_RUNNING,
	/* Both are alone on their pCPUs (-ESRCH), or `from` does not run. */
	HOST_YIELD_REFUSED,
	HOST_YIELD_THROTTLED,
};

/* By how much weighted virtual time the queue's sum falls short of making `e` eligible. */
HOST_POLICY s64 host_shortfall(const struct host *h, const struct host_rq *q, u32 e)
{
	s64 ahead = (s64)(h->entity[e].vruntime - q->min_vruntime);

	return ahead * (s64)q->weight - host_weighted_sum(h, q);
}

HOST_POLICY u64 host_div_up(u64 a, u64 b)
{
	return (a + b - 1) / b;
}

/* The most that a yielder may be ahead, in bounds of lag: no weights may make sums overflow. */
#define HOST_PENALTY_LAGS 64

/* The yielder pays with virtual time alone. */
HOST_POLICY void host_penalty(struct host *h, struct host_rq *q, u32 from, u32 to)
{
	struct host_entity *yielder = &h->entity[from];
	s64 short_of = host_shortfall(h, q, to), room;
	u64 pays;

	room = (s64)(host_mean(h, q) - yielder->vruntime) +
	       HOST_PENALTY_LAGS * (s64)host_eevdf_lag_max(h, yielder);
	if (short_of <= 0 || room <= 0)
		return;
	pays = host_min(host_div_up((u64)short_of, yielder->weight), (u64)room);
	yielder->vruntime += pays;
	yielder->deadline += pays;
}

/*
 * At most `forfeit` of the yielder's virtual time goes to the target. Returns the yielder's
 * payment. Rounding is at the yielder's cost, and below a nanosecond.
 */
HOST_POLICY u64 host_transfer(struct host *h, struct host_rq *q, u32 from, u32 to, u64 forfeit)
{
	struct host_entity *yielder = &h->entity[from], *target = &h->entity[to];
	s64 short_of = host_shortfall(h, q, to);
	u64 gets, pays;

	if (short_of <= 0)
		return 0;
	gets = host_min(host_div_up((u64)short_of, q->weight),
			forfeit * yielder->weight / target->weight);
	pays = host_div_up(gets * target->weight, yielder->weight);
	target->vruntime -= gets;
	target->deadline -= gets;
	yielder->vruntime += pays;
	yielder->deadline += pays;
	return pays;
}

/* The target's virtual time falls until it is eligible. The mean falls with it, by the target's
 * part of the weight. */
HOST_POLICY void host_credit(struct host *h, struct host_rq *q, u32 to)
{
	struct host_entity *target = &h->entity[to];
	s64 short_of = host_shortfall(h, q, to);
	u64 gets;

	if (short_of <= 0 || q->weight <= target->weight)
		return;
	gets = host_div_up((u64)short_of, q->weight - target->weight);
	target->vruntime -= gets;
	target->deadline -= gets;
}

/* As patch 1 of ple-kvm. */
HOST_POLICY void host_cfs_penalty(struct host *h, u32 from, u32 to)
{
	u64 gran = host_virtual(host_wakeup_ns(&h->config), h->entity[to].weight);

	if (host_cfs_preempts(h, to, from))
		h->entity[from].vruntime = h->entity[to].vruntime - gran;
}

/* Whether the scheduler would pick the target as a buddy, on all levels. */
HOST_POLICY u32 host_is_honoured(const struct host *h, u32 e)
{
	for (; e != HOST_NONE; e = host_parent(h, e)) {
		const struct host_rq *q = &h->rq[h->entity[e].rq];

		if (!host_is_cfs(h) ? !host_eligible(h, q, e) :
		    host_cfs_preempts(h, e, host_cfs_leftmost(h, q, HOST_NONE)))
			return 0;
	}
	return 1;
}

/* The Debooster's part. The thread `from` is about to forfeit this virtual time. */
HOST_POLICY void host_deboost(struct host *h, u32 from, u32 to, u64 forfeit)
{
	u32 y = host_matching(h, from, to), t = host_matching(h, to, from);
	struct host_rq *q = &h->rq[h->entity[y].rq];

	if (h->config.debooster == HOST_DEBOOSTER_OFF)
		return;
	if (host_is_cfs(h)) {
		host_cfs_penalty(h, y, t);
	} else if (h->config.debooster == HOST_DEBOOSTER_PENALTY) {
		host_penalty(h, q, y, t);
	} else if (h->config.debooster == HOST_DEBOOSTER_CREDIT) {
		host_credit(h, q, t);
	} else {
		u64 gives = y == from ? forfeit : host_eevdf_forfeit(h, q, y);

		host_transfer(h, q, y, t, gives);
	}
}

HOST_POLICY void host_count_gift(struct host *h, u32 from, u32 to, u64 forfeit)
{
	if (host_is_honoured(h, to)) {
		h->gifts.unneeded++;
		return;
	}
	if (h->thread[from].pcpu == h->thread[to].pcpu)
		host_deboost(h, from, to, forfeit);
	if (host_is_honoured(h, to))
		h->gifts.made++;
	else
		h->gifts.refused++;
}

/* The yielder gives up its request, whose rest was `forfeit` before any gift. */
HOST_POLICY void host_give_way(struct host *h, u32 from, u64 due, u64 forfeit)
{
	struct host_rq *q = &h->rq[h->entity[from].rq];
	u32 e;

	if (host_is_cfs(h)) {
		for (e = from; e != HOST_NONE; e = host_parent(h, e))
			h->rq[h->entity[e].rq].skip = e;
	} else if (!host_has(&h->config, HOST_YIELD_FORFEIT)) {
		host_eevdf_yield(h, q, from);
	} else if (forfeit && host_before(h->entity[from].vruntime, due)) {
		host_eevdf_forward(h, q, from, due);
	} else if (forfeit) {
		host_eevdf_forward(h, q, from, h->entity[from].vruntime);
	}
}

/* The thread `from`, which runs, gives way to thread `to`, or to any (HOST_NONE). */
HOST_POLICY void host_yield_current(struct host *h, u32 from, u32 to, u64 now)
{
	u32 p = h->thread[from].pcpu;
	struct host_rq *q = &h->rq[h->entity[from].rq];
	u64 forfeit, due;

	host_charge(h, p, now);
	host_kick(h, p);
	if (to != HOST_NONE)
		host_set_next(h, to);
	forfeit = host_is_cfs(h) ? 0 : host_eevdf_forfeit(h, q, from);
	due = h->entity[from].deadline;
	if (to != HOST_NONE)
		host_count_gift(h, from, to, forfeit);
	if (h->pcpu[p].runnable < 2)
		return;
	host_clear_buddies(h, from);
	host_give_way(h, from, due, forfeit);
}

#endif /* UNSPIN_POLICY_HOST_YIELD_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether a thread that joins a queue preempts the running one.
 *
 * Follows check_preempt_wakeup() of Linux 5.6, check_preempt_wakeup_fair() of 6.6 to 6.12 and
 * find_matching_se(): two threads compare at the level where they, or their groups' entities,
 * share a run queue.
 */
#ifndef UNSPIN_POLICY_HOST_PREEMPT_H
#define UNSPIN_POLICY_HOST_PREEMPT_H

#include "group.h"

/* The entity of this thread that shares a run queue with one of the other thread, on the same
 * pCPU. */
HOST_POLICY u32 host_matching(const struct host *h, u32 thread, u32 other)
{
	u32 rq = h->entity[thread].rq;

	if (rq == h->entity[other].rq || rq < HOST_PCPUS_MAX)
		return thread;
	return HOST_ENTITIES_MAX + rq;
}

HOST_POLICY u32 host_cfs_wakes_over(struct host *h, u32 current, u32 thread)
{
	u32 c = host_matching(h, current, thread), e = host_matching(h, thread, current);

	if (!host_cfs_preempts(h, c, e))
		return 0;
	host_set_next(h, e);
	if (c == current && h->rq[h->entity[c].rq].count >= HOST_CFS_LATENCY_COUNT)
		host_cfs_preempted(h, c);
	return 1;
}

/* `thread` has just joined its queue; its pCPU has been charged. */
HOST_POLICY void host_check_preempt(struct host *h, u32 thread)
{
	u32 p = h->thread[thread].pcpu, current = h->pcpu[p].current, e;

	if (h->pcpu[p].taken || h->pcpu[p].need_resched || h->rq[h->entity[thread].rq].throttled)
		return;
	if (current == HOST_NONE) {
		host_kick(h, p);
		return;
	}
	if (!host_has(&h->config, HOST_WAKEUP_PREEMPTION))
		return;
	e = host_matching(h, thread, current);
	if (host_is_cfs(h) ? host_cfs_wakes_over(h, current, thread) :
			     host_eevdf_preempts(h, &h->rq[h->entity[e].rq], e))
		host_kick(h, p);
}

#endif /* UNSPIN_POLICY_HOST_PREEMPT_H */

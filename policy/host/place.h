/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * On which pCPU a thread that wakes up waits or runs.
 *
 * Follows select_task_rq_fair(), wake_affine_weight() and select_idle_sibling(), where all
 * pCPUs share the last-level cache: the pCPU that it ran on if that is idle, else the next
 * idle one, else the less loaded of that and the waker's. A new thread goes to the least
 * loaded one, as in find_idlest_cpu().
 *
 * Leaves out: wake_wide(), the limit of select_idle_cpu()'s scan, sync wake-ups. A pCPU that
 * the injector has taken is never idle, and left aside where another one will do.
 */
#ifndef UNSPIN_POLICY_HOST_PLACE_H
#define UNSPIN_POLICY_HOST_PLACE_H

#include "group.h"

/* 100 plus half the excess of imbalance_pct (117 in a cache domain): the waker's bonus. */
#define HOST_AFFINE_PCT 108

HOST_POLICY u32 host_is_free(const struct host *h, u32 p)
{
	return host_is_idle(h, p) && !h->pcpu[p].runnable;
}

/* The weight that runs or waits on the pCPU. */
HOST_POLICY u64 host_load(const struct host *h, u32 p)
{
	return h->rq[p].weight;
}

/* The first idle pCPU at or after `from`, round the range that the thread may run in. */
HOST_POLICY u32 host_find_idle(const struct host *h, const struct host_thread *t, u32 from)
{
	u32 i, range = t->last - t->first + 1;

	for (i = 0; i < range; i++) {
		u32 p = t->first + (from - t->first + i) % range;

		if (host_is_free(h, p))
			return p;
	}
	return HOST_NONE;
}

/* The pCPU with the least load, a taken one only if all are taken. */
HOST_POLICY u32 host_find_least(const struct host *h, const struct host_thread *t)
{
	u32 p, best = t->first;

	for (p = t->first; p <= t->last; p++) {
		u32 taken = h->pcpu[p].taken, best_taken = h->pcpu[best].taken;

		if (taken < best_taken ||
		    (taken == best_taken && host_load(h, p) < host_load(h, best)))
			best = p;
	}
	return best;
}

HOST_POLICY u32 host_affine(const struct host *h, const struct host_entity *se, u32 last,
			      u32 waker)
{
	if (h->pcpu[waker].taken || h->pcpu[last].taken)
		return h->pcpu[waker].taken ? last : waker;
	if ((host_load(h, waker) + se->weight) * 100 < host_load(h, last) * HOST_AFFINE_PCT)
		return waker;
	return last;
}

/* Where the thread wakes up. `waker` is the pCPU that wakes it, or HOST_NONE. */
HOST_POLICY u32 host_place(const struct host *h, u32 thread, u32 waker)
{
	const struct host_thread *t = &h->thread[thread];
	u32 last = t->pcpu, idle;

	if (!t->known)
		return host_find_least(h, t);
	if (waker < h->config.pcpus && host_may_run(t, waker) && waker != last)
		last = host_affine(h, &h->entity[thread], last, waker);
	idle = host_find_idle(h, t, last);
	if (idle != HOST_NONE)
		return idle;
	return h->pcpu[last].taken ? host_find_least(h, t) : last;
}

#endif /* UNSPIN_POLICY_HOST_PLACE_H */

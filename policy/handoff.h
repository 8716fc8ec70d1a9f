/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Who holds what others wait for is not to be kept from running.
 *
 * A task at the end of its slice that holds a lock which somebody waits for keeps its vCPU
 * a little longer (delayed preemption), so that it can release the lock. The time is
 * bounded for each slice; what it runs is charged as always.
 */
#ifndef UNSPIN_POLICY_HANDOFF_H
#define UNSPIN_POLICY_HANDOFF_H

#include "base.h"

/* For so long after somebody has begun to wait for a lock, its holder counts as one. */
#define HANDOFF_FRESH_NS 4000000ULL
/* The most that a holder runs beyond the end of its slice. */
#define HANDOFF_MOST_NS 2000000ULL

/* The holder on a vCPU. */
struct handoff {
	/* The task; 0: none. */
	u32 tid;
	u32 unused;
	/* When somebody last began to wait for what it holds. */
	u64 wanted_ns;
};

/* Somebody waits for what the task holds that runs there. */
POLICY void handoff_want(struct handoff *handoff, u32 tid, u64 now_ns)
{
	handoff->tid = tid;
	handoff->wanted_ns = now_ns;
}

/* Whether a task is to go on that has run for ran_ns of its slice: it holds something. */
POLICY int handoff_goes_on(const struct handoff *handoff, u32 tid, u64 ran_ns, u64 slice_ns,
			   u64 now_ns)
{
	return handoff->tid == tid && now_ns < handoff->wanted_ns + HANDOFF_FRESH_NS &&
	       ran_ns < slice_ns + HANDOFF_MOST_NS;
}

#endif /* UNSPIN_POLICY_HANDOFF_H */

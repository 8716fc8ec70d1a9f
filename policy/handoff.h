/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Delays the preemption of a lock holder that has waiters.
 *
 * A task that should give way while it holds such a lock keeps its vCPU until it has released the
 * lock, for a bounded time. Its run time is charged as usual. Locks that had waiters recently are
 * remembered, because a task may take a lock after others began to wait for it.
 */
#ifndef UNSPIN_POLICY_HANDOFF_H
#define UNSPIN_POLICY_HANDOFF_H

#include "base.h"

/* How long a lock counts as contended after a task began to wait for it. */
#define HANDOFF_CONTENDED_NS 50000000ULL
/* The longest time that a holder may run on after it should have given way. */
#define HANDOFF_MOST_NS 2000000ULL
/* The number of locks in one table. */
#define HANDOFF_LOCKS 8

/* A lock that a task has begun to wait for. */
struct contended {
	/* The lock's address; 0: this place is free. */
	u64 lock;
	/* When a task last began to wait for it. */
	u64 wanted_ns;
	/* The process whose address space the address is in; 0: the kernel's. */
	u32 process;
	u32 kind;
};

/* Returns the place for a lock among HANDOFF_LOCKS: the place that it has, or that of the lock
 * whose last wait began the longest ago. */
POLICY u32 handoff_place(const struct contended *locks, u64 lock, u32 process)
{
	u64 oldest_ns = ~0ULL;
	u32 i, place = 0;

	for (i = 0; i < HANDOFF_LOCKS; i++) {
		if (locks[i].lock == lock && locks[i].process == process)
			return i;
		if (locks[i].wanted_ns < oldest_ns) {
			oldest_ns = locks[i].wanted_ns;
			place = i;
		}
	}
	return place;
}

POLICY int handoff_is_contended(const struct contended *lock, u32 process, u64 now_ns)
{
	return lock->lock && lock->process == process &&
	       now_ns < lock->wanted_ns + HANDOFF_CONTENDED_NS;
}

/* Whether a holder that should have given way at due_ns may still go on. */
POLICY int handoff_goes_on(u64 due_ns, u64 now_ns)
{
	return now_ns < due_ns + HANDOFF_MOST_NS;
}

#endif /* UNSPIN_POLICY_HANDOFF_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Delayed preemption: a lock holder that has waiters is not kept from running.
 *
 * A task that is to give way while it holds such a lock keeps its vCPU until it has released the
 * lock, for a bounded time; what it runs is charged as always. Locks that had waiters lately are
 * remembered, because a task may take one after the others began to wait.
 */
#ifndef UNSPIN_POLICY_HANDOFF_H
#define UNSPIN_POLICY_HANDOFF_H

#include "base.h"

/* How long a lock counts as contended after a wait for it began. */
#define HANDOFF_CONTENDED_NS 50000000ULL
/* The most that a holder runs on when it is to give way. */
#define HANDOFF_MOST_NS 2000000ULL
/* Locks that are remembered together. */
#define HANDOFF_LOCKS 8

/* A lock that somebody has begun to wait for. */
struct contended {
	/* Its address; 0: this place is free. */
	u64 lock;
	/* When, the last time. */
	u64 wanted_ns;
	/* The process whose address it is; 0: the kernel's. */
	u32 process;
	u32 kind;
};

/* The place for a lock among HANDOFF_LOCKS: the one that it has, or that of the one which
 * nobody has waited for the longest. */
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

/* Whether a holder that is to give way since then is to go on. */
POLICY int handoff_goes_on(u64 due_ns, u64 now_ns)
{
	return now_ns < due_ns + HANDOFF_MOST_NS;
}

#endif /* UNSPIN_POLICY_HANDOFF_H */

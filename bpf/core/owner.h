/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The task that holds one of the kernel's sleeping locks, from the lock's owner word; 0: none. The
 * lowest three bits of the word are flags (kernel/locking/mutex.c, rwsem.c).
 */
#ifndef UNSPIN_BPF_OWNER_H
#define UNSPIN_BPF_OWNER_H

#include "core/peek.h"

static u64 mutex_owner(u64 lock)
{
	return PEEK((const void *)lock, struct mutex, owner.counter) & ~7L;
}

/* If readers hold the semaphore, its word may name a reader that has left. */
static u64 rwsem_owner(u64 lock)
{
	long word = PEEK((const void *)lock, struct rw_semaphore, owner.counter);

	return word & RWSEM_READER_OWNED ? 0 : word & ~7L;
}

#endif /* UNSPIN_BPF_OWNER_H */

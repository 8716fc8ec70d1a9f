/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The task in the owner's word of one of the kernel's sleeping locks; 0: none. The word's lowest
 * three bits are flags (kernel/locking/mutex.c, rwsem.c).
 */
#ifndef UNSPIN_BPF_OWNER_H
#define UNSPIN_BPF_OWNER_H

#include "core/peek.h"

static u64 mutex_owner(u64 lock)
{
	return PEEK((const void *)lock, struct mutex, owner.counter) & ~7L;
}

/* Readers leave no owner that can be trusted. */
static u64 rwsem_owner(u64 lock)
{
	long word = PEEK((const void *)lock, struct rw_semaphore, owner.counter);

	return word & RWSEM_READER_OWNED ? 0 : word & ~7L;
}

#endif /* UNSPIN_BPF_OWNER_H */

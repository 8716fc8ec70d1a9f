/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The locks that some task has waited for lately: the kernel's sleeping locks, and each process's
 * glibc mutexes. When a task is to give way, the scheduler looks here whether it holds one of
 * them.
 */
#ifndef UNSPIN_BPF_CONTENDED_H
#define UNSPIN_BPF_CONTENDED_H

#include "core/glibc.h"
#include "core/owner.h"

enum {
	LOCK_MUTEX = 1,
	LOCK_RWSEM = 2,
	LOCK_GLIBC = 3,
};

/* The kernel's locks have a set of their own. Processes share the other sets. */
#define PROCESS_SETS 64
#define KERNEL_SET PROCESS_SETS
#define KERNEL 0

struct contended_set {
	struct contended locks[HANDOFF_LOCKS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROCESS_SETS + 1);
	__type(key, u32);
	__type(value, struct contended_set);
} contended_sets SEC(".maps");

static struct contended_set *contended_set_of(u32 process)
{
	u32 key = process == KERNEL ? KERNEL_SET : process % PROCESS_SETS;

	return bpf_map_lookup_elem(&contended_sets, &key);
}

/* Two locks that are noted in one slot at the same time may leave a mixture of both. That is
 * harmless, because an address found here is only read, and reads of invalid addresses fail
 * safely. */
static void note_contended(u64 lock, u32 kind, u32 process, u64 now_ns)
{
	struct contended_set *set = contended_set_of(process);
	u32 place;

	if (!set)
		return;
	place = handoff_place(set->locks, lock, process);
	if (place >= HANDOFF_LOCKS)
		return;
	set->locks[place].lock = lock;
	set->locks[place].process = process;
	set->locks[place].kind = kind;
	set->locks[place].wanted_ns = now_ns;
}

static u64 owner_of(u64 lock, u32 kind)
{
	return kind == LOCK_MUTEX ? mutex_owner(lock) : rwsem_owner(lock);
}

/* Returns the current thread's number in its own PID namespace, which is the number that glibc
 * stores. */
static u32 own_number(void)
{
	const struct pid *pid = PEEK((const void *)bpf_get_current_task(), struct task_struct,
				     thread_pid);
	u64 innermost = PEEK(pid, struct pid, level) * bpf_core_type_size(struct upid);
	u32 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number),
			      (const void *)pid + bpf_core_field_offset(struct pid, numbers) +
				      innermost + bpf_core_field_offset(struct upid, nr));
	return number;
}

/* Returns whether the current thread holds the mutex at that address. */
static bool has_glibc_mutex(const void *word)
{
	struct glibc_mutex mutex = {};

	return !bpf_probe_read_user(&mutex, sizeof(mutex), word) && mutex.lock &&
	       mutex.owner == own_number();
}

static bool this_task_holds(const struct contended *lock)
{
	if (lock->kind == LOCK_GLIBC)
		return has_glibc_mutex((const void *)lock->lock);
	return owner_of(lock->lock, lock->kind) == (u64)bpf_get_current_task();
}

/* Returns whether the current task holds a contended lock of that process or of the kernel. */
static bool holds_one_of(u32 process, u64 now_ns)
{
	struct contended_set *set = contended_set_of(process);
	u32 i;

	if (!set)
		return false;
	for (i = 0; i < HANDOFF_LOCKS; i++)
		if (handoff_is_contended(&set->locks[i], process, now_ns) &&
		    this_task_holds(&set->locks[i]))
			return true;
	return false;
}

static bool holds_contended(u64 now_ns)
{
	u32 process = bpf_get_current_pid_tgid() >> 32;

	return holds_one_of(KERNEL, now_ns) || (process && holds_one_of(process, now_ns));
}

static bool has_contended(u32 process, u64 now_ns)
{
	struct contended_set *set = contended_set_of(process);
	u32 i;

	if (!set)
		return false;
	for (i = 0; i < HANDOFF_LOCKS; i++)
		if (handoff_is_contended(&set->locks[i], process, now_ns))
			return true;
	return false;
}

/* Returns whether a task of that process may hold a contended lock. */
static bool may_hold(u32 process, u64 now_ns)
{
	return has_contended(KERNEL, now_ns) || (process && has_contended(process, now_ns));
}

#endif /* UNSPIN_BPF_CONTENDED_H */

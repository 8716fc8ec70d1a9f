/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits that sleep: for the kernel's mutexes and reader-writer semaphores, and for glibc's
 * mutexes. They burn no CPU time, but they last longer if the holder is off or not scheduled. Only
 * waits that last at least as long as the shortest off interval are reported.
 */
#ifndef UNSPIN_BPF_WAIT_H
#define UNSPIN_BPF_WAIT_H

/* Large enough that few of hundreds of sleeping threads share a slot. */
#define SLEEP_BITS 13
/* Marks a slot that is being written. No thread has this number. */
#define CHANGING (~0U)

/* The wait of each sleeping thread. Two threads of the same slot overwrite each other. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLEEP_BITS);
	__type(key, u32);
	__type(value, struct wait);
} sleeps SEC(".maps");

static struct wait *sleep_of(u32 tid)
{
	u32 place = tid & ((1 << SLEEP_BITS) - 1);

	return bpf_map_lookup_elem(&sleeps, &place);
}

/* Returns whether this thread already waits for this kernel mutex: a waiter may spin again in
 * between, and then reports the begin again. Other waits begin only once, so a wait that is
 * kept when another one begins is one whose end was missed. */
static bool goes_on(u32 tid, u64 lock)
{
	struct wait *kept = sleep_of(tid);

	return kept && kept->tid == tid && kept->lock == lock;
}

/* Keeps a wait, unless another vCPU is writing the slot. */
static void keep(struct wait *wait)
{
	u32 tid = wait->tid;
	struct wait *place = sleep_of(tid);
	u32 before;

	if (!place)
		return;
	before = *(volatile u32 *)&place->tid;
	if (before == CHANGING || !__sync_bool_compare_and_swap(&place->tid, before, CHANGING))
		return;
	wait->tid = CHANGING;
	*place = *wait;
	__sync_lock_test_and_set(&place->tid, tid);
}

/* Removes this thread's wait. Returns false if another thread has overwritten it. */
static bool take_out(u32 tid, u64 lock, struct wait *wait)
{
	struct wait *place = sleep_of(tid);

	if (!place || place->tid != tid || place->lock != lock)
		return false;
	*wait = *place;
	return __sync_bool_compare_and_swap(&place->tid, tid, 0);
}

static void begin_sleep(u64 lock, u32 flags)
{
	struct wait wait = {};

	if (flags & LCB_F_MUTEX && goes_on(bpf_get_current_pid_tgid(), lock))
		return;
	begin_wait(&wait, lock, flags | WAIT_ASLEEP);
	find_owner(&wait);
	keep(&wait);
}

/* Computes how long the owner was runnable but not running. It has run by now, so its run_delay
 * is up to date. */
static void settle_delay(struct wait *wait)
{
	struct task_struct *owner = 0;
	u64 before_ns = wait->owner_delay_ns;
	u64 after_ns;

	wait->owner_delay_ns = 0;
	if (!wait->owner_tid || !can_find_tasks())
		return;
	owner = bpf_task_from_pid(wait->owner_tid);
	if (!owner)
		return;
	/* A smaller value belongs to another task that has the number now. */
	after_ns = run_delay_ns(owner);
	if (after_ns > before_ns)
		wait->owner_delay_ns = after_ns - before_ns;
	bpf_task_release(owner);
}

static void end_sleep(void *ctx, u64 lock)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct taken nobody = {};
	struct wait wait = {};
	u64 now_ns;

	if (!take_out(tid, lock, &wait))
		return;
	now_ns = bpf_ktime_get_ns();
	if (now_ns - wait.begin_ns < settings.limits.timer_ns)
		return;
	wait.tid = tid;
	settle_delay(&wait);
	hand_on(ctx, &wait, now_ns, &nobody, 0);
}

static int begin_futex(const void *word)
{
	u32 tid = can_find_tasks() ? glibc_owner(word) : 0;
	struct task_struct *owner;
	struct wait wait = {};

	owner = tid ? find_thread(tid) : 0;
	if (!owner)
		return 0;
	if (is_of_this_process(owner)) {
		begin_wait(&wait, (u64)word, WAIT_FUTEX | WAIT_ASLEEP);
		look_at_owner(&wait, owner);
		keep(&wait);
	}
	bpf_task_release(owner);
	return 0;
}

#endif /* UNSPIN_BPF_WAIT_H */

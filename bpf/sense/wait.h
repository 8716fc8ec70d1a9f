/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits that sleep: for the kernel's mutexes and reader-writer semaphores, and for the
 * mutexes of glibc. They burn nothing, but while the holder is off, or does not get to
 * run, whoever waits is late. Only those are reported that lasted as long as an off interval
 * does at least.
 */
#ifndef UNSPIN_BPF_WAIT_H
#define UNSPIN_BPF_WAIT_H

/* With hundreds of threads asleep at a time, few fall into one place. */
#define SLEEP_BITS 13
/* No thread's number: what lies in this place is being changed. */
#define CHANGING (~0U)

/* By thread. Two that fall into one place make each other forgotten. */
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

/* Whether this thread's wait for a mutex of the kernel's goes on: the waiter may spin again
 * meanwhile. Other waits begin once, so what is kept of one that begins is another one's, whose end
 * went unnoticed. */
static bool goes_on(u32 tid, u64 lock)
{
	struct wait *kept = sleep_of(tid);

	return kept && kept->tid == tid && kept->lock == lock;
}

/* Who comes to a place that another one is changing right now is not recorded. */
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

/* Takes this thread's wait out, unless another one's has come into its place. */
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

/* The owner has run by now, so its account is up to date. */
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
	/* Another task may have its number now. */
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

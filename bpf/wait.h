/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Waits that sleep: for the kernel's mutexes and reader-writer semaphores, and for the
 * mutexes of glibc. They burn nothing, but while the holder is off, or does not get to
 * run, whoever waits is late. Only those are told that lasted as long as an off interval
 * does at least.
 */
#ifndef UNSPIN_BPF_WAIT_H
#define UNSPIN_BPF_WAIT_H

#define SLEEP_BITS 10

/* By thread. Two that fall into one place make each other forgotten. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLEEP_BITS);
	__type(key, u32);
	__type(value, struct wait);
} sleeps SEC(".maps");

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

static struct wait *sleep_of(u32 tid)
{
	u32 place = tid & ((1 << SLEEP_BITS) - 1);

	return bpf_map_lookup_elem(&sleeps, &place);
}

/* Returns the wait, or 0 where it goes on: a mutex's waiter may spin again meanwhile. */
static struct wait *new_sleep(u64 lock, u32 flags)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct wait *wait = sleep_of(tid);

	if (!wait || (wait->tid == tid && wait->lock == lock))
		return 0;
	begin_wait(wait, lock, flags | WAIT_ASLEEP);
	return wait;
}

static void begin_sleep(u64 lock, u32 flags)
{
	struct wait *wait = new_sleep(lock, flags);

	if (wait)
		find_owner(wait);
}

/* The owner has run by now, so its account is up to date. */
static void settle_delay(struct wait *wait)
{
	struct task_struct *owner = 0;
	u64 before_ns = wait->owner_delay_ns;
	u64 after_ns;

	wait->owner_delay_ns = 0;
	if (!wait->owner_tid || !bpf_ksym_exists(bpf_task_from_pid) ||
	    !bpf_ksym_exists(bpf_task_release))
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
	struct wait *wait = sleep_of(tid);
	struct taken nobody = {};
	u64 now_ns;

	if (!wait || wait->tid != tid || wait->lock != lock)
		return;
	now_ns = bpf_ktime_get_ns();
	if (now_ns - wait->begin_ns >= settings.limits.timer_ns) {
		settle_delay(wait);
		hand_on(ctx, wait, now_ns, nobody);
	}
	wait->tid = 0;
}

/* The begin of glibc's pthread_mutex_t (nptl, struct __pthread_mutex_s). */
struct glibc_mutex {
	u32 lock;
	u32 count;
	u32 owner;
};

/* The lock word of one that others wait for. */
#define GLIBC_CONTENDED 2

/*
 * What waits here may be anything. It is a mutex, as far as can be told, if the word
 * is that of a contended one and the owner's place holds a thread of this process.
 */
SEC("fentry/futex_wait")
int BPF_PROG(futex_begin, const void *word)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct glibc_mutex mutex = {};
	struct task_struct *owner;
	struct wait *wait;

	if (!bpf_ksym_exists(bpf_task_from_pid) || !bpf_ksym_exists(bpf_task_release))
		return 0;
	if (bpf_probe_read_user(&mutex, sizeof(mutex), word) || mutex.lock != GLIBC_CONTENDED)
		return 0;
	owner = bpf_task_from_pid(mutex.owner);
	if (!owner)
		return 0;
	if ((u32)owner->tgid == tgid) {
		wait = new_sleep((u64)word, WAIT_FUTEX);
		if (wait)
			look_at_owner(wait, owner);
	}
	bpf_task_release(owner);
	return 0;
}

SEC("fexit/futex_wait")
int BPF_PROG(futex_end, const void *word)
{
	end_sleep(ctx, (u64)word);
	return 0;
}

#endif /* UNSPIN_BPF_WAIT_H */

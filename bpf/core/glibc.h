/* SPDX-License-Identifier: GPL-2.0-only */
/* The owner of a glibc mutex, which the kernel reads when a thread waits for its futex. */
#ifndef UNSPIN_BPF_GLIBC_H
#define UNSPIN_BPF_GLIBC_H

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
/* Since 6.15. Takes a number of the current task's PID namespace. */
extern struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

static bool can_find_tasks(void)
{
	return bpf_ksym_exists(bpf_task_from_pid) && bpf_ksym_exists(bpf_task_release);
}

/* Finds a thread by its number in the current task's PID namespace. Kernels before 6.15 offer only
 * a search by the number in the initial namespace, so there it finds no thread of a container. */
static struct task_struct *find_thread(u32 tid)
{
	if (bpf_ksym_exists(bpf_task_from_vpid))
		return bpf_task_from_vpid(tid);
	return bpf_task_from_pid(tid);
}

/* The first fields of glibc's pthread_mutex_t (nptl, struct __pthread_mutex_s). */
struct glibc_mutex {
	u32 lock;
	u32 count;
	u32 owner;
};

/* The lock word of a mutex that has waiters. */
#define GLIBC_CONTENDED 2

/* Returns the thread number in the mutex at this futex word; 0: unknown. The futex may belong to
 * something else. It counts as a mutex if its word is that of a contended mutex, and if the thread
 * named as owner belongs to this process, which the caller checks. */
static u32 glibc_owner(const void *word)
{
	struct glibc_mutex mutex = {};

	if (bpf_probe_read_user(&mutex, sizeof(mutex), word) || mutex.lock != GLIBC_CONTENDED)
		return 0;
	return mutex.owner;
}

static bool is_of_this_process(const struct task_struct *task)
{
	return (u32)task->tgid == (u32)(bpf_get_current_pid_tgid() >> 32);
}

#endif /* UNSPIN_BPF_GLIBC_H */

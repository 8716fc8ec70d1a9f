/* SPDX-License-Identifier: GPL-2.0-only */
/* glibc's mutexes, as who waits for one shows them to the kernel. */
#ifndef UNSPIN_BPF_GLIBC_H
#define UNSPIN_BPF_GLIBC_H

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
/* Since 6.15: by the number that it has where this program runs for. */
extern struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

static bool can_find_tasks(void)
{
	return bpf_ksym_exists(bpf_task_from_pid) && bpf_ksym_exists(bpf_task_release);
}

/* The thread of this number, as the task that runs here would call it: in a container, others
 * call it otherwise. Kernels before 6.15 know no other numbers than the host's. */
static struct task_struct *find_thread(u32 tid)
{
	if (bpf_ksym_exists(bpf_task_from_vpid))
		return bpf_task_from_vpid(tid);
	return bpf_task_from_pid(tid);
}

/* The begin of glibc's pthread_mutex_t (nptl, struct __pthread_mutex_s). */
struct glibc_mutex {
	u32 lock;
	u32 count;
	u32 owner;
};

/* The lock word of one that others wait for. */
#define GLIBC_CONTENDED 2

/* Who has the mutex that a thread waits for at this word; 0: nobody that is known. What
 * waits there may be anything: it is taken for a mutex if the word is that
 * of a contended one, and if the thread in the owner's place is of this process. */
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

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's types and constants that the programs use. libbpf finds each field by its name when
 * it loads a program (CO-RE). So the structs list only the fields in use, and the build needs no
 * headers of a particular kernel.
 */
#ifndef UNSPIN_BPF_KERNEL_H
#define UNSPIN_BPF_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;

/* From include/uapi/linux/bpf.h. */
enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_RB_FORCE_WAKEUP = 1 << 1,
	BPF_F_TIMER_CPU_PIN = 1 << 1,
};

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

/* The iterator of bpf_for(). */
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

#define CLOCK_MONOTONIC 1
/* From include/linux/preempt.h: the mask before and since preempt_count also counts nested calls of
 * local_interrupt_disable(). */
#define HARDIRQ_MASK 0x000f0000
#define HARDIRQ_MASK_COUNTED 0x0f000000
#define SOFTIRQ_SERVED 0x00000100
/* From include/linux/sched.h. */
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
/* From include/trace/events/lock.h. */
#define LCB_F_SPIN (1U << 0)
#define LCB_F_READ (1U << 1)
#define LCB_F_WRITE (1U << 2)
#define LCB_F_RT (1U << 3)
#define LCB_F_PERCPU (1U << 4)
#define LCB_F_MUTEX (1U << 5)
/* From kernel/locking/rwsem.c: readers hold the semaphore, so its word names no owner. */
#define RWSEM_READER_OWNED 1
#define KTIME_MAX 0x7fffffffffffffffLL
/* The state that trace_cpu_idle() reports when a CPU leaves idle. */
#define PWR_EVENT_EXIT 0xffffffffU

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hrtimer_cpu_base {
	s64 expires_next;
};

struct rt_rq {
	int rt_queued;
};

struct rq {
	u64 nr_switches;
	struct rt_rq rt;
	struct task_struct *stop;
};

/* Holds preempt_count until 6.15. */
struct pcpu_hot {
	int preempt_count;
};

struct pt_regs {
	unsigned long ip;
};

struct thread_info {
	u32 cpu;
};

struct sched_info {
	unsigned long long run_delay;
};

struct cpumask {
	unsigned long bits[1];
};

struct bpf_cpumask {
	struct cpumask cpumask;
};

struct scx_dispatch_q {
	u64 id;
};

struct sched_ext_entity {
	struct scx_dispatch_q *dsq;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
	unsigned long runnable_at;
};

struct cfs_bandwidth {
	s64 period;
	u64 quota;
	u64 burst;
};

struct task_group {
	unsigned long shares;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
};

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	struct thread_info thread_info;
	struct sched_entity se;
	/* Signed in the kernel. Its size differs between kernels, and libbpf adjusts only
	 * unsigned fields. */
	unsigned int on_cpu;
	struct sched_info sched_info;
	unsigned int __state;
	unsigned int flags;
	int pid;
	int tgid;
	char comm[16];
	struct pid *thread_pid;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
	struct task_group *sched_task_group;
	unsigned short migration_disabled;
};

struct cgroup {
	int level;
};

struct mutex {
	struct {
		long counter;
	} owner;
};

struct rw_semaphore {
	struct {
		long counter;
	} owner;
};

#pragma clang attribute pop

#endif /* UNSPIN_BPF_KERNEL_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/* The records that the scheduler and its agent share. */
#ifndef UNSPIN_BPF_RUN_H
#define UNSPIN_BPF_RUN_H

#include "adaptive_spin.h"
#include "bandwidth.h"
#include "capacity.h"
#include "handoff.h"
#include "place.h"
#include "share.h"
#include "sense/sense.h"

#define HOLDER_PLACES 8

struct task_name {
	u64 halves[2];
};

struct run_settings {
	struct activity_limits limits;
	/* How long a task runs before a waiting task gets its turn. */
	u64 slice_ns;
	/* Whether each mechanism is on. */
	u64 place;
	u64 handoff;
	u64 adaptive_spin;
	/* Address ranges of functions that spin; unused ones are 0. */
	struct range spinning[SPINNING_RANGES];
	/* Names of tasks, and IDs of cgroups, whose tasks always count as holders; unused ones
	 * are 0. */
	struct task_name holder_names[HOLDER_PLACES];
	u64 holder_cgroups[HOLDER_PLACES];
};

/* Counts since the start. Each vCPU has its own record, which only its programs write, so no
 * update is lost if a vCPU is preempted during one. */
struct run_counts {
	/* Tasks that were sent to an idle vCPU at once, and tasks that were queued. A task that
	 * takes over the vCPU of its waker is neither. */
	u64 placed;
	u64 queued;
	/* Tasks that made way for a woken task that had received less. */
	u64 preempted;
	/* Tasks that were taken from queues, and those of them that came from other vCPUs'
	 * queues. */
	u64 taken;
	u64 pulled;
	/* Slices extended for a holder; holders that ran next on the vCPU of a waiter; spinners
	 * sent to sleep; vCPUs asked for a sign of life. */
	u64 extended;
	u64 handed;
	u64 slept;
	u64 asked;
	/* Tasks that were throttled because their group had used its time. */
	u64 throttled;
	/* Tasks that left a local queue because a task of a higher class took the vCPU. */
	u64 reenqueued;
};

/* The scheduler's state of a vCPU, beside its signs of life. Unless stated otherwise, the vCPU's
 * own programs write it, with interrupts disabled. */
struct cpu_ctx {
	/* Whether the vCPU is in use. Written by whichever context holds the lock of choices. */
	u32 used;
	/* Whether the vCPU is online. Set at the start: when a vCPU comes or goes, the kernel
	 * ends the scheduler, and the agent loads it again. */
	u32 online;
	struct run_counts counts;
	/* The other vCPU's queue that it checked last; and the queue that its next task comes
	 * from, its own or another's, -1: none. */
	s32 scanned;
	s32 from;
	/* The process of the current task, and whether its slice has been extended. */
	u32 process;
	u32 extended;
	/* Whether the current task always counts as a holder. */
	u32 holder;
	/* Whether the current task cannot leave a vCPU that is not in use, as of the begin of its
	 * turn or the last tick on such a vCPU. */
	u32 bound;
	/* The weight of the current task, and its struct task_group; 0: no task runs. */
	u32 weight;
	/* Whether the current task's group has used its time. The task is to leave as soon as it
	 * is in user space, or at the end of its slice if it stays in the kernel. The second
	 * field is then its number. */
	u32 spent;
	u32 throttled_tid;
	/* A task that stays in the kernel after its group has used its time, 0: none; and since
	 * when. It may wait for its next turn meanwhile. */
	u32 kernel_tid;
	u64 kernel_ns;
	u64 group;
	/* Of the vCPU's queue: the approximate virtual time of its first task, and until when
	 * other vCPUs skip the queue because its tasks may not leave. Written by any vCPU that
	 * queues a task there or checks the queue. */
	u64 first_vtime;
	u64 bound_ns;
	/* How long the vCPU takes to respond when it is idle, on average. */
	u64 wake_ns;
	/* When the current task began to run, 0 while no task of ours does; its virtual time
	 * then; and the vCPU's total time off by then. */
	u64 since_ns;
	u64 since_vtime;
	u64 since_off_ns;
	/* Until when its runtime has been charged to its groups. */
	u64 charged_ns;
	/* Since when the current task is to give way; 0: it is not. Another vCPU may set it. */
	u64 due_ns;
	/* When this vCPU was last asked for a sign of life. Written by the vCPU that asks. */
	u64 asked_ns;
	/* The sleeping lock that the current task has begun to wait for; 0: none for which the
	 * kernel may spin. The task writes this and the next two fields with interrupts
	 * enabled. */
	u64 lock;
	u32 lock_kind;
	u32 lock_tid;
	/* The runnable holder that a task here waits for: its struct task_struct, which may have
	 * ended, and its number, 0: none. */
	u64 wanted_task;
	u32 wanted_tid;
	/* The vCPU's capacity, its rank in the choice of vCPUs to use, and when it was last
	 * kicked to release its task. Written under the lock of choices. */
	struct capacity capacity;
	u64 rank;
	u64 cleared_ns;
	/* When it last checked the queues for a task. */
	u64 served_ns;
} __attribute__((aligned(64)));

/* The scheduler's global state, written under the lock of choices. The window's timer also sets
 * stuck_until_ns without the lock. */
struct run_state {
	/* Totals at the last window: times of all vCPUs, and tasks taken from queues. */
	u64 idle_ns;
	u64 off_ns;
	u64 taken;
	/* When they were counted; 0: not counted since all vCPUs were idle. */
	u64 t_ns;
	/* Whether vCPUs were off for much of that window. */
	u64 overcommitted;
	/* The number of vCPUs in use, and of windows so far. */
	u64 use;
	u64 windows;
	/* The number of successive windows in which tasks waited and none was taken; and until
	 * when all vCPUs are used because of that, or because a task has waited for too long
	 * (overdue.h). */
	u64 stuck;
	u64 stuck_until_ns;
	/* How often a vCPU was taken out of use. */
	u64 cleared;
	/* The number of online vCPUs. */
	u64 online;
	/* The number of waiting tasks. */
	u64 waiting;
};

/* Returned by want_vcpus() if no vCPU has run the waiting tasks, so that all vCPUs are used for a
 * while. */
#define WANT_REFUSED 0x80000000U

/* Why the scheduler ended, from struct scx_exit_info. */
struct run_end {
	s32 kind;
	u32 unused;
	s64 code;
	char reason[128];
	char message[512];
};

#endif /* UNSPIN_BPF_RUN_H */

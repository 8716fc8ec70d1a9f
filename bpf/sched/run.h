/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler and its agent share. */
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
	/* How long a task runs before others get their turn. */
	u64 slice_ns;
	/* Mechanisms, whether they are on. */
	u64 place;
	u64 handoff;
	u64 adaptive_spin;
	/* Addresses from-to of functions that spin; unused ones are 0. */
	struct range spinning[SPINNING_RANGES];
	/* Names of tasks, and ids of cgroups of tasks, that always count as holders of what others
	 * wait for; unused ones are 0. */
	struct task_name holder_names[HOLDER_PLACES];
	u64 holder_cgroups[HOLDER_PLACES];
};

/* Counts since the start. Each vCPU has its own, which its programs alone write, so no update is
 * lost where a vCPU is off in the middle of one. */
struct run_counts {
	/* Tasks that were sent to an idle vCPU at once, and those that were queued. One that takes
	 * over the vCPU of the task that wakes it is neither. */
	u64 placed;
	u64 queued;
	/* Tasks that made way for one that woke and had had less. */
	u64 preempted;
	/* Tasks that were taken from queues; of them, from those of other vCPUs. */
	u64 taken;
	u64 pulled;
	/* Slices lengthened for a holder; holders that ran next on the vCPU of who
	 * waits; spinners sent to sleep; vCPUs asked whether they are on. */
	u64 extended;
	u64 handed;
	u64 slept;
	u64 asked;
	/* Tasks that had to wait because their group had used its time. */
	u64 throttled;
	/* Tasks that left a vCPU's own queue because a task of a higher class took the vCPU. */
	u64 reenqueued;
};

/* What the scheduler knows of a vCPU beside its signs of life. Its own programs write it, with
 * interrupts disabled, if nothing else is said. */
struct cpu_ctx {
	/* It is one of those that are to be used. Whoever chooses these writes it. */
	u32 used;
	/* It is online. Set at the start: where a vCPU comes or goes, the kernel ends the
	 * scheduler, and the agent loads it again. */
	u32 online;
	struct run_counts counts;
	/* The queue of another vCPU that it looked at last; and the one, its own or another's, that
	 * its next task comes from, -1: none. */
	s32 scanned;
	s32 from;
	/* The process of the task that runs, and whether its slice has been lengthened. */
	u32 process;
	u32 extended;
	/* It always counts as a holder. */
	u32 holder;
	/* It cannot leave a vCPU that is not in use, as was found when its turn began, or by the
	 * last tick on such a vCPU. */
	u32 bound;
	/* Its weight, and the kernel's struct task_group that it is in; 0: none runs. */
	u32 weight;
	/* Its group has used its time: it is to leave the vCPU as soon as it is in user space, or
	 * at its slice's end if it stays in the kernel, and then it is this one. */
	u32 spent;
	u32 throttled_tid;
	/* A task that stays in the kernel though its group has used its time, 0: none; and since
	 * when. It may wait for its next turn meanwhile. */
	u32 kernel_tid;
	u64 kernel_ns;
	u64 group;
	/* Its queue: the virtual time of the first task, about; and until when nobody else need
	 * look, because what waits there must wait there. Whoever puts a task there, or looks,
	 * writes them. */
	u64 first_vtime;
	u64 bound_ns;
	/* How long it has taken to answer when it was idle, on average. */
	u64 wake_ns;
	/* When its task began to run, 0 while none of ours does; at which virtual time; and how long
	 * the vCPU had been off in all by then. */
	u64 since_ns;
	u64 since_vtime;
	u64 since_off_ns;
	/* Until when what it ran has been taken from its group's time. */
	u64 charged_ns;
	/* Since when its task is to give way; 0: it is not. Another vCPU may set it. */
	u64 due_ns;
	/* When this vCPU was asked whether it is on: the one that asks writes it. */
	u64 asked_ns;
	/* The sleeping lock that the task which runs has begun to wait for; 0: none that the kernel
	 * may spin for. The task writes these and the next two, with interrupts enabled. */
	u64 lock;
	u32 lock_kind;
	u32 lock_tid;
	/* The holder, ready to run, that a task here waits for: its struct task_struct, which may
	 * be gone by now, and its number, 0: none. */
	u64 wanted_task;
	u32 wanted_tid;
	/* What it delivers, how many come before it in the choice of those to use, and when it was
	 * asked last to let go of its task: whoever chooses writes them. */
	struct capacity capacity;
	u64 rank;
	u64 cleared_ns;
	/* When it asked the queues for a task last. */
	u64 served_ns;
} __attribute__((aligned(64)));

/* What holds now, and what it rests on: whoever chooses the vCPUs to use writes it. The window's
 * timer sets stuck_until_ns at other times as well. */
struct run_state {
	/* Until the last window: times of all vCPUs, and tasks that were taken from queues. */
	u64 idle_ns;
	u64 off_ns;
	u64 taken;
	/* When they were counted; 0: not since all vCPUs were idle. */
	u64 t_ns;
	/* vCPUs were off for much of that window. */
	u64 overcommitted;
	/* vCPUs in use, and windows. */
	u64 use;
	u64 windows;
	/* Windows on end in which tasks waited and none was taken; and until when all vCPUs are
	 * used because of that, or of a task that has waited for too long (overdue.h). */
	u64 stuck;
	u64 stuck_until_ns;
	/* Times that a vCPU was taken out of use. */
	u64 cleared;
	/* vCPUs that are online. */
	u64 online;
	/* Tasks that wait. */
	u64 waiting;
};

/* What want_vcpus() returns where nobody ran what waited, so that all vCPUs are used for a while. */
#define WANT_REFUSED 0x80000000U

/* How it ended. */
struct run_end {
	s32 kind;
	u32 unused;
	s64 code;
	char reason[128];
	char message[512];
};

#endif /* UNSPIN_BPF_RUN_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/* The records in the maps, which the sensor and the agent share. */
#ifndef UNSPIN_BPF_SENSE_H
#define UNSPIN_BPF_SENSE_H

#include "activity.h"

/* Functions of the kernel that spin. */
#define SPINNING_RANGES 24

struct range {
	u64 from;
	u64 to;
};

struct settings {
	struct activity_limits limits;
	/* The shortest spin that is reported. */
	u64 spin_ns;
	/* Address ranges of functions that spin, in ascending order; unused ones are 0. */
	struct range spinning[SPINNING_RANGES];
};

/* What the ticks of a vCPU find. */
struct samples {
	/* The time of the last tick, and the vCPU's total time off by then. */
	u64 last_ns;
	u64 last_off_ns;
	/* Since the start: the number of ticks, and the nanoseconds of spinning that they
	 * found, in the kernel and in user space. */
	u64 count;
	u64 spin_ns;
	u64 user_spin_ns;
	/* The number of ticks that hit user mode. */
	u64 user_count;
};

/* The stopper thread of a vCPU, which moves running tasks. As of the last tick, or the last
 * time that the vCPU went idle. */
struct stopper {
	/* The thread's runtime by the kernel's account, and the vCPU's total time off by then. */
	u64 ran_ns;
	u64 off_ns;
	/* Since the start: nanoseconds that it really ran. */
	u64 on_ns;
};

/* The record of one vCPU, in a map that the agent reads through mmap(). No two records share a
 * cache line. */
struct vcpu {
	struct activity activity;
	/* When it went idle; 0 if it is not idle. */
	u64 idle_since_ns;
	/* Since the start: nanoseconds idle, nanoseconds off, off intervals, heartbeats. */
	u64 idle_ns;
	u64 off_ns;
	u64 offs;
	u64 beats;
	/* Since the start: spins of any length, nanoseconds spun. */
	u64 spins;
	u64 spin_ns;
	/* When its heartbeat is due; 0: no heartbeat is armed. */
	u64 beat_due_ns;
	/* 1 while observe() runs, which an interrupt can interrupt. */
	u64 observing;
	struct samples samples;
	/* The number of context switches, as of its last tick or the last time that it went
	 * idle. */
	u64 switches;
	struct stopper stopper;
	/* The last off interval; its end is 0 if there was none. */
	struct activity_off last_off;
} __attribute__((aligned(64)));

/* An off interval. */
struct off_event {
	u64 earliest_ns;
	u64 latest_ns;
	u64 end_ns;
	/* 1: the vCPU was idle when it was asked to run. */
	u64 was_idle;
};

/* The number of frames that are kept of a stack. */
#define FRAMES 8

enum owner_state {
	OWNER_RUNNING = 1,
	/* Runnable, but the guest's scheduler runs other tasks. */
	OWNER_RUNNABLE,
	OWNER_ASLEEP,
};

/* The begin of a wait for a lock or an acknowledgement. Unknown fields are 0; so is the tid of the
 * idle task. */
struct wait {
	u64 begin_ns;
	u64 lock;
	/* LCB_F_*, and the WAIT_* below. */
	u32 flags;
	u32 tid;
	/* The owner, the vCPU where it ran last, and its enum owner_state. */
	u32 owner_tid;
	u32 owner_cpu;
	u32 owner_state;
	u32 unused;
	union {
		/* Of a sleeping wait: the owner's total run_delay by then. */
		u64 owner_delay_ns;
		/* Of a spin for a PV spinlock: how long its vCPU was halted in it. */
		u64 halted_ns;
	};
};

/* A wait that has ended: a spin or a sleep. */
struct wait_event {
	struct wait wait;
	u64 end_ns;
	/* Of a spinlock: the waiter that took it before this one, and when. */
	u64 taken_ns;
	u64 taken_cpu;
	/* The waiter's stack, innermost frame first. */
	u64 frames[FRAMES];
};

/* A wait for acknowledgements of other vCPUs. */
#define WAIT_IPI (1U << 31)
/* A wait for a glibc mutex. */
#define WAIT_FUTEX (1U << 30)
/* A wait that sleeps. */
#define WAIT_ASLEEP (1U << 29)

enum event_kind {
	EVENT_OFF = 1,
	EVENT_WAIT,
};

struct event {
	/* One more than its number in its ring, from 0; 0 while it is being written. */
	u64 seq;
	u64 kind;
	union {
		struct off_event off;
		struct wait_event wait;
	};
};

#define RING_EVENTS 1024

/* The last events of a vCPU, which alone writes them. A reader checks seq before and after it
 * copies an event, to detect that it was overwritten. A lock cannot be used, because the
 * programs may run while any lock of the kernel is held, including those of BPF maps. */
struct ring {
	u64 head;
	u64 unused[7];
	struct event events[RING_EVENTS];
};

#endif /* UNSPIN_BPF_SENSE_H */

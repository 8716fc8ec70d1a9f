/* SPDX-License-Identifier: GPL-2.0-only */
/* What the sensor and the agent share: the records in the maps. */
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
	/* Spins from this length on are handed on. */
	u64 spin_ns;
	/* Addresses from-to of functions that spin, in order; unused ones are 0. */
	struct range spinning[SPINNING_RANGES];
};

/* What ticks find a vCPU doing. */
struct samples {
	/* The last one, and how long the vCPU had been off in all by then. */
	u64 last_ns;
	u64 last_off_ns;
	/* Since the start: how many there were, and nanoseconds that they found spent
	 * spinning, in the kernel and in user space. */
	u64 count;
	u64 spin_ns;
	u64 user_spin_ns;
	/* How many of them found it in user mode. */
	u64 user_count;
};

/* The thread of a vCPU that moves tasks which run, until its last tick, or until it went idle. */
struct stopper {
	/* What the kernel says that it ran; how long the vCPU had been off in all by then. */
	u64 ran_ns;
	u64 off_ns;
	/* Since the start: nanoseconds on. */
	u64 on_ns;
};

/* One vCPU's entry in the page that everyone may map and read. No two share a cache line. */
struct vcpu {
	struct activity activity;
	/* Since when it idles; 0 while it does not. */
	u64 idle_since_ns;
	/* Since the start: nanoseconds idle, nanoseconds off, off intervals, heartbeats. */
	u64 idle_ns;
	u64 off_ns;
	u64 offs;
	u64 beats;
	/* Since the start: spins of any length, nanoseconds spun. */
	u64 spins;
	u64 spin_ns;
	/* When its heartbeat is due; 0: none is. */
	u64 beat_due_ns;
	/* Its last sign of life is being judged; an interrupt can come meanwhile. */
	u64 observing;
	struct samples samples;
	/* Context switches by its last tick, or when it went idle. */
	u64 switches;
	struct stopper stopper;
} __attribute__((aligned(64)));

/* An off interval. */
struct off_event {
	u64 earliest_ns;
	u64 latest_ns;
	u64 end_ns;
	/* 1: the vCPU was idle when it was asked to run. */
	u64 was_idle;
};

/* Frames that are kept of a stack. */
#define FRAMES 8

enum owner_state {
	OWNER_RUNNING = 1,
	/* It wants to run, and the guest's scheduler lets others run. */
	OWNER_RUNNABLE,
	OWNER_ASLEEP,
};

/* A wait for a lock or for an acknowledgement, as it begins. What is not known is 0; so is
 * the idle task's tid. */
struct wait {
	u64 begin_ns;
	u64 lock;
	/* LCB_F_*, and the WAIT_* below. */
	u32 flags;
	u32 tid;
	/* The owner, where that ran last, and its enum owner_state. */
	u32 owner_tid;
	u32 owner_cpu;
	u32 owner_state;
	u32 unused;
	union {
		/* Asleep: how long the owner had wanted to run by then and others were let. */
		u64 owner_delay_ns;
		/* A spin: how long its vCPU was halted in it, until its turn at a PV spinlock. */
		u64 halted_ns;
	};
};

/* A wait that ended: a spin, or asleep. */
struct wait_event {
	struct wait wait;
	u64 end_ns;
	/* A spinlock: who took it last before this one did, of those who waited, and when. */
	u64 taken_ns;
	u64 taken_cpu;
	/* Where it was entered, the innermost frame first. */
	u64 frames[FRAMES];
};

/* For other vCPUs' acknowledgement. */
#define WAIT_IPI (1U << 31)
/* For a mutex of glibc. */
#define WAIT_FUTEX (1U << 30)
/* It slept. */
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

/* A vCPU's last events. It alone writes them; who reads them looks at seq before and
 * after, and sees by it what was overwritten. There is no lock, because the programs run
 * with any lock of the kernel held, also those of BPF's own maps. */
struct ring {
	u64 head;
	u64 unused[7];
	struct event events[RING_EVENTS];
};

#endif /* UNSPIN_BPF_SENSE_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler and its agent share. */
#ifndef UNSPIN_BPF_RUN_H
#define UNSPIN_BPF_RUN_H

#include "pack.h"
#include "sense.h"

struct run_settings {
	struct activity_limits limits;
	/* How long a task runs before others get their turn. */
	u64 slice_ns;
	/* Mechanisms that are switched off. */
	u64 no_pack;
	/* Addresses from-to of functions that spin; unused ones are 0. */
	struct range spinning[SPINNING_RANGES];
};

/* What the scheduler knows of a vCPU beside its signs of life. */
struct seat {
	/* It is one of those that are to be used. */
	u32 used;
	/* Whose turn it was last, its own queue's or the shared one's. */
	u32 turn;
	/* When its task began to run, at which virtual time, and how long the vCPU had been off in
	 * all by then. */
	u64 since_ns;
	u64 since_vtime;
	u64 since_off_ns;
	/* When it last asked the queues for a task. */
	u64 served_ns;
};

/* Figures since the start, and the decisions of now. */
struct run_state {
	struct pack pack;
	struct pack_facts facts;
	/* Sums over all vCPUs, nanoseconds. */
	u64 idle_ns;
	u64 off_ns;
	u64 spin_ns;
	u64 wakes;
	/* When they were taken. */
	u64 t_ns;
	/* Windows with how many vCPUs in use, and their sum. */
	u64 windows;
	u64 used_sum;
	/* Tasks: placed on an idle vCPU at once, and queued; vCPUs told to give up a task. */
	u64 placed;
	u64 queued;
	u64 cleared;
	/* Tasks that gave way to one that woke and had had less. */
	u64 preempted;
	/* Tasks that were taken from the shared queue, and until the last window. */
	u64 taken;
	u64 taken_before;
};

/* How it ended. */
struct run_end {
	s32 kind;
	u32 unused;
	s64 code;
	char reason[128];
	char message[512];
};

#endif /* UNSPIN_BPF_RUN_H */

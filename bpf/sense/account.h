/* SPDX-License-Identifier: GPL-2.0-only */
/* The records that the accounting of spins shares with the agent, one for each vCPU. */
#ifndef UNSPIN_BPF_ACCOUNT_H
#define UNSPIN_BPF_ACCOUNT_H

/*
 * The time that one vCPU has spent in the kernel's slow paths that wait without sleeping.
 *
 * Only its own vCPU writes a record, in any context including interrupts and NMIs, so no write is
 * atomic. The agent reads it through a mapping, at any time and field by field.
 */
struct account {
	/* Total nanoseconds of completed slow paths, outermost ones only. Never decreases. */
	u64 spin_ns;
	/* The number of these slow paths. */
	u64 spins;
	/* The outermost slow path that this vCPU is in: when it began, or 0 if there is none; the
	 * address of its function's frame; and its task. */
	u64 since_ns;
	u64 frame;
	u64 task;
	/* Slow paths whose end was missed. Their time is not counted. */
	u64 lost;
	/* When the current window began, the time spun in it, and how often. */
	u64 window_ns;
	u64 window_spin_ns;
	u64 window_waits;
	/* Begin and end of the last completed slow path. */
	u64 last_since_ns;
	u64 last_end_ns;
	/* The end of the last off interval that was booked; the total time off inside slow paths;
	 * and the part of off intervals that counts as on after all. */
	u64 off_end_ns;
	u64 spin_off_ns;
	u64 held_ns;
	u64 unused[2];
};

/* No two vCPUs share a cache line. */
_Static_assert(sizeof(struct account) == 128, "two cache lines");

#endif /* UNSPIN_BPF_ACCOUNT_H */

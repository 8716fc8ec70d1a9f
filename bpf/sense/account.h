/* SPDX-License-Identifier: GPL-2.0-only */
/* What the accounting of spins shares with the agent: one record a vCPU. */
#ifndef UNSPIN_BPF_ACCOUNT_H
#define UNSPIN_BPF_ACCOUNT_H

/*
 * Time that one vCPU has spent in the kernel's slow paths that wait without sleeping.
 *
 * Only its own vCPU writes a record, in any context, interrupts and NMIs included, so no write
 * is atomic. The agent reads it through a mapping, at any time, and field by field.
 */
struct account {
	/* Nanoseconds of the slow paths that ended, outermost ones only. Never decreases. */
	u64 spin_ns;
	/* How many those were. */
	u64 spins;
	/* Of the outermost slow path that this vCPU is in: when it began, or 0 where it is in none;
	 * where the frame of its function lies; and its task. */
	u64 since_ns;
	u64 frame;
	u64 task;
	/* Slow paths that began and whose end was not seen. Their time is not counted. */
	u64 lost;
	/* When the window under way began, and what has been spun in it. */
	u64 window_ns;
	u64 window_spin_ns;
	/* The last slow path that ended, from when to when. */
	u64 last_since_ns;
	u64 last_end_ns;
	/* When the off interval ended that was looked at last; how much of the time off lay in slow
	 * paths since the start, and how much of it was on after all. */
	u64 off_end_ns;
	u64 spin_off_ns;
	u64 held_ns;
	u64 unused[3];
};

/* No two vCPUs share a cache line. */
_Static_assert(sizeof(struct account) == 128, "two cache lines");

#endif /* UNSPIN_BPF_ACCOUNT_H */

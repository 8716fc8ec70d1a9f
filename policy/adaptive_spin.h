/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether who spins for a lock should go on.
 *
 * The kernel's sleeping locks are spun for while their owner runs, because it may release
 * them sooner than a sleep and a wake-up take. An owner whose vCPU is off runs only for
 * the guest. It will be away for the rest of an off interval, and the spinner's vCPU
 * would burn what could bring it back. (Adaptive spinning, as a hypervisor's hint
 * vcpu_is_preempted() gives it to guests that have one, Linux commit 5aff60a19143.)
 */
#ifndef UNSPIN_POLICY_ADAPTIVE_SPIN_H
#define UNSPIN_POLICY_ADAPTIVE_SPIN_H

#include "base.h"

/* The owner's vCPU, which is off. */
struct adaptive_spin {
	/* Since when, at the latest. */
	u64 off_since_ns;
	/* The mean length of its off intervals; 0: there was none before. */
	u64 off_mean_ns;
	/* What it takes to sleep and be woken. */
	u64 block_ns;
};

/* How long the owner will probably still be off. One that is off for longer than usual
 * will be for as long again: nothing is known of such an interval but its age. */
POLICY u64 adaptive_spin_left_ns(const struct adaptive_spin *spin, u64 now_ns)
{
	u64 off_ns = now_ns > spin->off_since_ns ? now_ns - spin->off_since_ns : 0;
	u64 usual_ns = spin->off_mean_ns > off_ns ? spin->off_mean_ns - off_ns : 0;

	return usual_ns > off_ns ? usual_ns : off_ns;
}

POLICY int adaptive_spin_ends(const struct adaptive_spin *spin, u64 now_ns)
{
	return adaptive_spin_left_ns(spin, now_ns) > spin->block_ns;
}

#endif /* UNSPIN_POLICY_ADAPTIVE_SPIN_H */

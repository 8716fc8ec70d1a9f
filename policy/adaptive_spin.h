/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Decides whether a task that spins for a lock should go on spinning.
 *
 * Tasks spin for the kernel's sleeping locks while the owner runs, because the owner may release
 * the lock sooner than a sleep and a wake-up take. But if the owner's vCPU is off, the owner runs
 * only in the guest's view. It stays away for the rest of the off interval, and the spinner's
 * vCPU burns time that could bring it back. (Adaptive spinning, as a hypervisor's hint
 * vcpu_is_preempted() gives it to guests that have one, Linux commit 5aff60a19143.)
 */
#ifndef UNSPIN_POLICY_ADAPTIVE_SPIN_H
#define UNSPIN_POLICY_ADAPTIVE_SPIN_H

#include "base.h"

/* The owner's vCPU, which is off, and the price of sleeping. */
struct adaptive_spin {
	/* The latest time at which it can have gone off. */
	u64 off_since_ns;
	/* The mean length of its off intervals; 0: none was seen before. */
	u64 off_mean_ns;
	/* The time that it takes to sleep and be woken. */
	u64 block_ns;
};

/* Returns how long the owner will probably still be off. An interval that is already longer than
 * usual is expected to last as long again, because only its age is known. */
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

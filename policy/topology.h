/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Determines which vCPUs share a pCPU (vSched's vtop calls them stacked, EuroSys '25). Two vCPUs
 * send a cache line back and forth. If each has a pCPU of its own, the line moves thousands of
 * times in a millisecond. If they share one, it moves only when the host switches between them.
 */
#ifndef UNSPIN_POLICY_TOPOLOGY_H
#define UNSPIN_POLICY_TOPOLOGY_H

#include "base.h"

enum topology_relation {
	TOPOLOGY_UNKNOWN,
	TOPOLOGY_APART,
	TOPOLOGY_STACKED,
};

/* How long a try lasts, and how many times the line must move in it to show that the vCPUs are
 * apart: hosts switch only a few times in that time. */
#define TOPOLOGY_TRY_NS 6000000ULL
#define TOPOLOGY_HANDOFFS 100
/* Two vCPUs that are apart may also run alternately if the pCPUs have much else to run. This is
 * how long they would have been on together by chance: four time slices of a host. If they never
 * were, the reason is chance in one of fifty cases. */
#define TOPOLOGY_TOGETHER_NS 16000000ULL
/* After this many tries, with this pause between them, the relation counts as apart. */
#define TOPOLOGY_TRIES 32
#define TOPOLOGY_PAUSE_NS 100000000ULL

/* Returns how long two unrelated vCPUs are on together in a try, on average, if they were on for
 * a_on_ns and b_on_ns. */
POLICY u64 topology_together_ns(u64 a_on_ns, u64 b_on_ns)
{
	return a_on_ns * b_on_ns / TOPOLOGY_TRY_NS;
}

/* Judges the relation after some tries. `handoffs` is that of the best try; together_ns is how
 * long unrelated vCPUs would have been on together in all of them. */
POLICY enum topology_relation topology_relation(u64 handoffs, u64 together_ns, u32 tries)
{
	if (handoffs >= TOPOLOGY_HANDOFFS)
		return TOPOLOGY_APART;
	if (together_ns >= TOPOLOGY_TOGETHER_NS)
		return TOPOLOGY_STACKED;
	return tries >= TOPOLOGY_TRIES ? TOPOLOGY_APART : TOPOLOGY_UNKNOWN;
}

#endif /* UNSPIN_POLICY_TOPOLOGY_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which vCPUs share a pCPU (stacked, as vtop of vSched calls them, EuroSys '25). Two of them
 * send a cache line to and fro. Where each has a pCPU the line goes thousands of times in a
 * millisecond; where they share one, only when the host switches from one to the other.
 */
#ifndef UNSPIN_POLICY_TOPOLOGY_H
#define UNSPIN_POLICY_TOPOLOGY_H

#include "base.h"

enum topology_relation {
	TOPOLOGY_UNKNOWN,
	TOPOLOGY_APART,
	TOPOLOGY_STACKED,
};

/* How long a try lasts, and how often the line must go in it: hosts switch a few times in that
 * time. */
#define TOPOLOGY_TRY_NS 6000000ULL
#define TOPOLOGY_HANDOFFS 100
/* Two that are apart may run in turn, too, where there is much else to run. They would have
 * been on together for so long by chance: four time slices of a host. That it never was so is
 * chance in one of fifty cases. */
#define TOPOLOGY_TOGETHER_NS 16000000ULL
/* After so many tries, with a pause between, it stays open. */
#define TOPOLOGY_TRIES 32
#define TOPOLOGY_PAUSE_NS 100000000ULL

/* How long two that have nothing to do with each other are on together in a try, on average,
 * where they were on for so long each. */
POLICY u64 topology_together_ns(u64 a_on_ns, u64 b_on_ns)
{
	return a_on_ns * b_on_ns / TOPOLOGY_TRY_NS;
}

/* After so many tries, the best of which had so many handoffs, and in which they would have
 * been on together for so long. */
POLICY enum topology_relation topology_relation(u64 handoffs, u64 together_ns, u32 tries)
{
	if (handoffs >= TOPOLOGY_HANDOFFS)
		return TOPOLOGY_APART;
	if (together_ns >= TOPOLOGY_TOGETHER_NS)
		return TOPOLOGY_STACKED;
	return tries >= TOPOLOGY_TRIES ? TOPOLOGY_APART : TOPOLOGY_UNKNOWN;
}

#endif /* UNSPIN_POLICY_TOPOLOGY_H */

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
/* One of two that are apart may be off for a whole try, or two that are free to move may be
 * on one pCPU for a while. So many tries tell, with a pause between. */
#define TOPOLOGY_TRIES 8
#define TOPOLOGY_PAUSE_NS 100000000ULL

/* After so many tries, the best of which had so many handoffs. */
POLICY enum topology_relation topology_relation(u64 handoffs, u32 tries)
{
	if (handoffs >= TOPOLOGY_HANDOFFS)
		return TOPOLOGY_APART;
	return tries >= TOPOLOGY_TRIES ? TOPOLOGY_STACKED : TOPOLOGY_UNKNOWN;
}

#endif /* UNSPIN_POLICY_TOPOLOGY_H */

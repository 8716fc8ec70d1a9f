/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The policy's functions with external linkage. */
#define POLICY
#include "activity.h"
#include "adaptive_spin.h"
#include "bandwidth.h"
#include "capacity.h"
#include "confine.h"
#include "handoff.h"
#include "place.h"
#include "share.h"
#include "steal_governor.h"
#include "topology.h"

const u64 topology_try_ns = TOPOLOGY_TRY_NS;
const u64 topology_pause_ns = TOPOLOGY_PAUSE_NS;
const u64 confine_size = sizeof(struct confine);
const u64 confine_facts_size = sizeof(struct confine_facts);

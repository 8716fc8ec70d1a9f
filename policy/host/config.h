/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The simulated host: its size, which scheduler it runs, and that scheduler's tunables.
 *
 * Follows get_update_sysctl_factor() (SCHED_TUNABLESCALING_LOG) and the sysctl defaults of
 * kernel/sched/fair.c: EEVDF as of Linux 6.12.117, CFS as of Linux 5.6. All times are
 * nanoseconds of one monotonic clock.
 *
 * Leaves out: NUMA, SMT, CPU frequency and capacity, HRTICK, core scheduling, PREEMPT_LAZY.
 */
#ifndef UNSPIN_POLICY_HOST_CONFIG_H
#define UNSPIN_POLICY_HOST_CONFIG_H

#include "../base.h"

/* How these functions are declared. Many are too large to be inlined everywhere, as POLICY has
 * it. A file that gives them external linkage defines it as nothing. */
#ifndef HOST_POLICY
#define HOST_POLICY static inline
#endif

#define HOST_PCPUS_MAX 96
#define HOST_ENTITIES_MAX 512
#define HOST_GROUPS_MAX 8
#define HOST_NONE ((u32)~0)
#define HOST_NEVER (~0ULL)

/* The weight of a nice-0 thread, and of a group with the default cpu.weight. */
#define HOST_WEIGHT 1024
#define HOST_WEIGHT_MIN 2

enum host_scheduler { HOST_EEVDF, HOST_CFS };

/* How yield_to() treats a target that is not eligible: see yield.h. */
enum host_debooster {
	HOST_DEBOOSTER_OFF,
	HOST_DEBOOSTER_PENALTY,
	HOST_DEBOOSTER_TRANSFER,
	HOST_DEBOOSTER_CREDIT,
};

enum host_state {
	/* It halts. */
	HOST_BLOCKED,
	/* It wants to run and is off. */
	HOST_QUEUED,
	/* It runs on a pCPU. */
	HOST_ON,
};

/* Scheduler features that a host can do without: bits of host_config.no_features. */
enum host_feature {
	HOST_RUN_TO_PARITY = 1,
	HOST_WAKEUP_PREEMPTION = 2,
	HOST_PLACE_LAG = 4,
	HOST_NEXT_BUDDY = 8,
	HOST_YIELD_FORFEIT = 16,
	/* With DELAY_ZERO. */
	HOST_DELAY_DEQUEUE = 32,
	HOST_PREEMPT_SHORT = 64,
};

struct host_config {
	/* 1 to HOST_PCPUS_MAX. */
	u32 pcpus;
	/* enum host_scheduler */
	u32 scheduler;
	/* enum host_debooster */
	u32 debooster;
	/* Bits of enum host_feature to turn off. */
	u32 no_features;
	/* 1: a thread in a critical section gets a tick more: extend.h. */
	u32 extend;
	/* 0: 4 ms (HZ=250). */
	u64 tick_ns;
	/* EEVDF's base slice or CFS's minimum granularity; 0: the kernel's default. */
	u64 slice_ns;
	/* The first tick. All pCPUs tick at once, as on Linux without skew_tick. */
	u64 phase_ns;
};

HOST_POLICY u64 host_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

HOST_POLICY u64 host_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* The factor of the defaults: 1 + ilog2(min(pcpus, 8)). */
HOST_POLICY u64 host_scale(const struct host_config *c)
{
	return c->pcpus >= 8 ? 4 : c->pcpus >= 4 ? 3 : c->pcpus >= 2 ? 2 : 1;
}

HOST_POLICY u64 host_tick_ns(const struct host_config *c)
{
	return c->tick_ns ? c->tick_ns : 4000000;
}

/* EEVDF: sysctl_sched_base_slice. CFS: sysctl_sched_min_granularity. */
HOST_POLICY u64 host_slice_ns(const struct host_config *c)
{
	u64 ns = c->scheduler == HOST_CFS ? 750000 : 700000;

	return c->slice_ns ? c->slice_ns : ns * host_scale(c);
}

/* CFS: sysctl_sched_latency, always eight times the minimum granularity. */
HOST_POLICY u64 host_latency_ns(const struct host_config *c)
{
	return 8 * host_slice_ns(c);
}

/* CFS: sysctl_sched_wakeup_granularity. */
HOST_POLICY u64 host_wakeup_ns(const struct host_config *c)
{
	return 1000000 * host_scale(c);
}

HOST_POLICY u32 host_has(const struct host_config *c, u32 feature)
{
	return !(c->no_features & feature);
}

/* The first tick after `now`, on every pCPU. */
HOST_POLICY u64 host_tick_after(const struct host_config *c, u64 now)
{
	u64 tick = host_tick_ns(c), first = c->phase_ns;

	return now < first ? first : first + ((now - first) / tick + 1) * tick;
}

#endif /* UNSPIN_POLICY_HOST_CONFIG_H */

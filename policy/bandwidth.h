/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Limits how much CPU time a group of tasks may use (cgroups, cpu.max).
 *
 * As in the kernel's own bandwidth control, a group has a quota of time for each period, on all
 * vCPUs together. The run time of its tasks is deducted from the quota. Because run time is
 * checked only at ticks, a group can overrun its quota. The following periods make up for the
 * overrun, so the limit holds on average.
 */
#ifndef UNSPIN_POLICY_BANDWIDTH_H
#define UNSPIN_POLICY_BANDWIDTH_H

#include "base.h"

/* One group's limit and balance. All zeros mean no limit. */
struct bandwidth {
	/* 0: no limit. */
	u64 quota_ns;
	u64 period_ns;
	/* The most unused quota that carries over from earlier periods. */
	u64 burst_ns;
	/* When the current period began. */
	u64 since_ns;
	/* The time that the group may still use; negative: its overrun. All vCPUs deduct from
	 * it. */
	s64 left_ns;
};

/* The longest wait that an overrun may cause: the kernel's watchdog ends a scheduler that leaves
 * a task waiting. */
#define BANDWIDTH_LONGEST_NS 4000000000ULL
/* The kernel's shortest and longest period, and its longest quota. */
#define BANDWIDTH_LEAST_PERIOD_NS 1000000ULL
#define BANDWIDTH_MOST_NS (1ULL << 44)

/* Sets the limit. A limit that has changed takes effect at once, with a full quota. */
POLICY void bandwidth_set(struct bandwidth *b, u64 quota_ns, u64 period_ns, u64 burst_ns, u64 now_ns)
{
	if (quota_ns > BANDWIDTH_MOST_NS || period_ns < BANDWIDTH_LEAST_PERIOD_NS)
		quota_ns = 0;
	if (burst_ns > quota_ns)
		burst_ns = quota_ns;
	if (quota_ns == b->quota_ns && period_ns == b->period_ns && burst_ns == b->burst_ns)
		return;
	b->quota_ns = quota_ns;
	b->period_ns = period_ns;
	b->burst_ns = burst_ns;
	b->since_ns = now_ns;
	b->left_ns = (s64)quota_ns;
}

/* Adds a quota for each period that has passed. Only one vCPU may call this at a time. */
POLICY void bandwidth_refill(struct bandwidth *b, u64 now_ns)
{
	u64 periods, longest, full = b->quota_ns + b->burst_ns;
	s64 was_ns = b->left_ns, least_ns, then_ns;

	if (!b->quota_ns || now_ns < b->since_ns + b->period_ns)
		return;
	periods = (now_ns - b->since_ns) / b->period_ns;
	b->since_ns += periods * b->period_ns;
	longest = BANDWIDTH_LONGEST_NS / b->period_ns;
	least_ns = -(s64)(b->quota_ns * longest);
	if (periods > longest + 2)
		periods = longest + 2;
	then_ns = (was_ns > least_ns ? was_ns : least_ns) + (s64)(b->quota_ns * periods);
	if (then_ns > (s64)full)
		then_ns = (s64)full;
	__sync_fetch_and_add(&b->left_ns, then_ns - was_ns);
}

POLICY void bandwidth_charge(struct bandwidth *b, u64 ran_ns)
{
	if (b->quota_ns)
		__sync_fetch_and_add(&b->left_ns, -(s64)ran_ns);
}

/* Whether the group may use more than `ns`. */
POLICY int bandwidth_has(const struct bandwidth *b, u64 ns)
{
	return !b->quota_ns || b->left_ns > (s64)ns;
}

#endif /* UNSPIN_POLICY_BANDWIDTH_H */

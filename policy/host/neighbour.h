/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Modelled neighbours: threads that compete with the guests for the pCPUs and do nothing else.
 *
 * A neighbour is a pure function of the time and of how long it has run so far; its user wakes
 * and blocks it by that. Follows no kernel function: the kinds are the loads of the experiments
 * (stress-ng's cpu workers, a task that sleeps in between, a burst, an injected schedule).
 *
 * Leaves out: caches, locks and interrupts of the neighbours.
 */
#ifndef UNSPIN_POLICY_HOST_NEIGHBOUR_H
#define UNSPIN_POLICY_HOST_NEIGHBOUR_H

#include "config.h"

#define HOST_NEIGHBOUR_TIMES_MAX 64

enum host_neighbour_kind {
	/* Always wants to run. */
	HOST_NEIGHBOUR_GREEDY,
	/* Wants on_ns of CPU time, then sleeps for off_ns. */
	HOST_NEIGHBOUR_PERIODIC,
	/* Wants to run for on_ns of wall time, on a pCPU or not, then sleeps for off_ns. */
	HOST_NEIGHBOUR_BURST,
	/* Wants to run at the given times. */
	HOST_NEIGHBOUR_AT,
};

struct host_neighbour_time {
	/* From `from`, until before `to`. */
	u64 from, to;
};

struct host_neighbour {
	/* enum host_neighbour_kind */
	u32 kind;
	/* AT: the number of entries in `at`, which ascend and do not overlap. */
	u32 times;
	u64 on_ns, off_ns;
	/* PERIODIC, BURST: not before this. */
	u64 start_ns;
	struct host_neighbour_time at[HOST_NEIGHBOUR_TIMES_MAX];
};

/* A neighbour's history. Zeroed at the start. */
struct host_neighbour_past {
	/* PERIODIC: ran_ns at the start of its last sleep, and the end of that sleep. */
	u64 slept_ran_ns, wakes_at;
};

/* A neighbour's answer. */
struct host_neighbour_wish {
	u32 runs;
	/* When that changes at the earliest: if it runs from now on without a break, and if it
	 * does not run; HOST_NEVER: not at all. */
	u64 if_on, if_off;
};

HOST_POLICY struct host_neighbour_wish host_neighbour_wish(u32 runs, u64 if_on, u64 if_off)
{
	struct host_neighbour_wish wish = { runs, if_on, if_off };

	return wish;
}

HOST_POLICY struct host_neighbour_wish
host_neighbour_periodic(const struct host_neighbour *n, struct host_neighbour_past *past, u64 now,
			u64 ran_ns)
{
	if (now < host_max(past->wakes_at, n->start_ns)) {
		u64 wakes_at = host_max(past->wakes_at, n->start_ns);

		return host_neighbour_wish(0, wakes_at, wakes_at);
	}
	if (ran_ns - past->slept_ran_ns >= n->on_ns && n->off_ns) {
		past->slept_ran_ns = ran_ns;
		past->wakes_at = now + n->off_ns;
		return host_neighbour_wish(0, past->wakes_at, past->wakes_at);
	}
	if (!n->off_ns)
		return host_neighbour_wish(1, HOST_NEVER, HOST_NEVER);
	return host_neighbour_wish(1, now + n->on_ns - (ran_ns - past->slept_ran_ns), HOST_NEVER);
}

HOST_POLICY struct host_neighbour_wish host_neighbour_burst(const struct host_neighbour *n,
							      u64 now)
{
	u64 at, change;

	if (now < n->start_ns)
		return host_neighbour_wish(0, n->start_ns, n->start_ns);
	if (!n->on_ns || !n->off_ns)
		return host_neighbour_wish(!n->off_ns, HOST_NEVER, HOST_NEVER);
	at = (now - n->start_ns) % (n->on_ns + n->off_ns);
	change = now - at + n->on_ns + (at < n->on_ns ? 0 : n->off_ns);
	return host_neighbour_wish(at < n->on_ns, change, change);
}

HOST_POLICY struct host_neighbour_wish host_neighbour_at(const struct host_neighbour *n, u64 now)
{
	u32 i;

	for (i = 0; i < n->times && i < HOST_NEIGHBOUR_TIMES_MAX; i++) {
		if (now < n->at[i].from)
			return host_neighbour_wish(0, n->at[i].from, n->at[i].from);
		if (now < n->at[i].to)
			return host_neighbour_wish(1, n->at[i].to, n->at[i].to);
	}
	return host_neighbour_wish(0, HOST_NEVER, HOST_NEVER);
}

/* Whether the neighbour wants to run at `now`, after ran_ns of CPU time. The caller asks whenever
 * the answer may have changed, and never goes back in time. */
HOST_POLICY struct host_neighbour_wish host_neighbour_next(const struct host_neighbour *n,
							     struct host_neighbour_past *past,
							     u64 now, u64 ran_ns)
{
	switch (n->kind) {
	case HOST_NEIGHBOUR_PERIODIC:
		return host_neighbour_periodic(n, past, now, ran_ns);
	case HOST_NEIGHBOUR_BURST:
		return host_neighbour_burst(n, now);
	case HOST_NEIGHBOUR_AT:
		return host_neighbour_at(n, now);
	default:
		return host_neighbour_wish(1, HOST_NEVER, HOST_NEVER);
	}
}

#endif /* UNSPIN_POLICY_HOST_NEIGHBOUR_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Decides where a task that becomes ready waits, and from which queue a vCPU takes its next task.
 *
 * Every vCPU has a queue, ordered by virtual time. A vCPU that is off serves nobody, and an idle
 * vCPU that the host is slow to run serves late. So a task is queued where it will probably wait
 * least, as bvs of vSched does (EuroSys '25). The prediction can fail, so vCPUs that run also
 * look at the queues of others. They take from a queue whose tasks have had less time, and at
 * once from a queue that is not served. A vCPU that takes a task is on, so no task waits for a
 * vCPU that is off while another vCPU runs.
 */
#ifndef UNSPIN_POLICY_PLACE_H
#define UNSPIN_POLICY_PLACE_H

#include "activity.h"

/* A vCPU as a place to run. */
struct place {
	/* What the vCPU does now, a value of enum activity_state. */
	u32 state;
	/* The number of tasks that wait for it. */
	u32 waiting;
	/* How long its run will probably still last. */
	u64 left_ns;
	/* The mean length of its off intervals. */
	u64 off_ns;
	/* How long it takes to answer a wake-up, on average. */
	u64 wake_ns;
};

/* Returns how long a task that is queued there will probably wait until it runs. */
POLICY u64 place_wait_ns(const struct place *place, u64 slice_ns)
{
	u64 wait_ns;

	if (place->state == ACTIVITY_IDLE)
		return place->wake_ns;
	wait_ns = slice_ns / 2 + place->waiting * slice_ns;
	if (place->state == ACTIVITY_OFF || wait_ns > place->left_ns)
		wait_ns += place->off_ns;
	return wait_ns;
}

/* Whether the other place is so much better that leaving the caches is worth it. */
POLICY int place_is_better(u64 other_wait_ns, u64 wait_ns)
{
	return other_wait_ns + other_wait_ns / 2 < wait_ns;
}

/* A queue as other vCPUs see it. */
struct place_queue {
	/* The approximate virtual time of its first task. */
	u64 first_vtime;
	/* When its vCPU last asked for a task. */
	u64 served_ns;
	/* Nonzero if tasks may use its vCPU and the vCPU is not off. */
	u32 serves;
};

/* Whether a vCPU whose own first task has the virtual time own_vtime takes from the other queue
 * first. */
POLICY int place_takes(u64 own_vtime, const struct place_queue *other, u64 now_ns, u64 slice_ns)
{
	int is_served = other->serves && now_ns < other->served_ns + 2 * slice_ns;
	u64 ahead = own_vtime - other->first_vtime;

	return ahead < 1ULL << 63 && ahead > (is_served ? slice_ns : 0);
}

#endif /* UNSPIN_POLICY_PLACE_H */

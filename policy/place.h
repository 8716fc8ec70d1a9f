/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where a task that becomes ready is to wait, and whose waiting task a vCPU takes next.
 *
 * Every vCPU has a queue, in the order of virtual time. A vCPU that is off serves nobody, and
 * an idle one that the host is slow to run serves late: so a task is put where it will
 * probably wait least, as bvs of vSched does (EuroSys '25). What will happen is not
 * certain, so vCPUs that run look at the queues of others, too, and take from one whose
 * tasks have had less; from one that is not served they take at once. Who takes is
 * on, so no task waits for a vCPU that is off while another one runs.
 */
#ifndef UNSPIN_POLICY_PLACE_H
#define UNSPIN_POLICY_PLACE_H

#include "activity.h"

/* A vCPU as a place to run. */
struct place {
	/* What it does now, of enum activity_state. */
	u32 state;
	/* Tasks that wait for it. */
	u32 waiting;
	/* How long its run will probably last from now on. */
	u64 left_ns;
	/* The mean length of its off intervals. */
	u64 off_ns;
	/* How long it has taken to answer a wake-up, on average. */
	u64 wake_ns;
};

/* How long a task that is put there will probably wait until it runs. */
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

/* Whether the other place is so much better that it is worth to leave the caches. */
POLICY int place_is_better(u64 other_wait_ns, u64 wait_ns)
{
	return other_wait_ns + other_wait_ns / 2 < wait_ns;
}

/* A queue as others see it. */
struct place_queue {
	/* The virtual time of its first task, about. */
	u64 first_vtime;
	/* When its vCPU asked for a task last. */
	u64 served_ns;
	/* Its vCPU is to be used, and is not off. */
	u32 serves;
};

/* Whether a vCPU whose own first task has this virtual time takes from the other queue first. */
POLICY int place_takes(u64 own_vtime, const struct place_queue *other, u64 now_ns, u64 slice_ns)
{
	int is_served = other->serves && now_ns < other->served_ns + 2 * slice_ns;
	u64 ahead = own_vtime - other->first_vtime;

	return ahead < 1ULL << 63 && ahead > (is_served ? slice_ns : 0);
}

#endif /* UNSPIN_POLICY_PLACE_H */

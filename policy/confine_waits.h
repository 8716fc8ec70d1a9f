/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Decides how long the limit on vCPUs (confine.h) waits after trials.
 */
#ifndef UNSPIN_POLICY_CONFINE_WAITS_H
#define UNSPIN_POLICY_CONFINE_WAITS_H

#include "base.h"

/* The wait after the first trial that did not pay. It doubles with each further one, up to the
 * maximum. A trial of more costs some 30 ms; during the wait, vCPUs may be missing. */
#define CONFINE_FEWER_WAIT_NS 250000000ULL
#define CONFINE_FEWER_WAIT_MAX_NS 64000000000ULL
#define CONFINE_MORE_WAIT_NS 1000000000ULL
#define CONFINE_MORE_WAIT_MAX_NS 16000000000ULL
/* A wait is at least this many times as long as the trial took until the number before it was in
 * use again, because a change takes hundreds of milliseconds if rivals keep vCPUs off. So trials
 * of more get 2 % of the time, or 8 % if a limit gives much away to rivals. */
#define CONFINE_FEWER_WAIT_TRIALS 5
#define CONFINE_MORE_WAIT_TRIALS 50
/* If other VMs want the same pCPUs, one part in this many of the wait for more is enough. */
#define CONFINE_MORE_WAIT_RIVALS 4

/* The calm windows before a trial of more vCPUs. The number doubles each time that spins return,
 * and grows eightfold if the host gave more vCPUs no more time, up to the maximum. hackbench
 * pauses for 150 ms, and a collapse costs as much. So the trial is long, too; its first window
 * that spins ends it. */
#define CONFINE_CALM_WINDOWS 20
#define CONFINE_CALM_IN_VAIN 8
#define CONFINE_CALM_MAX_WINDOWS 800
#define CONFINE_CALM_TRIAL_WINDOWS 100

/* The same for calm windows that spend at least this percentage of at least this many ticks in user
 * mode: such work hardly reaches the kernel's locks, with any number of vCPUs. hackbench spends
 * its pauses in the kernel, and dbench nearly all its time. */
#define CONFINE_COMPUTES_WINDOWS 4
#define CONFINE_COMPUTES_PERCENT 90
#define CONFINE_COMPUTES_TICKS 10

POLICY u64 confine_longer(u64 wait_ns, u64 first_ns, u64 max_ns)
{
	if (!wait_ns)
		return first_ns;
	return wait_ns * 2 < max_ns ? wait_ns * 2 : max_ns;
}

/* Returns the last wait, or 0 if no trial has failed for four times as long: then it is
 * forgotten. */
POLICY u64 confine_recent(u64 wait_ns, u64 since_ns, u64 now_ns)
{
	return now_ns < since_ns + 4 * wait_ns ? wait_ns : 0;
}

POLICY u64 confine_longer_more(u64 wait_ns)
{
	return confine_longer(wait_ns, CONFINE_MORE_WAIT_NS, CONFINE_MORE_WAIT_MAX_NS);
}

/* Prolongs the wait after a failed trial to at least wanted_ns, which is capped at
 * CONFINE_MORE_WAIT_MAX_NS. */
POLICY void confine_wait(u64 *wait_ns, u64 *next_ns, u64 now_ns, u64 wanted_ns)
{
	if (wanted_ns > CONFINE_MORE_WAIT_MAX_NS)
		wanted_ns = CONFINE_MORE_WAIT_MAX_NS;
	if (*wait_ns < wanted_ns)
		*wait_ns = wanted_ns;
	if (*next_ns < now_ns + wanted_ns)
		*next_ns = now_ns + wanted_ns;
}

#endif /* UNSPIN_POLICY_CONFINE_WAITS_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How long the limit on vCPUs (confine.h) waits after trials.
 */
#ifndef UNSPIN_POLICY_CONFINE_WAITS_H
#define UNSPIN_POLICY_CONFINE_WAITS_H

#include "base.h"

/* How long to wait after the first trial that did not pay; twice as long after each further
 * one, up to a maximum. A trial of more costs some 30 ms; while it waits, vCPUs may be missed. */
#define CONFINE_FEWER_WAIT_NS 250000000ULL
#define CONFINE_FEWER_WAIT_MAX_NS 64000000000ULL
#define CONFINE_MORE_WAIT_NS 1000000000ULL
#define CONFINE_MORE_WAIT_MAX_NS 16000000000ULL
/* At least so many times as long as the trial took until the number before it was back: changes
 * take hundreds of milliseconds where rivals keep vCPUs off. Trials of more get 2 % of the time, 8 %
 * where a limit gives much away to rivals. */
#define CONFINE_FEWER_WAIT_TRIALS 5
#define CONFINE_MORE_WAIT_TRIALS 50
/* The part of a wait for more that is enough where other VMs want the same pCPUs. */
#define CONFINE_MORE_WAIT_RIVALS 4

/* Calm windows before more vCPUs are tried; twice as many each time that spins returned, eight times
 * where the host gave more vCPUs no more time, up to a maximum. hackbench pauses for 150 ms, and a
 * collapse costs as much. So the trial lasts long, too: its first window that spins ends it. */
#define CONFINE_CALM_WINDOWS 20
#define CONFINE_CALM_IN_VAIN 8
#define CONFINE_CALM_MAX_WINDOWS 800
#define CONFINE_CALM_TRIAL_WINDOWS 100

/* The same where so much of the time is spent in user mode, in percent, by so many ticks at least: such
 * work hardly comes to the kernel's locks, with any number of vCPUs. hackbench's pauses are spent
 * in the kernel, and so is nearly all the time of dbench. */
#define CONFINE_COMPUTES_WINDOWS 4
#define CONFINE_COMPUTES_PERCENT 90
#define CONFINE_COMPUTES_TICKS 10

POLICY u64 confine_longer(u64 wait_ns, u64 first_ns, u64 max_ns)
{
	if (!wait_ns)
		return first_ns;
	return wait_ns * 2 < max_ns ? wait_ns * 2 : max_ns;
}

/* Waits are forgotten where no trial failed for four times as long. */
POLICY u64 confine_recent(u64 wait_ns, u64 since_ns, u64 now_ns)
{
	return now_ns < since_ns + 4 * wait_ns ? wait_ns : 0;
}

POLICY u64 confine_longer_more(u64 wait_ns)
{
	return confine_longer(wait_ns, CONFINE_MORE_WAIT_NS, CONFINE_MORE_WAIT_MAX_NS);
}

/* A trial has failed: the next one comes after its wait, or after the one wanted if that is longer,
 * as far as it may be. */
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

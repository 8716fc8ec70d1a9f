/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The state of the limit on vCPUs (confine.h): its phase, and what it has measured.
 */
#ifndef UNSPIN_POLICY_CONFINE_STATE_H
#define UNSPIN_POLICY_CONFINE_STATE_H

#include "confine_sums.h"
#include "confine_waits.h"

enum confine_phase {
	CONFINE_SETTLED,
	/* A trial of fewer: fewer vCPUs are in use, then the number before, then fewer again. */
	CONFINE_FEWER,
	CONFINE_BEFORE,
	CONFINE_FEWER_AGAIN,
	/* A trial of more: more vCPUs are in use. */
	CONFINE_MORE,
};

/* The controller's state. One caller at a time writes it. Zeroed at first, except vcpus and use,
 * which are equal. */
struct confine {
	u32 vcpus;
	/* The number of vCPUs that tasks may use now. */
	u32 use;
	u32 phase;
	/* In a trial: the number in use before it, and the number that it tries. */
	u32 before;
	u32 tried;
	/* The number of vCPUs in use before the limit was lifted because there was little to do;
	 * 0: none is remembered. */
	u32 learnt;
	/* The most that was spun before a trial of fewer, in percent, since one was kept or the wait
	 * was forgotten. */
	u32 tried_spin;
	/* Of the last trial of fewer, in percent: how much of the time on the fewer kept
	 * (confine_left_percent), if that was seen; 0: unknown. */
	u32 left;
	/* Calm windows in a row under a limit, and how many are needed before a trial of more; 0:
	 * CONFINE_CALM_WINDOWS. */
	u32 calm;
	u32 calm_wanted;
	/* Whether the windows before the trial of more were calm. */
	u32 calm_trial;
	/* The last of the calm windows, as many as had nearly all ticks in user mode: their number,
	 * their ticks, and those in user mode. Then how many such windows are needed (0:
	 * CONFINE_COMPUTES_WINDOWS), and whether that many came before the trial. */
	u32 computing;
	u32 computing_ticks;
	u32 computing_user_ticks;
	u32 computes_wanted;
	u32 computes_trial;
	/* Whether the vCPUs in use were on for a whole window since the number last changed. */
	u32 whole;
	/* Whether the trial of fewer goes on with half of what it tried first. */
	u32 halved;
	/* Trials of more in a row that spinning ended although more was done. */
	u32 anyway;
	/* Sums since the number in use last changed. In the settled phase they fade. */
	struct confine_sums sums;
	/* Sums of a trial: with the number before it, and with fewer up to the moment when that
	 * number is in use again. */
	struct confine_sums without;
	struct confine_sums with;
	/* Since when there has been little to do, apart from short bursts; 0: there is much to
	 * do. */
	u64 quiet_ns;
	/* When more vCPUs were last kept; 0: not since fewer were kept. */
	u64 released_ns;
	/* The earliest time of the next trial of fewer and of more, each with the length of the
	 * last wait. */
	u64 fewer_ns;
	u64 fewer_wait_ns;
	u64 more_ns;
	u64 more_wait_ns;
	/* When the trial, or its half, began that is under way or has just failed; 0: no such trial, or
	 * a calm trial of more. */
	u64 began_ns;
	/* Trials of fewer and of more since the start, and how many of each were kept. */
	u64 trials_fewer;
	u64 kept_fewer;
	u64 trials_more;
	u64 kept_more;
};

POLICY u32 confine_calm_wanted(const struct confine *c)
{
	return c->calm_wanted ? c->calm_wanted : CONFINE_CALM_WINDOWS;
}

POLICY u32 confine_computes_wanted(const struct confine *c)
{
	return c->computes_wanted ? c->computes_wanted : CONFINE_COMPUTES_WINDOWS;
}

/* Whether the last calm windows were spent in user mode, for long enough. */
POLICY int confine_computes(const struct confine *c)
{
	return c->computing >= confine_computes_wanted(c) &&
	       c->computing_ticks >= CONFINE_COMPUTES_TICKS;
}

POLICY void confine_computes_no_more(struct confine *c)
{
	c->computing = c->computing_ticks = c->computing_user_ticks = 0;
}

/* A single vCPU is calm whatever it does, so the windows before it began to compute must not
 * count. */
POLICY void confine_count_calm(struct confine *c, const struct confine_facts *facts)
{
	if (!confine_is_calm(facts)) {
		c->calm = 0;
		confine_computes_no_more(c);
		return;
	}
	c->calm += confine_weight(facts);
	c->computing += confine_weight(facts);
	c->computing_ticks += facts->ticks;
	c->computing_user_ticks += facts->user_ticks;
	if ((u64)c->computing_user_ticks * 100 <
	    (u64)c->computing_ticks * CONFINE_COMPUTES_PERCENT)
		confine_computes_no_more(c);
}

/* Requires more calm windows after more vCPUs have spun again. `in_vain` is nonzero if the trial
 * followed calm windows and the host gave more vCPUs no more time. */
POLICY void confine_calm_longer(struct confine *c, int in_vain)
{
	u32 wanted = c->computes_trial ? confine_computes_wanted(c) : confine_calm_wanted(c);

	wanted *= in_vain ? CONFINE_CALM_IN_VAIN : 2;
	if (wanted > CONFINE_CALM_MAX_WINDOWS)
		wanted = CONFINE_CALM_MAX_WINDOWS;
	if (c->computes_trial)
		c->computes_wanted = wanted;
	else
		c->calm_wanted = wanted;
}

POLICY void confine_change(struct confine *c, u32 phase, u32 use)
{
	c->phase = phase;
	c->use = use;
	c->calm = 0;
	confine_computes_no_more(c);
	c->whole = 0;
	confine_forget(&c->sums);
}

/* Remembers the load before a trial of fewer. If several in a row fail, the largest spin share
 * counts, because loads may alternate. */
POLICY void confine_note_spin(struct confine *c, u32 share, u64 now_ns)
{
	if (share > c->tried_spin || !confine_recent(c->fewer_wait_ns, c->fewer_ns, now_ns))
		c->tried_spin = share;
}

/* Returns whether the load spins so much more than when fewer did not pay that it must be
 * another. */
POLICY int confine_spins_anew(const struct confine *c, u32 share)
{
	return share > 2 * c->tried_spin || (100 - share) * 2 < 100 - c->tried_spin;
}

#endif /* UNSPIN_POLICY_CONFINE_STATE_H */

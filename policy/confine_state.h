/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the limit on vCPUs (confine.h) is about to do, and what it has seen.
 */
#ifndef UNSPIN_POLICY_CONFINE_STATE_H
#define UNSPIN_POLICY_CONFINE_STATE_H

#include "confine_sums.h"
#include "confine_waits.h"

enum confine_phase {
	CONFINE_SETTLED,
	/* Fewer are in use; the number before is; fewer are again. */
	CONFINE_FEWER,
	CONFINE_BEFORE,
	CONFINE_FEWER_AGAIN,
	/* More are in use. */
	CONFINE_MORE,
};

/* One caller at a time writes it. Zeroed at first, except vcpus and use, which are equal. */
struct confine {
	u32 vcpus;
	/* That tasks may use now. */
	u32 use;
	u32 phase;
	/* In a trial: the number before it, and the one that is tried. */
	u32 before;
	u32 tried;
	/* What was in use before the limit went because there was little to do; 0: nothing. */
	u32 learnt;
	/* The most that was spun before a trial of fewer, in percent, since one was kept or the wait
	 * was forgotten. */
	u32 tried_spin;
	/* Of the last trial of fewer, in percent: how much of the time on the fewer kept
	 * (confine_left_percent), if that was seen; 0: unknown. */
	u32 left;
	/* Calm windows with a limit until now, and how many are needed; 0: as many as at first. */
	u32 calm;
	u32 calm_wanted;
	/* Whether the windows before the trial of more were calm. */
	u32 calm_trial;
	/* The ticks of calm windows, and those in user mode; how many such windows are needed where
	 * these are nearly all, 0: as many as at first; and whether that was so before the trial. */
	u32 calm_ticks;
	u32 calm_user_ticks;
	u32 computes_wanted;
	u32 computes_trial;
	/* Whether the vCPUs in use were on for a whole window since the last change of use. */
	u32 whole;
	/* Trials of more in a row that spins ended though more was done. */
	u32 anyway;
	/* Since the last change of use; a settled number's forget old windows. */
	struct confine_sums sums;
	/* Of a trial: with the number before it, and with fewer until that is in use again. */
	struct confine_sums without;
	struct confine_sums with;
	/* Since when there has been little to do but short bursts; 0: there is much. */
	u64 quiet_ns;
	/* When more were kept last; 0: not since fewer were. */
	u64 released_ns;
	/* Not before this may fewer and more be tried, and how long the last wait was. */
	u64 fewer_ns;
	u64 fewer_wait_ns;
	u64 more_ns;
	u64 more_wait_ns;
	/* When a trial began that is under way or has just failed; 0: none, or a calm one of more. */
	u64 began_ns;
	/* Counts since the start: trials to fewer and to more, and those that were kept. */
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

/* Whether the calm windows were spent in user mode, and that for long enough. */
POLICY int confine_computes(const struct confine *c)
{
	return c->calm >= confine_computes_wanted(c) && c->calm_ticks >= CONFINE_COMPUTES_TICKS &&
	       (u64)c->calm_user_ticks * 100 >= (u64)c->calm_ticks * CONFINE_COMPUTES_PERCENT;
}

POLICY void confine_count_calm(struct confine *c, const struct confine_facts *facts)
{
	if (!confine_is_calm(facts)) {
		c->calm = c->calm_ticks = c->calm_user_ticks = 0;
		return;
	}
	c->calm++;
	c->calm_ticks += facts->ticks;
	c->calm_user_ticks += facts->user_ticks;
}

/* More vCPUs have spun again; in vain: after calm windows, and the host gave them no more time. */
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
	c->calm = c->calm_ticks = c->calm_user_ticks = 0;
	c->whole = 0;
	confine_forget(&c->sums);
}

#endif /* UNSPIN_POLICY_CONFINE_STATE_H */

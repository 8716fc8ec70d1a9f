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
	/* Of the last trial of fewer, in percent: the spin share before it, and how much of the time
	 * on the fewer kept (confine_left_percent), if that was seen; 0: unknown. */
	u32 tried_spin;
	u32 left;
	/* Calm windows with a limit until now, and how many are needed; 0: as many as at first. */
	u32 calm;
	u32 calm_wanted;
	/* Whether the windows before the trial of more were calm. */
	u32 calm_trial;
	/* Whether the vCPUs in use were on for a whole window since the last change of use. */
	u32 whole;
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

/* More vCPUs have spun again; in vain: after calm windows, and the host gave them no more time. */
POLICY void confine_calm_longer(struct confine *c, int in_vain)
{
	u32 wanted = confine_calm_wanted(c) * (in_vain ? CONFINE_CALM_IN_VAIN : 2);

	c->calm_wanted = wanted < CONFINE_CALM_MAX_WINDOWS ? wanted : CONFINE_CALM_MAX_WINDOWS;
}

POLICY void confine_change(struct confine *c, u32 phase, u32 use)
{
	c->phase = phase;
	c->use = use;
	c->calm = 0;
	c->whole = 0;
	confine_forget(&c->sums);
}

#endif /* UNSPIN_POLICY_CONFINE_STATE_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How many vCPUs the kernel's own scheduler may use for tasks, where the number is changed from
 * user space (cpuset).
 *
 * No spin, no trial: fewer vCPUs are tried only where the vCPUs are seen to spin for much of
 * the time that they want to run. The number to try is what the host gives time for, by the time
 * on, and half where that says nothing: where no vCPU seems off, or where spins with interrupts
 * disabled hold ticks back, so that time off passes for time on. A trial compares useful time,
 * which is time on less the share of it that was spun, with that of the windows before it. A clear
 * result ends the trial; an unclear one makes it longer. If a gain stays unclear, both numbers are
 * tried once more and compared over all their windows.
 *
 * More vCPUs are tried rarely and for short, and given up in the first window that spins again. Where
 * nothing is contended any more, all are tried at once, and twice as many if that fails.
 */
#ifndef UNSPIN_POLICY_CONFINE_H
#define UNSPIN_POLICY_CONFINE_H

#include "confine_sums.h"

/* A window: two or three ticks of 250 Hz a vCPU, by which off intervals are seen. */
#define CONFINE_WINDOW_NS 10000000ULL
/* Spin share of the wanted time, in percent, from which fewer vCPUs are tried. Without that
 * spinning there would be a quarter more useful time. A trial costs some 100 ms, and below this
 * share it does not pay. */
#define CONFINE_SPIN_PERCENT 20
/* The same where no overcommit is seen: intervals too short for ticks pass for time on. */
#define CONFINE_SPIN_ANYWAY_PERCENT 40
/* vCPUs are overcommitted where so much of the wanted time is off, in percent. */
#define CONFINE_OFF_PERCENT 10
/* The least number of windows that the share is a mean of, because spins come in bursts. With fewer
 * in use already, bursts remain: the host may put two vCPUs on one pCPU for some slices. */
#define CONFINE_SPIN_WINDOWS 2
#define CONFINE_SPIN_AGAIN_WINDOWS 6
/* Windows of each part of a trial, without those after a change. Three are 30 ms, several slices
 * of the host's. */
#define CONFINE_PART_WINDOWS 3
/* How long the part with fewer lasts where it neither gains nor loses clearly: what was off before
 * the change can still count in its first windows. */
#define CONFINE_UNCLEAR_WINDOWS 6
/* What fewer must gain, in percent: less is noise of three windows. */
#define CONFINE_GAIN_PERCENT 10
/* A gain, and a loss, that no second comparison is needed for, in percent. */
#define CONFINE_CLEAR_GAIN_PERCENT 50
#define CONFINE_CLEAR_LOSS_PERCENT 40
/* More vCPUs are kept where nothing spins and no more than this is lost, in percent: limits
 * that pay no longer go. */
#define CONFINE_MORE_LOSS_PERCENT 5
/* There is little to do where less than this share of the vCPUs in use is wanted, in percent:
 * such windows say nothing. After so long the limit goes; its number is kept. */
#define CONFINE_QUIET_PERCENT 50
#define CONFINE_QUIET_NS 1000000000ULL
/* How long to wait after the first trial that did not pay; twice as long after each further
 * one, up to a maximum. A trial of more costs some 30 ms; while it waits, vCPUs may be missed. */
#define CONFINE_FEWER_WAIT_NS 250000000ULL
#define CONFINE_FEWER_WAIT_MAX_NS 64000000000ULL
#define CONFINE_MORE_WAIT_NS 1000000000ULL
#define CONFINE_MORE_WAIT_MAX_NS 16000000000ULL
/* And so many times as long as the trial took until the limit was back: 2 % of the time. */
#define CONFINE_MORE_WAIT_TRIALS 50

/* Calm windows before more vCPUs are tried; twice as many each time that spins returned, up to a
 * maximum. hackbench pauses for 150 ms, and a collapse costs as much. So the trial lasts long, too:
 * its first window that spins ends it. */
#define CONFINE_CALM_WINDOWS 20
#define CONFINE_CALM_MAX_WINDOWS 800
#define CONFINE_CALM_TRIAL_WINDOWS 100

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
	/* The spin share, in percent, when fewer were tried last. */
	u32 tried_spin;
	/* Calm windows with a limit until now, and how many are needed; 0: as many as at first. */
	u32 calm;
	u32 calm_wanted;
	/* Whether the windows before the trial of more were calm. */
	u32 calm_trial;
	/* Since the last change of use; a settled number's forget old windows. */
	struct confine_sums sums;
	/* Of a trial: with the number before it, and with fewer. */
	struct confine_sums without;
	struct confine_sums with;
	/* Since when there has been little to do; 0: there is much. */
	u64 quiet_ns;
	/* When more were kept last; 0: not since fewer were. */
	u64 released_ns;
	/* Not before this may fewer and more be tried, and how long the last wait was. */
	u64 fewer_ns;
	u64 fewer_wait_ns;
	u64 more_ns;
	u64 more_wait_ns;
	/* When a trial of more began that is under way or has just failed; 0: none. */
	u64 more_began_ns;
	/* Counts since the start: trials to fewer and to more, and those that were kept. */
	u64 trials_fewer;
	u64 kept_fewer;
	u64 trials_more;
	u64 kept_more;
};

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

POLICY u32 confine_calm_wanted(const struct confine *c)
{
	return c->calm_wanted ? c->calm_wanted : CONFINE_CALM_WINDOWS;
}

POLICY void confine_calm_longer(struct confine *c)
{
	u32 wanted = confine_calm_wanted(c) * 2;

	c->calm_wanted = wanted < CONFINE_CALM_MAX_WINDOWS ? wanted : CONFINE_CALM_MAX_WINDOWS;
}

POLICY void confine_change(struct confine *c, u32 phase, u32 use)
{
	c->phase = phase;
	c->use = use;
	c->calm = 0;
	confine_forget(&c->sums);
}

/* Fewer vCPUs paid. The wait before more are tried grows only where more were kept and spun. */
POLICY void confine_keep_fewer(struct confine *c, u64 now_ns)
{
	u64 wait_ns = c->released_ns ? c->more_wait_ns : 0;

	c->kept_fewer++;
	c->fewer_wait_ns = 0;
	c->more_wait_ns = confine_longer_more(confine_recent(wait_ns, c->released_ns, now_ns));
	c->more_ns = now_ns + c->more_wait_ns;
	c->released_ns = 0;
	confine_change(c, CONFINE_SETTLED, c->tried);
}

POLICY void confine_give_up_fewer(struct confine *c, u64 now_ns)
{
	u64 wait_ns = confine_recent(c->fewer_wait_ns, c->fewer_ns, now_ns);

	c->fewer_wait_ns =
		confine_longer(wait_ns, CONFINE_FEWER_WAIT_NS, CONFINE_FEWER_WAIT_MAX_NS);
	c->fewer_ns = now_ns + c->fewer_wait_ns;
	confine_change(c, CONFINE_SETTLED, c->before);
}

/* The part of the trial with fewer vCPUs, or its repetition, has lasted for another window. */
POLICY void confine_try_fewer(struct confine *c, u64 now_ns)
{
	int again = c->phase == CONFINE_FEWER_AGAIN;

	c->with = c->sums;
	if (c->sums.windows >= 2 &&
	    confine_loses(&c->with, &c->without, CONFINE_CLEAR_LOSS_PERCENT)) {
		confine_give_up_fewer(c, now_ns);
		return;
	}
	if (c->sums.windows < CONFINE_PART_WINDOWS)
		return;
	if (confine_gains(&c->with, &c->without,
			  again ? CONFINE_GAIN_PERCENT : CONFINE_CLEAR_GAIN_PERCENT))
		confine_keep_fewer(c, now_ns);
	else if (c->sums.windows < CONFINE_UNCLEAR_WINDOWS)
		return;
	else if (!confine_gains(&c->with, &c->without, CONFINE_GAIN_PERCENT))
		confine_give_up_fewer(c, now_ns);
	else
		confine_change(c, CONFINE_BEFORE, c->before);
}

/* The number before is in use for comparison. */
POLICY void confine_try_before(struct confine *c)
{
	if (c->sums.windows < CONFINE_PART_WINDOWS)
		return;
	confine_join(&c->without, &c->sums);
	confine_change(c, CONFINE_FEWER_AGAIN, c->tried);
}

POLICY void confine_give_up_more(struct confine *c, u64 now_ns)
{
	c->more_wait_ns = confine_longer_more(c->more_wait_ns);
	c->more_ns = now_ns + c->more_wait_ns;
	confine_calm_longer(c);
	confine_change(c, CONFINE_SETTLED, c->before);
}

POLICY void confine_keep_more(struct confine *c, u64 now_ns)
{
	c->kept_more++;
	c->more_began_ns = 0;
	if (c->calm_trial)
		c->calm_wanted = 0;
	c->released_ns = now_ns;
	c->more_ns = now_ns + c->more_wait_ns;
	confine_change(c, CONFINE_SETTLED, c->tried);
}

POLICY void confine_try_more(struct confine *c, const struct confine_facts *facts, u64 now_ns)
{
	if (c->sums.windows && confine_spins_more(&c->without, facts)) {
		confine_give_up_more(c, now_ns);
		return;
	}
	if (c->sums.windows < (c->calm_trial ? CONFINE_CALM_TRIAL_WINDOWS : CONFINE_PART_WINDOWS))
		return;
	/* Fewer pay only by avoiding spins, and there are none now. */
	if (!c->calm_trial &&
	    confine_loses(&c->sums, &c->without, CONFINE_MORE_LOSS_PERCENT)) {
		confine_give_up_more(c, now_ns);
		return;
	}
	confine_keep_more(c, now_ns);
}

/* The first window after a trial of more that failed: the limit is back. */
POLICY void confine_more_failed(struct confine *c, u64 now_ns)
{
	u64 wait_ns = (now_ns - c->more_began_ns) * CONFINE_MORE_WAIT_TRIALS;

	if (wait_ns > CONFINE_MORE_WAIT_MAX_NS)
		wait_ns = CONFINE_MORE_WAIT_MAX_NS;
	if (wait_ns > c->more_wait_ns)
		c->more_wait_ns = wait_ns;
	if (c->more_ns < now_ns + wait_ns)
		c->more_ns = now_ns + wait_ns;
	c->more_began_ns = 0;
}

/* As many as the host gives time for, from half to one less of those in use. */
POLICY u32 confine_fewer(const struct confine *c)
{
	u32 on = (u32)((confine_mean(&c->sums, c->sums.on_m) + 500) / 1000);

	if (c->learnt && c->learnt < c->use)
		return c->learnt;
	return on > c->use / 2 && on < c->use && !confine_is_blind(&c->sums) ? on : c->use / 2;
}

/* Whether the load spins so much more than when fewer did not pay that it must be another. */
POLICY int confine_spins_anew(const struct confine *c, u32 share)
{
	return share > 2 * c->tried_spin || (100 - share) * 2 < 100 - c->tried_spin;
}

POLICY void confine_begin(struct confine *c, u32 phase, u32 tried)
{
	c->without = c->sums;
	c->before = c->use;
	c->tried = tried;
	confine_change(c, phase, tried);
}

/* Whether the last windows speak for fewer vCPUs, and the very last does, too. */
POLICY int confine_wasteful(const struct confine *c, const struct confine_facts *facts)
{
	u64 wanted_m = (u64)facts->on_m + facts->off_m;
	u64 off_m = c->sums.wanted_m - c->sums.on_m;
	int over = off_m * 100 > c->sums.wanted_m * CONFINE_OFF_PERCENT, first = c->use == c->vcpus;
	u32 percent = over && first ? CONFINE_SPIN_PERCENT : CONFINE_SPIN_ANYWAY_PERCENT;
	u32 windows = first ? CONFINE_SPIN_WINDOWS : CONFINE_SPIN_AGAIN_WINDOWS;

	return c->sums.windows >= windows &&
	       confine_spin_percent(&c->sums) >= percent &&
	       (u64)facts->spin_m * 100 >= wanted_m * percent;
}

POLICY void confine_settled(struct confine *c, const struct confine_facts *facts, u64 now_ns)
{
	u32 share = confine_spin_percent(&c->sums), twice;

	if (c->use > 1 && confine_wasteful(c, facts)) {
		if (now_ns < c->fewer_ns && confine_spins_anew(c, share))
			c->fewer_wait_ns = c->fewer_ns = 0;
		if (now_ns >= c->fewer_ns) {
			c->tried_spin = share;
			c->trials_fewer++;
			confine_begin(c, CONFINE_FEWER, confine_fewer(c));
			c->learnt = 0;
			return;
		}
	}
	if (c->use == c->vcpus)
		return;
	c->calm = confine_is_calm(facts) ? c->calm + 1 : 0;
	if (c->sums.windows < CONFINE_PART_WINDOWS)
		return;
	if (c->calm < confine_calm_wanted(c) && now_ns < c->more_ns)
		return;
	c->trials_more++;
	c->calm_trial = c->calm > 0;
	c->more_began_ns = c->calm_trial ? 0 : now_ns;
	c->learnt = c->calm_trial ? c->use : 0;
	twice = c->use * 2 < c->vcpus ? c->use * 2 : c->vcpus;
	confine_begin(c, CONFINE_MORE, c->calm_trial && !c->calm_wanted ? c->vcpus : twice);
}

/*
 * There is little to do: windows of a trial show nothing any more, and a limit soon stops paying. A
 * trial of fewer that leads here is kept. So is one of more, and the number before is remembered.
 */
POLICY void confine_quiet(struct confine *c, u64 now_ns)
{
	if (!c->quiet_ns)
		c->quiet_ns = now_ns;
	switch (c->phase) {
	case CONFINE_FEWER:
	case CONFINE_FEWER_AGAIN:
		confine_keep_fewer(c, now_ns);
		break;
	case CONFINE_BEFORE:
		confine_give_up_fewer(c, now_ns);
		break;
	case CONFINE_MORE:
		c->learnt = c->before;
		confine_keep_more(c, now_ns);
		break;
	}
	confine_forget(&c->sums);
	c->sums.skipped = CONFINE_SKIP_WINDOWS;
	if (c->use == c->vcpus || now_ns - c->quiet_ns < CONFINE_QUIET_NS)
		return;
	c->learnt = c->use;
	confine_change(c, CONFINE_SETTLED, c->vcpus);
}

/* A spin ended the controller's rest: the sums from before it are of another time. */
POLICY void confine_wake(struct confine *c)
{
	if (c->phase != CONFINE_SETTLED)
		return;
	confine_forget(&c->sums);
	c->sums.skipped = CONFINE_SKIP_WINDOWS;
}

/*
 * A window has passed. Returns how many vCPUs tasks may use from now on, from 1 to vcpus.
 */
POLICY u32 confine_step(struct confine *c, const struct confine_facts *facts, u64 now_ns)
{
	if (c->more_began_ns && c->phase == CONFINE_SETTLED)
		confine_more_failed(c, now_ns);
	if (((u64)facts->on_m + facts->off_m) * 100 < (u64)c->use * 1000 * CONFINE_QUIET_PERCENT) {
		confine_quiet(c, now_ns);
		return c->use;
	}
	c->quiet_ns = 0;
	confine_add(&c->sums, facts, c->phase == CONFINE_SETTLED);
	switch (c->phase) {
	case CONFINE_SETTLED:
		confine_settled(c, facts, now_ns);
		break;
	case CONFINE_BEFORE:
		confine_try_before(c);
		break;
	case CONFINE_MORE:
		confine_try_more(c, facts, now_ns);
		break;
	default:
		confine_try_fewer(c, now_ns);
	}
	return c->use;
}

#endif /* UNSPIN_POLICY_CONFINE_H */

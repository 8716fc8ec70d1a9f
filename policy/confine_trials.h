/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Judges the trials of fewer and of more vCPUs, and ends them (confine.h).
 */
#ifndef UNSPIN_POLICY_CONFINE_TRIALS_H
#define UNSPIN_POLICY_CONFINE_TRIALS_H

#include "confine_spin.h"
#include "confine_state.h"
#include "confine_sums.h"
#include "confine_waits.h"

/* The windows in each part of a trial, not counting those right after a change. Three are 30 ms,
 * several of the host's time slices. */
#define CONFINE_PART_WINDOWS 3
/* The windows in the part with fewer vCPUs if they neither gain nor lose clearly: its first
 * windows may still count time off from before the change. */
#define CONFINE_UNCLEAR_WINDOWS 6
/* A gain of this percentage needs no second comparison. */
#define CONFINE_CLEAR_GAIN_PERCENT 50
/* If the vCPUs spun less than this percentage before the trial, no gain is clear: the spinning
 * may have been a burst. The exception is fewer vCPUs that keep this percentage of the time on:
 * they give little away even then, so a smaller gain is enough. */
#define CONFINE_CLEAR_SPIN_PERCENT 50
#define CONFINE_CLEAR_LEFT_PERCENT 80
#define CONFINE_CLEAR_GAIN_LEFT_PERCENT 25
/* If the vCPUs under a limit are off for this percentage of the time in which they want to run,
 * they have rivals on the host, or are still too many. */
#define CONFINE_RIVALS_PERCENT 25
/* If the vCPUs spin for more than this percentage of the wanted time, more of them have brought
 * spinning back. If rivals get what a limit gives away, some spinning may be worth it. */
#define CONFINE_RETURNED_PERCENT 10
#define CONFINE_RETURNED_RIVALS_PERCENT 50
/* More vCPUs are kept if nothing spins and they lose no more than this percentage, so that a
 * limit that no longer pays is lifted. */
#define CONFINE_MORE_LOSS_PERCENT 5

/* After this many trials of more in a row that spinning ended although more was done, the next
 * such trial goes on. */
#define CONFINE_ANYWAY_TRIALS 3

/* Keeps fewer vCPUs after a trial that paid. The wait before a trial of more grows only if more
 * were kept before, and spun. */
POLICY void confine_keep_fewer(struct confine *c, u64 now_ns)
{
	u64 wait_ns = c->released_ns ? c->more_wait_ns : 0;

	c->kept_fewer++;
	c->began_ns = 0;
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
	/* If a limit is in force: rivals have come, and fewer vCPUs do not help. Try more. */
	if (confine_off_percent(&c->without) >= CONFINE_RIVALS_PERCENT)
		c->more_ns = now_ns;
	confine_change(c, CONFINE_SETTLED, c->before);
}

/* Ends a trial that shows no gain. If its vCPUs spin for most of the time, too, and the host gives
 * time for few vCPUs, they are still too many, and it goes on with half of them. Otherwise the
 * vCPUs may have shared a pCPU, and the next trial uses others. The windows before the trial are
 * then so old that the load may have changed, so no gain is clear. */
POLICY void confine_end_fewer(struct confine *c, const struct confine_sums *with, u64 now_ns)
{
	int few = confine_off_percent(&c->without) >= CONFINE_CONTESTED_PERCENT;

	if (c->tried < 2 || !few || !confine_is_blind(with)) {
		confine_give_up_fewer(c, now_ns);
		return;
	}
	c->tried /= 2;
	c->halved = 1;
	c->began_ns = now_ns;
	confine_change(c, CONFINE_FEWER, c->tried);
}

/* Whether a gain at the first comparison is enough. */
POLICY int confine_is_clear(const struct confine *c)
{
	return !c->halved && (c->left >= CONFINE_CLEAR_LEFT_PERCENT ||
			      confine_spin_percent(&c->without) >= CONFINE_CLEAR_SPIN_PERCENT);
}

/* Judges the part of the trial with fewer vCPUs, or its repetition, after another window. */
POLICY void confine_try_fewer(struct confine *c, u64 now_ns)
{
	int again = c->phase == CONFINE_FEWER_AGAIN;
	struct confine_sums with = c->sums;
	u32 percent;
	int gains;

	if (again)
		confine_join(&with, &c->with);
	if (!c->sums.windows)
		return;
	c->left = confine_is_blind(&c->without) ? 0 : confine_left_percent(&with, &c->without);
	if (c->sums.windows >= 2 && confine_fails(&with, &c->without)) {
		confine_end_fewer(c, &with, now_ns);
		return;
	}
	if (again)
		percent = CONFINE_GAIN_PERCENT;
	else if (c->left >= CONFINE_CLEAR_LEFT_PERCENT)
		percent = CONFINE_CLEAR_GAIN_LEFT_PERCENT;
	else
		percent = CONFINE_CLEAR_GAIN_PERCENT;
	gains = confine_gains(&with, &c->without, percent);
	if (c->sums.windows < (gains ? CONFINE_PART_WINDOWS : CONFINE_UNCLEAR_WINDOWS))
		return;
	if (gains && (again || confine_is_clear(c))) {
		confine_keep_fewer(c, now_ns);
	} else if (again || !confine_gains(&with, &c->without, CONFINE_GAIN_PERCENT)) {
		confine_end_fewer(c, &with, now_ns);
	} else {
		c->with = with;
		confine_change(c, CONFINE_BEFORE, c->before);
	}
}

/* Continues the part of the trial that has the number before in use, for comparison. */
POLICY void confine_try_before(struct confine *c)
{
	if (c->sums.windows < CONFINE_PART_WINDOWS)
		return;
	confine_join(&c->without, &c->sums);
	confine_change(c, CONFINE_FEWER_AGAIN, c->tried);
}

POLICY void confine_give_up_more(struct confine *c, u64 now_ns)
{
	/* The vCPUs in use had no rivals, and more vCPUs got no more time. */
	int in_vain = c->calm_trial && confine_off_percent(&c->without) < CONFINE_OFF_PERCENT &&
		      confine_least_on_m(&c->sums) <= confine_mean(&c->without, c->without.on_m);

	c->more_wait_ns = confine_longer_more(c->more_wait_ns);
	c->more_ns = now_ns + c->more_wait_ns;
	confine_calm_longer(c, in_vain);
	confine_change(c, CONFINE_SETTLED, c->before);
}

POLICY void confine_keep_more(struct confine *c, u64 now_ns)
{
	c->kept_more++;
	c->began_ns = 0;
	c->anyway = 0;
	if (c->computes_trial)
		c->computes_wanted = 0;
	else if (c->calm_trial)
		c->calm_wanted = 0;
	c->released_ns = now_ns;
	c->more_ns = now_ns + c->more_wait_ns;
	confine_change(c, CONFINE_SETTLED, c->tried);
}

/* Whether a trial of more goes on although it spins. One window that did more proves little, and
 * in a collapse every window counts. So the answer is yes only after several trials in a row that
 * all ended with such a window. */
POLICY int confine_goes_on(struct confine *c, const struct confine_facts *facts)
{
	if (!confine_gains_anyway(&c->without, facts))
		c->anyway = 0;
	else if (c->anyway < CONFINE_ANYWAY_TRIALS)
		c->anyway++;
	else
		return 1;
	return 0;
}

POLICY void confine_try_more(struct confine *c, const struct confine_facts *facts, u64 now_ns)
{
	int rivals = confine_off_percent(&c->without) >= CONFINE_RIVALS_PERCENT;
	u32 percent = rivals ? CONFINE_RETURNED_RIVALS_PERCENT : CONFINE_RETURNED_PERCENT;

	if (c->sums.windows && confine_spins_more(&c->without, facts, percent) &&
	    !confine_goes_on(c, facts)) {
		confine_give_up_more(c, now_ns);
		return;
	}
	if (c->sums.windows < CONFINE_PART_WINDOWS ||
	    (c->calm_trial && c->sums.weight < CONFINE_CALM_TRIAL_WINDOWS))
		return;
	/* Without rivals, fewer vCPUs pay only because they avoid spinning, and there is none
	 * now. */
	if ((rivals || !c->calm_trial) &&
	    confine_loses(&c->sums, &c->without, CONFINE_MORE_LOSS_PERCENT)) {
		confine_give_up_more(c, now_ns);
		return;
	}
	confine_keep_more(c, now_ns);
}

/* Sets the waits in the first window after a failed trial, when the number before it is in use
 * again. */
POLICY void confine_failed(struct confine *c, u64 now_ns)
{
	u64 took_ns = now_ns - c->began_ns;

	c->began_ns = 0;
	if (c->tried > c->before)
		confine_wait(&c->more_wait_ns, &c->more_ns, now_ns,
			     took_ns * CONFINE_MORE_WAIT_TRIALS);
	else
		confine_wait(&c->fewer_wait_ns, &c->fewer_ns, now_ns,
			     took_ns * CONFINE_FEWER_WAIT_TRIALS);
}

#endif /* UNSPIN_POLICY_CONFINE_TRIALS_H */

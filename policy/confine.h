/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Decides how many vCPUs the kernel's own scheduler may use for tasks, if user space changes that
 * number (cpuset).
 *
 * No spin, no trial: the controller tries fewer vCPUs only if the vCPUs spin for much of the time
 * in which they want to run. If the host surely gives time for more than half of them, judged by
 * the time on, the controller tries that number. Otherwise it tries half, or fewer if the host
 * gives time for only a few. It also tries half if the time on proves nothing: no vCPU seems off,
 * or spins with interrupts disabled hold back ticks, so that time off passes for time on. A trial
 * compares useful time with that of the windows before it. Useful time is the time on, less
 * spinning and context switches. A clear result ends the trial; an unclear one prolongs it. If a
 * gain stays unclear, the controller tries both numbers once more and compares them over all
 * their windows. If fewer vCPUs spin for nearly all of the time, too, the trial goes on with half
 * of them.
 *
 * The controller tries more vCPUs rarely and briefly, and gives them up in the first window that
 * spins again. It tries sooner if other VMs want the same pCPUs. Once nothing is contended any
 * more, it tries all vCPUs at once; if that has failed before, twice as many.
 */
#ifndef UNSPIN_POLICY_CONFINE_H
#define UNSPIN_POLICY_CONFINE_H

#include "confine_spin.h"
#include "confine_state.h"
#include "confine_sums.h"
#include "confine_trials.h"
#include "confine_waits.h"

/* The length of a window: two or three ticks of 250 Hz on each vCPU, which reveal off
 * intervals. */
#define CONFINE_WINDOW_NS 10000000ULL
/* A time on that is at most this far below a whole number of vCPUs counts as that number, in
 * thousandths. */
#define CONFINE_LEAST_M 100
/* A window is quiet if the tasks want less than this percentage of the vCPUs in use; quiet
 * windows prove nothing. After CONFINE_QUIET_NS the limit is lifted, even if bursts came that
 * were shorter than a part of a trial. Its number is kept. */
#define CONFINE_QUIET_PERCENT 50
#define CONFINE_QUIET_NS 1000000000ULL

/* A limit counts as lasting if the next trial of more vCPUs is at least this far away. */
#define CONFINE_LASTS_NS 400000000ULL

/* Returns how many vCPUs to try. If more than half are surely on at a time, that number;
 * otherwise half, or one more than are on if that is less, because any others would only be
 * off. */
POLICY u32 confine_fewer(const struct confine *c)
{
	u32 half = c->use / 2, on_m = (u32)confine_mean(&c->sums, c->sums.on_m);
	u32 on = (confine_least_on_m(&c->sums) + 500) / 1000;
	u32 least = (on_m + CONFINE_LEAST_M) / 1000 + 1;

	if (c->learnt && c->learnt < c->use)
		return c->learnt;
	if (on >= c->use || confine_is_blind(&c->sums))
		return half;
	if (on > half)
		return on;
	return least < half ? least : half;
}

POLICY void confine_begin(struct confine *c, u32 phase, u32 tried, u64 began_ns)
{
	c->began_ns = began_ns;
	c->quiet_ns = 0;
	c->without = c->sums;
	c->before = c->use;
	c->tried = tried;
	c->halved = 0;
	confine_change(c, phase, tried);
}

/* Returns when to try more vCPUs although spinning goes on. If rivals get what the limit gives
 * away, that is too much in case the spins were only a burst. Then the first trial comes sooner,
 * and so do later ones if the trial of fewer has shown such a loss. If the limit gives hardly
 * anything away, the first trial comes later. */
POLICY u64 confine_more_at(const struct confine *c)
{
	int first = c->more_wait_ns == CONFINE_MORE_WAIT_NS;
	int clear = c->left >= CONFINE_CLEAR_LEFT_PERCENT;
	u64 less_ns = c->more_wait_ns - c->more_wait_ns / CONFINE_MORE_WAIT_RIVALS;

	if (confine_off_percent(&c->sums) >= CONFINE_RIVALS_PERCENT && (first || (c->left && !clear)))
		return c->more_ns > less_ns ? c->more_ns - less_ns : 0;
	return first && clear ? c->more_ns + CONFINE_MORE_WAIT_NS : c->more_ns;
}

POLICY void confine_settled(struct confine *c, const struct confine_facts *facts, u64 now_ns)
{
	u32 share = confine_spin_percent(&c->sums), twice;
	int computes, failed;

	if (c->use > 1 && confine_wasteful(&c->sums, facts, c->use == c->vcpus, c->left)) {
		if (now_ns < c->fewer_ns && c->sums.windows >= CONFINE_SPIN_AGAIN_WINDOWS &&
		    confine_spins_anew(c, share))
			c->fewer_wait_ns = c->fewer_ns = 0;
		if (now_ns >= c->fewer_ns && !confine_switches_much(&c->sums)) {
			confine_note_spin(c, share, now_ns);
			c->trials_fewer++;
			confine_begin(c, CONFINE_FEWER, confine_fewer(c), now_ns);
			c->learnt = 0;
			return;
		}
	}
	if (c->use == c->vcpus)
		return;
	if (confine_switches_much(&c->sums) && c->sums.windows >= CONFINE_PART_WINDOWS) {
		c->before = c->vcpus;
		confine_give_up_fewer(c, now_ns);
		return;
	}
	confine_count_calm(c, facts);
	computes = confine_computes(c);
	if (c->sums.windows < CONFINE_PART_WINDOWS)
		return;
	if (!computes && c->calm < confine_calm_wanted(c) && now_ns < confine_more_at(c))
		return;
	c->trials_more++;
	c->calm_trial = c->calm > 0;
	c->computes_trial = computes;
	failed = (computes ? c->computes_wanted : c->calm_wanted) != 0;
	c->learnt = c->calm_trial ? c->use : 0;
	twice = c->use * 2 < c->vcpus ? c->use * 2 : c->vcpus;
	confine_begin(c, CONFINE_MORE, c->calm_trial && !failed ? c->vcpus : twice,
		      c->calm_trial ? 0 : now_ns);
}

/*
 * Handles a quiet window. Windows of a trial prove nothing any more, and a limit soon stops
 * paying. A trial of fewer that leads to a quiet window is kept. So is a trial of more, and the
 * number before it is remembered.
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

/* Restarts the controller after a spin has ended its rest: the sums from before the rest are out
 * of date. */
POLICY void confine_wake(struct confine *c)
{
	if (c->phase != CONFINE_SETTLED)
		return;
	confine_forget(&c->sums);
	c->sums.skipped = CONFINE_SKIP_WINDOWS;
}

/* Whether to isolate the vCPUs that a limit leaves out, so that nothing wakes them; awake,
 * they would take pCPUs from those in use. Isolation takes another 30 ms, and up to a second
 * beside rivals. So it pays if the trial shows no rivals, or once the limit was kept and seems
 * to last. */
POLICY int confine_isolates(const struct confine *c, u64 now_ns)
{
	if (c->phase == CONFINE_FEWER || c->phase == CONFINE_FEWER_AGAIN)
		return c->whole;
	return c->phase == CONFINE_SETTLED && c->use < c->vcpus &&
	       c->sums.windows >= CONFINE_PART_WINDOWS &&
	       confine_more_at(c) >= now_ns + CONFINE_LASTS_NS;
}

/*
 * Decides after each window. Returns how many vCPUs tasks may use from now on, from 1 to vcpus.
 */
POLICY u32 confine_step(struct confine *c, const struct confine_facts *facts, u64 now_ns)
{
	if (c->began_ns && c->phase == CONFINE_SETTLED)
		confine_failed(c, now_ns);
	if (((u64)facts->on_m + facts->off_m) * 100 < (u64)c->use * 1000 * CONFINE_QUIET_PERCENT) {
		confine_quiet(c, now_ns);
		return c->use;
	}
	if (confine_is_whole(facts, c->use))
		c->whole = 1;
	confine_add(&c->sums, facts, c->phase == CONFINE_SETTLED);
	/* Bursts that are too short to show whether a limit pays must not keep it in place. */
	if (c->sums.windows >= CONFINE_PART_WINDOWS)
		c->quiet_ns = 0;
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

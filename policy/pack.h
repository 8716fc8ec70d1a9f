/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How many vCPUs to use.
 *
 * A guest with more vCPUs than the host gives it time for has some that are off while
 * others wait for what they hold. With as few vCPUs as there is time for, those stay on
 * and nobody waits. But fewer vCPUs also ask the host for less: where neighbours compete,
 * their share shrinks. So the number is found by trying, and judged by progress: by what the
 * kernel counts, where that is much, and else by the useful time, which is what the vCPUs
 * were on, less what they spun. A spin with interrupts disabled is seen by no tick, and one
 * that leaves the guest seems to be work; both show in how little is counted.
 *
 * A trial of fewer begins where time is wasted, with as many vCPUs as the host gave time
 * for. It is kept only if it shows much more progress; a while later one more is tried,
 * because that time may have seemed too short. All vCPUs are tried again later and later, at
 * once when the load changes, and used where there is little to do.
 */
#ifndef UNSPIN_POLICY_PACK_H
#define UNSPIN_POLICY_PACK_H

#include "pack_sums.h"

enum pack_phase {
	/* The number is what was found best, until something speaks against it. */
	PACK_SETTLED,
	/* Another number is in use to see whether it is better. */
	PACK_TRIAL,
};

/* Zeroed at first, except vcpus. */
struct pack {
	/* All that there are. */
	u32 vcpus;
	/* That are to be used; 0: all, nothing has been decided yet. */
	u32 use;
	u32 phase;
	/* A trial's alternative: the number before it, and what that brought. */
	u32 before;
	/* Since the phase, or its number of vCPUs, began. */
	struct pack_sums sums;
	struct pack_progress brought;
	/* The useful time with all vCPUs, where fewer were better; 0: that was not found. */
	u32 beaten_m;
	/* For how many windows something else has been wanted than on average. */
	u32 changed;
	/* How many fewer than there is time for are to be tried next, because more have not
	 * helped. */
	u32 lower;
	/* What a trial of fewer must gain, in percent. */
	u32 must_gain;
	/* For how many windows something has spoken for fewer, there has been little to do, and
	 * tasks have waited and none was taken. */
	u32 wasteful;
	u32 quiet;
	u32 stuck;
	/* 1: with this number, one more has been tried, or need not be. */
	u32 tried_one;
	/* How many tasks woke in a window when fewer were tried last. */
	u32 tried_fewer_wakes;
	/* Not before this may fewer, all, or one more be tried. */
	u64 fewer_ns;
	u64 more_ns;
	u64 one_ns;
	/* How long to wait after a trial that did not help. */
	u64 fewer_wait_ns;
	u64 more_wait_ns;
	/* What was wanted of each vCPU in use, on and off together, and what all spun when fewer
	 * were tried last. */
	u32 tried_wanted_m;
	u32 tried_spin_m;
	/* What waited, and what woke, when more were tried last. */
	u32 tried_queued_m;
	u32 tried_wakes;
	/* Counts since the start: trials to fewer and to more, and those that helped. */
	u64 trials_fewer;
	u64 helped_fewer;
	u64 trials_more;
	u64 helped_more;
};

/* A window: what is called a change must last for some of them. */
#define PACK_WINDOW_NS 25000000ULL
/* After so many windows a trial is judged, and a settled number's figures count. */
#define PACK_TRIAL_WINDOWS 8
/* So many windows on end must speak for fewer: with spinning, and without. */
#define PACK_SPINS_WINDOWS 2
#define PACK_LONG_WINDOWS 16
/* A settled number's sums forget the windows before the last ones. */
#define PACK_MEMORY_WINDOWS 32
/* Fewer are better if there is so much more useful time, in percent: many short off
 * intervals escape the measure, and with fewer vCPUs all are short; long ones seem longer
 * than they are. Where no spinning was seen, fewer hardly help, and the measure flatters. */
#define PACK_GAIN_PERCENT 25
#define PACK_GAIN_UNSEEN_PERCENT 60
/* One more than fewer is better if there is so much more, in percent: both have few off
 * intervals. */
#define PACK_GAIN_ONE_PERCENT 8
/* There is little to do where less than this percentage of those in use is wanted. */
#define PACK_QUIET_PERCENT 50
#define PACK_QUIET_WINDOWS 4
/* For so many windows on end something else is wanted: what was before counts no more. */
#define PACK_CHANGED_WINDOWS 2
/* Fewer that were better once are not any more where there is so much less useful time than
 * with all before, in percent, after so many windows. */
#define PACK_REGRET_PERCENT 25
#define PACK_REGRET_WINDOWS 16
/* Tasks that wait so long while none is taken get all vCPUs: real-time tasks may have them. */
#define PACK_STUCK_WINDOWS 2
/* A trial of fewer is given up at once where there is so much less useful time, in percent, and
 * one of more after so many windows; after as many one where much less is done, and one without
 * spinning seen where there is not so much more useful time. */
#define PACK_LOSS_PERCENT 40
#define PACK_FIRST_WINDOWS 3
#define PACK_UNSEEN_PERCENT 20
/* Waits after trials that did not help, of fewer and of more: at first, and at most. */
#define PACK_WAIT_FEWER_NS 500000000ULL
#define PACK_WAIT_MORE_NS 2000000000ULL
#define PACK_WAIT_MOST_NS 60000000000ULL
/* After a trial of fewer that only the useful time spoke for, or what a program does that starts,
 * before all are tried, and still fewer then: it may have been chance, because beside neighbours
 * time comes in lumps. */
#define PACK_WAIT_SURE_NS 250000000ULL
/* After a trial, before one more is tried. */
#define PACK_WAIT_ONE_NS 500000000ULL

/* How many are in use. */
POLICY u32 pack_use(const struct pack *pack)
{
	return pack->use ? pack->use : pack->vcpus;
}

/* As many as the host gave time for, rather too many, and fewer than now. */
POLICY u32 pack_fewer(const struct pack *pack, u64 on_m)
{
	u32 use = pack_use(pack);
	u32 fewer = (u32)((on_m + 850) / 1000);

	if (fewer >= use)
		fewer = use - 1;
	return fewer > pack->lower ? fewer - pack->lower : 1;
}

POLICY void pack_begin(struct pack *pack, enum pack_phase phase, u32 use)
{
	pack->phase = phase;
	pack->use = use;
	pack->wasteful = 0;
	pack->quiet = 0;
	pack->changed = 0;
	pack_sums_forget(&pack->sums);
}

/* A settled number's figures are of what is wanted now: not of the quiet before a job. */
POLICY void pack_follow(struct pack *pack, const struct pack_facts *facts)
{
	u32 wanted_m = pack_mean(&pack->sums, pack->sums.on_m + pack->sums.off_m);

	if (pack->phase != PACK_SETTLED || pack->sums.windows <= PACK_SKIP)
		return;
	pack->changed = pack_differ((u64)facts->on_m + facts->off_m, wanted_m) ? pack->changed + 1 : 0;
	if (pack->changed < PACK_CHANGED_WINDOWS)
		return;
	pack->changed = 0;
	pack_sums_forget(&pack->sums);
	pack->sums.windows = PACK_SKIP;
}

POLICY void pack_add(struct pack *pack, const struct pack_facts *facts)
{
	pack_follow(pack, facts);
	if (pack->phase == PACK_SETTLED && pack->sums.windows >= PACK_SKIP + PACK_MEMORY_WINDOWS)
		pack_sums_fade(&pack->sums);
	pack_sums_add(&pack->sums, facts);
}

POLICY void pack_start_trial(struct pack *pack, u32 use)
{
	u32 before = pack_use(pack);
	struct pack_progress brought = pack_progress(&pack->sums);

	if (use < before)
		pack->trials_fewer++;
	else
		pack->trials_more++;
	pack_begin(pack, PACK_TRIAL, use);
	pack->before = before;
	pack->brought = brought;
}

POLICY u64 pack_longer(u64 wait_ns, u64 least_ns)
{
	wait_ns *= 2;
	if (wait_ns < least_ns)
		wait_ns = least_ns;
	return wait_ns < PACK_WAIT_MOST_NS ? wait_ns : PACK_WAIT_MOST_NS;
}

/* The trial has lasted: keep it or undo it. */
POLICY void pack_judge(struct pack *pack, u64 now_ns)
{
	struct pack_progress now = pack_progress(&pack->sums), before = pack->brought;
	int fewer = pack->use < pack->before, all = pack->use == pack->vcpus, keep;

	if (fewer)
		keep = pack_gains(&now, &before, pack->must_gain);
	else if (all)
		keep = !pack_gains(&before, &now, PACK_GAIN_PERCENT);
	else
		keep = pack_gains(&now, &before, PACK_GAIN_ONE_PERCENT);
	/* Where nothing is counted, still fewer are only slower. */
	if (fewer)
		pack->lower = !keep && pack->use > 1 &&
					      (before.wakes >= PACK_OFTEN || before.done >= PACK_OFTEN) ?
				      pack->lower + 1 :
				      0;
	pack->helped_fewer += fewer && keep;
	pack->helped_more += !fewer && keep;
	if ((fewer && !keep) || (all && keep)) {
		pack->fewer_wait_ns = pack_longer(pack->fewer_wait_ns, PACK_WAIT_FEWER_NS);
		pack->more_wait_ns = 0;
	} else if (all) {
		pack->more_wait_ns = pack_longer(pack->more_wait_ns, PACK_WAIT_MORE_NS);
	}
	if (all)
		pack->beaten_m = keep || pack_counts_more(&before, &now) ? 0 : now.useful_m;
	else if (fewer && keep && pack->before == pack->vcpus)
		pack->beaten_m = pack_counts_more(&now, &before) ? 0 : before.useful_m;
	pack->tried_one = !keep && pack->use > pack->before;
	pack->fewer_ns = now_ns + pack->fewer_wait_ns;
	pack->more_ns = now_ns + (pack->more_wait_ns ? pack->more_wait_ns : PACK_WAIT_MORE_NS);
	pack->one_ns = now_ns + PACK_WAIT_ONE_NS;
	if (fewer && keep && !pack_counts_surely_more(&now, &before)) {
		pack->more_ns = now_ns + PACK_WAIT_SURE_NS;
		pack->fewer_ns = pack->more_ns + PACK_WINDOW_NS;
	}
	pack_begin(pack, PACK_SETTLED, keep ? pack->use : pack->before);
}

/* The trial has lost so much, or gained so little, that its end need not be awaited. */
POLICY int pack_is_lost(const struct pack *pack)
{
	struct pack_progress now = pack_progress(&pack->sums);
	const struct pack_progress *before = &pack->brought;

	if (pack->sums.windows >= PACK_SKIP + PACK_FIRST_WINDOWS &&
	    (pack_more_often(before->done, now.done) ||
	     (pack->use < pack->before && pack->must_gain > PACK_GAIN_PERCENT &&
	      !pack_gains(&now, before, PACK_UNSEEN_PERCENT))))
		return 1;
	return pack->sums.windows >= PACK_SKIP + (pack->use < pack->before ? 1 : PACK_FIRST_WINDOWS) &&
	       !pack_counts_more(&now, before) &&
	       (u64)now.useful_m * 100 < (u64)before->useful_m * (100 - PACK_LOSS_PERCENT);
}

/* The trial can be judged. Fewer that may have been better by chance must be so for twice as long. */
POLICY int pack_is_over(const struct pack *pack)
{
	struct pack_progress now = pack_progress(&pack->sums);
	const struct pack_progress *before = &pack->brought;
	u64 windows = pack->sums.windows;

	if (windows < PACK_SKIP + PACK_TRIAL_WINDOWS)
		return 0;
	return windows >= PACK_SKIP + 2 * PACK_TRIAL_WINDOWS || pack->use > pack->before ||
	       pack_counts_surely_more(&now, before) || !pack_gains(&now, before, pack->must_gain);
}

POLICY void pack_settled(struct pack *pack, const struct pack_facts *facts, u64 now_ns)
{
	u64 off_m = pack_mean(&pack->sums, pack->sums.off_m);
	u64 on_m = pack_mean(&pack->sums, pack->sums.on_m);
	u64 spin_m = pack_mean(&pack->sums, pack->sums.spin_m);
	u64 wanted_m = (u64)facts->on_m + facts->off_m;
	enum pack_sign sign = pack_sign(on_m, off_m, spin_m);
	u32 use = pack_use(pack);
	int one, wasteful;

	pack->wasteful = sign ? pack->wasteful + 1 : 0;
	wasteful = pack->wasteful >= (sign == PACK_SPINS ? PACK_SPINS_WINDOWS : PACK_LONG_WINDOWS);
	/* Another load than the one that fewer did not help. */
	if (wasteful && pack->fewer_wait_ns && pack->sums.windows > PACK_SKIP + PACK_TRIAL_WINDOWS &&
	    (pack_differ((on_m + off_m) / use, pack->tried_wanted_m) ||
	     pack_differ(spin_m, pack->tried_spin_m) ||
	     pack_wakes_anew(pack_mean(&pack->sums, pack->sums.wakes), pack->tried_fewer_wakes))) {
		pack->fewer_wait_ns = 0;
		pack->fewer_ns = 0;
		pack->lower = 0;
	}
	if (use > 1 && wasteful && now_ns >= pack->fewer_ns) {
		pack->tried_wanted_m = (u32)(on_m + off_m) / use;
		pack->tried_spin_m = (u32)spin_m;
		pack->tried_fewer_wakes = pack_mean(&pack->sums, pack->sums.wakes);
		pack->must_gain = sign == PACK_SPINS ? PACK_GAIN_PERCENT : PACK_GAIN_UNSEEN_PERCENT;
		/* Where no spinning is to be seen, it is tried rarely. */
		if (sign == PACK_OFF_FOR_LONG)
			pack->fewer_wait_ns = pack_longer(pack->fewer_wait_ns, PACK_WAIT_FEWER_NS);
		pack_start_trial(pack, pack_fewer(pack, on_m > facts->on_m ? on_m : facts->on_m));
		return;
	}
	if (use == pack->vcpus)
		return;
	/* By luck fewer had more of the host's time for a while. */
	if (pack->beaten_m && pack->sums.windows >= PACK_SKIP + PACK_REGRET_WINDOWS &&
	    (u64)pack_mean(&pack->sums, pack->sums.useful_m) * 100 <
		    (u64)pack->beaten_m * (100 - PACK_REGRET_PERCENT)) {
		pack->beaten_m = 0;
		pack->tried_one = 1;
		pack->more_wait_ns = 0;
		pack->more_ns = 0;
	}
	pack->quiet = wanted_m * 100 < (u64)use * 1000 * PACK_QUIET_PERCENT ? pack->quiet + 1 : 0;
	if (pack->quiet >= PACK_QUIET_WINDOWS) {
		pack->more_wait_ns = 0;
		pack_begin(pack, PACK_SETTLED, pack->vcpus);
		return;
	}
	if (pack->sums.windows <= PACK_SKIP + PACK_TRIAL_WINDOWS)
		return;
	/* Another load than the one that more vCPUs did not help. */
	if (pack->tried_wakes | pack->tried_queued_m &&
	    (pack_differ(pack_mean(&pack->sums, pack->sums.queued_m), pack->tried_queued_m) ||
	     pack_differ(pack_mean(&pack->sums, pack->sums.wakes), pack->tried_wakes))) {
		pack->more_wait_ns = 0;
		pack->more_ns = 0;
		pack->tried_one = 1;
	}
	one = !pack->tried_one && use + 1 < pack->vcpus && facts->queued_m &&
	      !pack_is_overcommitted(on_m, off_m);
	if (now_ns < (one ? pack->one_ns : pack->more_ns))
		return;
	pack->tried_queued_m = pack_mean(&pack->sums, pack->sums.queued_m);
	pack->tried_wakes = pack_mean(&pack->sums, pack->sums.wakes);
	pack_start_trial(pack, one ? use + 1 : pack->vcpus);
}

/*
 * A window has passed. Returns how many vCPUs to use from now on.
 */
POLICY u32 pack_step(struct pack *pack, const struct pack_facts *facts, u64 now_ns)
{
	pack_add(pack, facts);
	pack->stuck = facts->queued_m && !facts->taken ? pack->stuck + 1 : 0;
	if (pack->stuck >= PACK_STUCK_WINDOWS && pack_use(pack) < pack->vcpus) {
		pack->fewer_wait_ns = pack_longer(pack->fewer_wait_ns, PACK_WAIT_FEWER_NS);
		pack->fewer_ns = now_ns + pack->fewer_wait_ns;
		pack_begin(pack, PACK_SETTLED, pack->vcpus);
	} else if (pack->phase == PACK_TRIAL) {
		if (pack_is_lost(pack) || pack_is_over(pack))
			pack_judge(pack, now_ns);
	} else if (pack->sums.windows > PACK_SKIP) {
		pack_settled(pack, facts, now_ns);
	}
	return pack_use(pack);
}

#endif /* UNSPIN_POLICY_PACK_H */

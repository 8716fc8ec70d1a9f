/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is known of how many vCPUs to use, and the limits that decide (pack.h).
 */
#ifndef UNSPIN_POLICY_PACK_STATE_H
#define UNSPIN_POLICY_PACK_STATE_H

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
	/* In a trial of fewer: for how many windows on end those in use have been on while tasks
	 * waited; what one less with which it was so were on, or 0, and brought; and how many are
	 * tried at most. */
	u32 fits;
	u32 fitted_on_m;
	struct pack_progress fitted;
	u32 most;
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
/* So many windows on end must speak for fewer: with spinning, and without, where tasks wait for a
 * vCPU anyway, and where none does. */
#define PACK_SPINS_WINDOWS 2
#define PACK_WAITING_WINDOWS 8
#define PACK_LONG_WINDOWS 16
/* A settled number's sums forget the windows before the last ones. */
#define PACK_MEMORY_WINDOWS 32
/* By how much useful time must grow for fewer to be kept, in percent. The margin is wide because
 * short off intervals are missed and long ones overestimated. Without spinning seen, the gain is
 * overestimated, so the margin is wider. */
#define PACK_GAIN_PERCENT 25
#define PACK_GAIN_UNSEEN_PERCENT 60
/* One more than fewer is better if there is so much more, in percent: both have few off
 * intervals. */
#define PACK_GAIN_ONE_PERCENT 8
/* There is little to do where no more than this percentage of those in use is wanted. */
#define PACK_QUIET_PERCENT 50
#define PACK_QUIET_WINDOWS 4
/* More are of use only where so much of those in use is wanted, in percent. */
#define PACK_BUSY_PERCENT 80
/* For so many windows on end something else is wanted: what was before counts no more. */
#define PACK_CHANGED_WINDOWS 2
/* Fewer that were better once are not any more where there is so much less useful time than
 * with all before, in percent, after so many windows. */
#define PACK_REGRET_PERCENT 25
#define PACK_REGRET_WINDOWS 16
/* Tasks that wait so long while none is taken get all vCPUs: real-time tasks may have them. */
#define PACK_STUCK_WINDOWS 2
/* Early ends of a trial: at once where useful time drops by so much, in percent (a trial of all:
 * only after so many windows). After as many windows, where much less is done, or where no spinning
 * was seen and useful time has not grown by so much. */
#define PACK_LOSS_PERCENT 40
#define PACK_FIRST_WINDOWS 3
#define PACK_UNSEEN_PERCENT 20
/* So many windows on end those in use must be on, each for so many thousandths, where too few
 * are tried. */
#define PACK_FITS_WINDOWS 3
#define PACK_FITS_M 950
/* After so many windows it is seen whether there is more time for one more. */
#define PACK_STEP_WINDOWS 2
/* Waits after trials that did not help, of fewer and of more: at first, and at most. */
#define PACK_WAIT_FEWER_NS 500000000ULL
#define PACK_WAIT_MORE_NS 2000000000ULL
#define PACK_WAIT_MOST_NS 60000000000ULL
/* After a trial of fewer that only useful time, or a starting program, spoke for: the wait before
 * all are tried, and then still fewer. The gain may be chance, because beside neighbours time comes
 * in lumps. */
#define PACK_WAIT_SURE_NS 250000000ULL
/* After a trial, before one more is tried. */
#define PACK_WAIT_ONE_NS 500000000ULL

/* How many are in use. */
POLICY u32 pack_use(const struct pack *pack)
{
	return pack->use ? pack->use : pack->vcpus;
}

/* As many as the host gave time for, rather too many, and fewer than now. What was seen of that
 * time may be much too little, so it is half of now at least, where that was not tried in vain. */
POLICY u32 pack_fewer(const struct pack *pack, u64 on_m)
{
	u32 use = pack_use(pack);
	u32 fewer = (u32)((on_m + 850) / 1000);

	if (fewer >= use)
		fewer = use - 1;
	if (!pack->fewer_wait_ns && fewer < use / 2)
		fewer = use / 2;
	return fewer > pack->lower ? fewer - pack->lower : 1;
}

POLICY void pack_begin(struct pack *pack, enum pack_phase phase, u32 use)
{
	pack->phase = phase;
	pack->use = use;
	pack->wasteful = 0;
	pack->quiet = 0;
	pack->changed = 0;
	pack->fits = 0;
	pack_sums_forget(&pack->sums);
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
	pack->fitted_on_m = 0;
	pack->most = before - 1;
}

POLICY u64 pack_longer(u64 wait_ns, u64 least_ns)
{
	wait_ns *= 2;
	if (wait_ns < least_ns)
		wait_ns = least_ns;
	return wait_ns < PACK_WAIT_MOST_NS ? wait_ns : PACK_WAIT_MOST_NS;
}

#endif /* UNSPIN_POLICY_PACK_STATE_H */

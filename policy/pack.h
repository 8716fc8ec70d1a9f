/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How many vCPUs to use.
 *
 * A guest with more vCPUs than the host gives it time for has some that are off while
 * others wait for what they hold. With as few vCPUs as there is time for, those stay on
 * and nobody waits. But fewer vCPUs also ask the host for less: where neighbours compete,
 * their share shrinks. So the number is found by trying, and judged by what counts: the
 * useful time, which is what the vCPUs were on, less what they spun.
 *
 * A trial to fewer begins where time is wasted, with as many vCPUs as the host gave time
 * for; a trial to more begins where the vCPUs in use are busy and always on. What did not
 * help is undone, and is tried again later and later, until the load changes.
 */
#ifndef UNSPIN_POLICY_PACK_H
#define UNSPIN_POLICY_PACK_H

#include "base.h"

/* What all vCPUs did in a window of time, in thousandths of a vCPU: on_m is 2000 where two
 * of them were on all the time. */
struct pack_facts {
	/* They ran. */
	u32 on_m;
	/* They wanted to run and were off. */
	u32 off_m;
	/* Of what they ran: spinning for a lock or an acknowledgement. */
	u32 spin_m;
	/* Tasks that could have run and waited for a vCPU, in thousandths. */
	u32 queued_m;
};

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
	/* Windows since the phase, or its number of vCPUs, began. */
	u32 windows;
	/* Running sums over the windows of a phase that count. */
	u64 useful_sum;
	u64 spin_sum;
	u64 off_sum;
	u64 on_sum;
	/* A trial's alternative: the number before it, and the useful time with that. */
	u32 before;
	u32 before_useful_m;
	/* Since when something speaks for fewer, in windows. */
	u32 wasteful;
	u32 unused;
	/* Not before this may fewer, or more, be tried. */
	u64 fewer_ns;
	u64 more_ns;
	/* How long to wait after a trial that did not help. */
	u64 fewer_wait_ns;
	u64 more_wait_ns;
	/* The load when the last trial to fewer failed: on and off together. */
	u32 failed_wanted_m;
	u32 failed_spin_m;
	/* Counts since the start: trials to fewer and to more, and those that helped. */
	u64 trials_fewer;
	u64 helped_fewer;
	u64 trials_more;
	u64 helped_more;
};

/* A window: what is called a change must last for some of them. */
#define PACK_WINDOW_NS 25000000ULL
/* The first window after a change shows the change itself. */
#define PACK_SKIP 1
/* Windows until a trial is judged, and until a settled number's figures count. */
#define PACK_TRIAL_WINDOWS 8
/* Windows that have to be wasteful one after the other. */
#define PACK_WASTEFUL_WINDOWS 2
/* A settled number's sums forget the windows before the last ones. */
#define PACK_MEMORY_WINDOWS 32
/* From these shares on time is wasted, in percent: off of wanted, spinning of on. */
#define PACK_OFF_PERCENT 10
#define PACK_SPIN_PERCENT 5
/* A trial helps if there is so much more useful time, in percent. */
#define PACK_GAIN_PERCENT 4
/* Waits after trials that did not help: with waste to be seen, without, and at most. */
#define PACK_WAIT_NS 500000000ULL
#define PACK_WAIT_BLIND_NS 4000000000ULL
#define PACK_WAIT_MOST_NS 60000000000ULL

POLICY u32 pack_useful_m(const struct pack_facts *facts)
{
	return facts->on_m > facts->spin_m ? facts->on_m - facts->spin_m : 0;
}

/* How many are in use. */
POLICY u32 pack_use(const struct pack *pack)
{
	return pack->use ? pack->use : pack->vcpus;
}

/* As many as the host gave time for, and fewer than now. */
POLICY u32 pack_fewer(const struct pack *pack, u64 on_m)
{
	u32 use = pack_use(pack);
	u32 fewer = (u32)((on_m + 500) / 1000);

	if (fewer < 1)
		fewer = 1;
	return fewer < use ? fewer : use > 1 ? use - 1 : 1;
}

POLICY void pack_begin(struct pack *pack, enum pack_phase phase, u32 use)
{
	pack->phase = phase;
	pack->use = use;
	pack->windows = 0;
	pack->useful_sum = 0;
	pack->spin_sum = 0;
	pack->off_sum = 0;
	pack->on_sum = 0;
	pack->wasteful = 0;
}

/* A sum over the windows that count, as a mean. */
POLICY u32 pack_mean_m(const struct pack *pack, u64 sum)
{
	u32 windows = pack->windows > PACK_SKIP ? pack->windows - PACK_SKIP : 1;

	return (u32)(sum / windows);
}

POLICY void pack_add(struct pack *pack, const struct pack_facts *facts)
{
	pack->windows++;
	if (pack->windows <= PACK_SKIP)
		return;
	/* Forget half, so that the mean follows the load. */
	if (pack->phase == PACK_SETTLED && pack->windows > PACK_SKIP + PACK_MEMORY_WINDOWS) {
		pack->windows = PACK_SKIP + PACK_MEMORY_WINDOWS / 2;
		pack->useful_sum /= 2;
		pack->spin_sum /= 2;
		pack->off_sum /= 2;
		pack->on_sum /= 2;
		pack->windows++;
	}
	pack->useful_sum += pack_useful_m(facts);
	pack->spin_sum += facts->spin_m;
	pack->off_sum += facts->off_m;
	pack->on_sum += facts->on_m;
}

POLICY void pack_start_trial(struct pack *pack, u32 use)
{
	u32 before = pack_use(pack);
	u32 useful_m = pack_mean_m(pack, pack->useful_sum);

	if (use < before)
		pack->trials_fewer++;
	else
		pack->trials_more++;
	pack_begin(pack, PACK_TRIAL, use);
	pack->before = before;
	pack->before_useful_m = useful_m;
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
	u64 useful_m = pack_mean_m(pack, pack->useful_sum);
	u64 spin_m = pack_mean_m(pack, pack->spin_sum);
	u64 off_m = pack_mean_m(pack, pack->off_sum), on_m = pack_mean_m(pack, pack->on_sum);
	int fewer = pack->use < pack->before;
	int helps = useful_m * 100 >= (u64)pack->before_useful_m * (100 + PACK_GAIN_PERCENT);

	/* More that harm nobody are kept, so that a guest with little to do has them all. */
	if (!fewer && off_m * 100 <= (on_m + off_m) * PACK_OFF_PERCENT &&
	    useful_m * 100 >= (u64)pack->before_useful_m * (100 - PACK_GAIN_PERCENT))
		helps = 1;
	if (helps) {
		/* What speaks for the other direction has changed. */
		pack->fewer_wait_ns = 0;
		pack->more_wait_ns = 0;
		if (fewer) {
			pack->helped_fewer++;
			pack->more_ns = now_ns + PACK_WAIT_BLIND_NS;
		} else {
			pack->helped_more++;
			pack->fewer_ns = now_ns + PACK_WAIT_NS;
		}
		pack_begin(pack, PACK_SETTLED, pack->use);
		return;
	}
	if (fewer) {
		pack->fewer_wait_ns = pack_longer(pack->fewer_wait_ns, PACK_WAIT_NS);
		pack->fewer_ns = now_ns + pack->fewer_wait_ns;
		pack->failed_spin_m = (u32)spin_m;
	} else {
		pack->more_wait_ns = pack_longer(pack->more_wait_ns, PACK_WAIT_BLIND_NS);
		pack->more_ns = now_ns + pack->more_wait_ns;
	}
	pack_begin(pack, PACK_SETTLED, pack->before);
}

/* Whether two figures differ by more than a third. */
POLICY int pack_differ(u64 a_m, u64 b_m)
{
	return a_m * 3 > b_m * 4 + 300 || b_m * 3 > a_m * 4 + 300;
}

POLICY void pack_settled(struct pack *pack, const struct pack_facts *facts, u64 now_ns)
{
	u32 use = pack_use(pack);
	u64 wanted_m = (u64)facts->on_m + facts->off_m;
	u64 off_m = pack_mean_m(pack, pack->off_sum), on_m = pack_mean_m(pack, pack->on_sum);
	u64 spin_m = pack_mean_m(pack, pack->spin_sum);
	int overcommitted = (u64)facts->off_m * 100 > wanted_m * PACK_OFF_PERCENT &&
			    off_m * 100 > (on_m + off_m) * PACK_OFF_PERCENT;
	int spins = (u64)facts->spin_m * 100 > (u64)facts->on_m * PACK_SPIN_PERCENT &&
		    spin_m * 100 > on_m * PACK_SPIN_PERCENT;
	int busy = wanted_m * 100 > (u64)use * 90000;

	pack->wasteful = overcommitted ? pack->wasteful + 1 : 0;
	/* Another load than the one that fewer did not help. */
	if (pack->fewer_wait_ns && pack_differ(on_m + off_m, pack->failed_wanted_m) &&
	    pack->windows > PACK_SKIP + PACK_TRIAL_WINDOWS) {
		pack->fewer_wait_ns = 0;
		pack->fewer_ns = 0;
	}
	if (pack->wasteful >= PACK_WASTEFUL_WINDOWS && use > 1 && now_ns >= pack->fewer_ns) {
		if (!spins && !pack->fewer_wait_ns) {
			/* Nothing but being off speaks for it: not at once. */
			pack->fewer_wait_ns = PACK_WAIT_BLIND_NS / 2;
			pack->fewer_ns = now_ns + PACK_WAIT_BLIND_NS;
			pack->failed_wanted_m = (u32)(on_m + off_m);
			return;
		}
		pack->failed_wanted_m = (u32)(on_m + off_m);
		pack_start_trial(pack, pack_fewer(pack, on_m));
		return;
	}
	if (use < pack->vcpus && now_ns >= pack->more_ns && pack->windows > PACK_TRIAL_WINDOWS) {
		if (!busy || (!overcommitted && facts->queued_m > 200))
			pack_start_trial(pack, busy ? use + 1 : pack->vcpus);
	}
}

/*
 * A window has passed. Returns how many vCPUs to use from now on.
 */
POLICY u32 pack_step(struct pack *pack, const struct pack_facts *facts, u64 now_ns)
{
	pack_add(pack, facts);
	if (pack->phase == PACK_TRIAL) {
		if (pack->windows >= PACK_SKIP + PACK_TRIAL_WINDOWS)
			pack_judge(pack, now_ns);
	} else if (pack->windows > PACK_SKIP) {
		pack_settled(pack, facts, now_ns);
	}
	return pack_use(pack);
}

#endif /* UNSPIN_POLICY_PACK_H */

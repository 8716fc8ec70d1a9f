/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Digests the facts of some windows for pack.h: how much time was useful, what was wasted, and
 * whether the load is another than before.
 */
#ifndef UNSPIN_POLICY_PACK_FACTS_H
#define UNSPIN_POLICY_PACK_FACTS_H

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
	/* Tasks that became ready to run, and those that a vCPU took from the queue. */
	u32 wakes;
	u32 taken;
	/* What the kernel counts and what grows with the work, whoever spins: page faults, and
	 * objects given up. */
	u32 done;
};

/* From these shares on time is wasted, in percent: off of wanted, and spinning of on. A
 * spin with interrupts disabled is seen by no tick, so little that is seen says much, and
 * much that is off may be spinning. */
#define PACK_OFF_PERCENT 10
#define PACK_SPIN_PERCENT 4
#define PACK_LONG_PERCENT 35
/* So much spinning speaks for fewer even where hardly a vCPU seems off: intervals that are too
 * short to be seen pass for time on. */
#define PACK_SPINS_ANYWAY_PERCENT 30
/* From so much in a window on what is counted shows progress. */
#define PACK_OFTEN 20

/* What a window brought. */
struct pack_progress {
	u32 useful_m;
	u32 wakes;
	u32 done;
};

POLICY u32 pack_useful_m(const struct pack_facts *facts)
{
	return facts->on_m > facts->spin_m ? facts->on_m - facts->spin_m : 0;
}

/* Whether a count is so much greater that it cannot be chance. */
POLICY int pack_more_often(u64 count, u64 than)
{
	return count >= PACK_OFTEN && count * 2 > than * 3;
}

/* Whether there are so many more that other work must have begun. */
POLICY int pack_wakes_anew(u64 wakes, u64 than)
{
	return wakes >= PACK_OFTEN && wakes > than * 4;
}

/* Whether counts say that there is more progress, whatever the useful time says. */
POLICY int pack_counts_more(const struct pack_progress *a, const struct pack_progress *than)
{
	return pack_more_often(a->done, than->done) || pack_more_often(a->wakes, than->wakes);
}

/* The same where it was counted before, too: not of a program that just starts. */
POLICY int pack_counts_surely_more(const struct pack_progress *a, const struct pack_progress *than)
{
	return (than->done >= PACK_OFTEN && pack_more_often(a->done, than->done)) ||
	       (than->wakes >= PACK_OFTEN && pack_more_often(a->wakes, than->wakes));
}

/* Whether there is so much more progress, in percent. What was done decides where it differs
 * much; else it is the useful time, and wake-ups, of which half as many more may be chance. */
POLICY int pack_gains(const struct pack_progress *a, const struct pack_progress *than, u32 percent)
{
	u64 useful_m = a->useful_m, than_m = than->useful_m;

	if (pack_more_often(a->done, than->done))
		return 1;
	if (pack_more_often(than->done, a->done))
		return 0;
	if (pack_more_often(a->wakes, than->wakes)) {
		useful_m *= (u64)a->wakes * 2;
		than_m *= (u64)than->wakes * 3;
	}
	return useful_m * 100 >= than_m * (100 + percent);
}

/* Whether two figures differ by more than half, and not by little only. */
POLICY int pack_differ(u64 a, u64 b)
{
	return a * 2 > b * 3 + 300 || b * 2 > a * 3 + 300;
}

/* More vCPUs are on or off than the host gives time for. */
POLICY int pack_is_overcommitted(u64 on_m, u64 off_m)
{
	return off_m * 100 > (on_m + off_m) * PACK_OFF_PERCENT;
}

/* What speaks for fewer. */
enum pack_sign {
	PACK_NO_SIGN,
	/* vCPUs are off for so long that some may be spinning unseen. */
	PACK_OFF_FOR_LONG,
	PACK_SPINS,
};

POLICY enum pack_sign pack_sign(u64 on_m, u64 off_m, u64 spin_m)
{
	if (spin_m * 100 > on_m * PACK_SPINS_ANYWAY_PERCENT)
		return PACK_SPINS;
	if (!pack_is_overcommitted(on_m, off_m))
		return PACK_NO_SIGN;
	if (spin_m * 100 > on_m * PACK_SPIN_PERCENT)
		return PACK_SPINS;
	return off_m * 100 > (on_m + off_m) * PACK_LONG_PERCENT ? PACK_OFF_FOR_LONG : PACK_NO_SIGN;
}

#endif /* UNSPIN_POLICY_PACK_FACTS_H */

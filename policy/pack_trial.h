/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Another number of vCPUs is tried: when that is over, and whether it is kept (pack.h).
 */
#ifndef UNSPIN_POLICY_PACK_TRIAL_H
#define UNSPIN_POLICY_PACK_TRIAL_H

#include "pack_state.h"

/* The trial's number is in use long enough to judge it by. */
POLICY int pack_has_lasted(const struct pack *pack)
{
	return pack->sums.windows >= PACK_SKIP + PACK_TRIAL_WINDOWS;
}

/* Fewer were tried, and counts say they are better, but what speaks for fewer still does. */
POLICY int pack_wants_still_fewer(const struct pack *pack)
{
	struct pack_progress now = pack_progress(&pack->sums);
	u64 off_m = pack_mean(&pack->sums, pack->sums.off_m);
	u64 on_m = pack_mean(&pack->sums, pack->sums.on_m);

	return pack->use < pack->before && pack->use > 1 && pack_counts_more(&now, &pack->brought) &&
	       pack_sign(on_m, off_m, pack_mean(&pack->sums, pack->sums.spin_m)) != PACK_NO_SIGN;
}

/* The trial has lasted: keep it or undo it. */
POLICY_STEP int pack_judge(struct pack *pack NONNULL, u64 now_ns)
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
	pack->tried_one = fewer ? keep && pack->use == pack->most : !keep;
	pack->fewer_ns = now_ns + pack->fewer_wait_ns;
	pack->more_ns = now_ns + (pack->more_wait_ns ? pack->more_wait_ns : PACK_WAIT_MORE_NS);
	pack->one_ns = now_ns + PACK_WAIT_ONE_NS;
	if (fewer && keep && !pack_counts_surely_more(&now, &before)) {
		pack->more_ns = now_ns + PACK_WAIT_SURE_NS;
		pack->fewer_ns = pack->more_ns + PACK_WINDOW_NS;
	}
	if (keep && pack_wants_still_fewer(pack))
		pack_start_trial(pack, pack_fewer(pack, pack_mean(&pack->sums, pack->sums.on_m)));
	else
		pack_begin(pack, PACK_SETTLED, keep ? pack->use : pack->before);
	return 0;
}

/* There is so much less progress that no more windows are needed to see it. */
POLICY int pack_has_collapsed(const struct pack_progress *a, const struct pack_progress *from)
{
	return !pack_counts_more(a, from) &&
	       (u64)a->useful_m * 100 < (u64)from->useful_m * (100 - PACK_LOSS_PERCENT);
}

/* The trial has lost so much, or gained so little, that its end need not be awaited. */
POLICY_STEP int pack_is_lost(const struct pack *pack NONNULL)
{
	struct pack_progress now = pack_progress(&pack->sums);
	const struct pack_progress *before = &pack->brought;

	if (pack->sums.windows >= PACK_SKIP + PACK_FIRST_WINDOWS &&
	    (pack_more_often(before->done, now.done) ||
	     (pack->use < pack->before && pack->must_gain > PACK_GAIN_PERCENT &&
	      !pack_gains(&now, before, PACK_UNSEEN_PERCENT))))
		return 1;
	return pack->sums.windows >= PACK_SKIP + (pack->use < pack->vcpus ? 1 : PACK_FIRST_WINDOWS) &&
	       pack_has_collapsed(&now, before);
}

/* The trial can be judged. Fewer that may have been better by chance must be so for twice as long. */
POLICY_STEP int pack_is_over(const struct pack *pack NONNULL)
{
	struct pack_progress now = pack_progress(&pack->sums);
	const struct pack_progress *before = &pack->brought;
	u64 windows = pack->sums.windows;

	if (!pack_has_lasted(pack))
		return 0;
	return windows >= PACK_SKIP + 2 * PACK_TRIAL_WINDOWS || pack->use > pack->before ||
	       pack_wants_still_fewer(pack) || pack_counts_surely_more(&now, before) ||
	       !pack_gains(&now, before, pack->must_gain);
}

/* With one more there is no more time, or no more progress. */
POLICY int pack_one_less_was_better(const struct pack *pack)
{
	struct pack_progress now = pack_progress(&pack->sums);
	u64 on_m = pack_mean(&pack->sums, pack->sums.on_m);

	if (!pack->fitted_on_m)
		return 0;
	return pack_is_lost(pack) ||
	       (pack->sums.windows >= PACK_SKIP + PACK_STEP_WINDOWS &&
		on_m * 100 < (u64)pack->fitted_on_m * (100 + PACK_GAIN_ONE_PERCENT)) ||
	       (pack_has_lasted(pack) && !pack_gains(&now, &pack->fitted, PACK_GAIN_ONE_PERCENT));
}

/* A trial of fewer goes on with one more where those in use are on all the time while tasks wait,
 * and with one less again if that was better. Returns whether it goes on so. */
POLICY_STEP int pack_search(struct pack *pack NONNULL, const struct pack_facts *facts NONNULL)
{
	if (pack->use > pack->before || pack->sums.windows <= PACK_SKIP)
		return 0;
	if (pack_one_less_was_better(pack)) {
		pack->fitted_on_m = 0;
		pack->most = pack->use - 1;
		pack_begin(pack, PACK_TRIAL, pack->use - 1);
		return 1;
	}
	pack->fits = facts->queued_m && facts->on_m >= (u64)pack->use * PACK_FITS_M ? pack->fits + 1 : 0;
	if (pack->fits < PACK_FITS_WINDOWS || pack->use >= pack->most || pack_is_lost(pack))
		return 0;
	pack->fitted = pack_progress(&pack->sums);
	pack->fitted_on_m = pack_mean(&pack->sums, pack->sums.on_m);
	pack_begin(pack, PACK_TRIAL, pack->use + 1);
	return 1;
}

#endif /* UNSPIN_POLICY_PACK_TRIAL_H */

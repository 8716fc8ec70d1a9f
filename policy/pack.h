/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How many vCPUs to use.
 *
 * A guest with more vCPUs than the host gives it time for has vCPUs that are off while others
 * wait for their locks. With as few vCPUs as there is time for, these stay on, and no vCPU
 * waits for one that is off. But fewer vCPUs also ask the host for less: beside neighbours that
 * compete, the guest's share shrinks. So the number is found by trials, and judged by progress:
 * by what the kernel counts, where that is much, and else by useful time, which is time on less
 * time spinning. Ticks do not see a spin with interrupts disabled, and a spin that leaves the
 * guest passes for work; both show in how little is counted.
 *
 * A trial of fewer begins where time is wasted, with as many vCPUs as the host gave time for,
 * and goes on with one more where those are on all the time while tasks wait. It is kept only if
 * it shows much more progress; a while later one more is tried, because that time may have
 * seemed too short. All vCPUs are tried again later and later, at once when the load changes,
 * and used where there is little to do.
 */
#ifndef UNSPIN_POLICY_PACK_H
#define UNSPIN_POLICY_PACK_H

#include "pack_trial.h"

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

POLICY_STEP int pack_add(struct pack *pack NONNULL, const struct pack_facts *facts NONNULL)
{
	pack_follow(pack, facts);
	if (pack->phase == PACK_SETTLED && pack->sums.windows >= PACK_SKIP + PACK_MEMORY_WINDOWS)
		pack_sums_fade(&pack->sums);
	pack_sums_add(&pack->sums, facts);
	return 0;
}

POLICY_STEP int pack_settled(struct pack *pack NONNULL, const struct pack_facts *facts NONNULL, u64 now_ns)
{
	u64 off_m = pack_mean(&pack->sums, pack->sums.off_m);
	u64 on_m = pack_mean(&pack->sums, pack->sums.on_m);
	u64 spin_m = pack_mean(&pack->sums, pack->sums.spin_m);
	u64 wanted_m = (u64)facts->on_m + facts->off_m;
	enum pack_sign sign = pack_sign(on_m, off_m, spin_m);
	u32 use = pack_use(pack), enough;
	int one, wasteful;

	/* That fewer than all are too many must show in each window. */
	if (use < pack->vcpus && !pack_sign(facts->on_m, facts->off_m, facts->spin_m))
		sign = PACK_NO_SIGN;
	pack->wasteful = sign ? pack->wasteful + 1 : 0;
	if (sign == PACK_SPINS && use == pack->vcpus)
		enough = PACK_SPINS_WINDOWS;
	else
		enough = facts->queued_m ? PACK_WAITING_WINDOWS : PACK_LONG_WINDOWS;
	wasteful = pack->wasteful >= enough;
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
		pack_start_trial(pack, pack_fewer(pack, on_m));
		/* Where no spinning is to be seen, it is tried rarely. */
		if (sign == PACK_OFF_FOR_LONG)
			pack->fewer_wait_ns = pack_longer(pack->fewer_wait_ns, PACK_WAIT_FEWER_NS);
		return 0;
	}
	if (use == pack->vcpus)
		return 0;
	/* By luck fewer had more of the host's time for a while. */
	if (pack->beaten_m && pack->sums.windows >= PACK_SKIP + PACK_REGRET_WINDOWS &&
	    (u64)pack_mean(&pack->sums, pack->sums.useful_m) * 100 <
		    (u64)pack->beaten_m * (100 - PACK_REGRET_PERCENT)) {
		pack->beaten_m = 0;
		pack->tried_one = 1;
		pack->more_wait_ns = 0;
		pack->more_ns = 0;
	}
	pack->quiet = wanted_m * 100 <= (u64)use * 1000 * PACK_QUIET_PERCENT ? pack->quiet + 1 : 0;
	if (pack->quiet >= PACK_QUIET_WINDOWS) {
		pack->more_wait_ns = 0;
		pack_begin(pack, PACK_SETTLED, pack->vcpus);
		return 0;
	}
	if (pack->sums.windows <= PACK_SKIP + PACK_TRIAL_WINDOWS)
		return 0;
	/* Another load than the one that more vCPUs did not help. */
	if (pack->tried_wakes | pack->tried_queued_m &&
	    (pack_differ(pack_mean(&pack->sums, pack->sums.queued_m), pack->tried_queued_m) ||
	     pack_differ(pack_mean(&pack->sums, pack->sums.wakes), pack->tried_wakes))) {
		pack->more_wait_ns = 0;
		pack->more_ns = 0;
		pack->tried_one = 1;
	}
	/* Where those in use are not busy, nobody waits for more. */
	if ((on_m + off_m) * 100 < (u64)use * 1000 * PACK_BUSY_PERCENT)
		return 0;
	one = !pack->tried_one && use + 1 < pack->vcpus && facts->queued_m &&
	      !pack_is_overcommitted(on_m, off_m);
	if (now_ns < (one ? pack->one_ns : pack->more_ns))
		return 0;
	pack->tried_queued_m = pack_mean(&pack->sums, pack->sums.queued_m);
	pack->tried_wakes = pack_mean(&pack->sums, pack->sums.wakes);
	pack_start_trial(pack, one ? use + 1 : pack->vcpus);
	return 0;
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
		if (!pack_search(pack, facts) && (pack_is_lost(pack) || pack_is_over(pack)))
			pack_judge(pack, now_ns);
	} else if (pack->sums.windows > PACK_SKIP) {
		pack_settled(pack, facts, now_ns);
	}
	return pack_use(pack);
}

#endif /* UNSPIN_POLICY_PACK_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which vCPU of its VM a vCPU that spins in a pause loop yields to.
 *
 * Follows kvm_vcpu_on_spin() and kvm_vcpu_eligible_for_directed_yield() of virt/kvm/kvm_main.c
 * through their history, and Strict Boost:
 *
 *   2009      "KVM: introduce kvm_vcpu_on_spin": sleep for 100 us or until an interrupt comes,
 *             without a target (2.6.33).
 *   2011      217ece6129f2: yield_to() round robin, but not to halted vCPUs (2.6.39).
 *   2012      "KVM: Choose better candidate for directed yield": a vCPU that is in this function
 *             itself is passed over every other time (3.6).
 *   2013      "kvm: Record the preemption status of vcpus using preempt notifiers": preempted
 *             ones only; three attempts (3.10).
 *   2017      199b5763d329: a vCPU that spins in kernel mode yields to one in kernel mode (4.14).
 *   2019      d73eb57b80b9: just woken ones, too, in either mode; halted ones if an interrupt
 *             waits for them (5.3).
 *   mainline  52acd22faa1a: a pending interrupt counts as kernel mode (5.13 to 7.3), but only with
 *             VMX's APICv.
 *   strict    Ishiguro et al., VEE '21, patch 2 of ple-kvm: preempted ones in kernel mode, and
 *             those with an interrupt pending that the spinner itself has sent.
 *
 *   ecs       Kashyap et al., USENIX ATC '18: first preempted ones in a critical section, then as
 *             mainline.
 *
 * Leaves out: priorities and time windows of "semantics-aware vCPU scheduling" (not merged).
 * KVM cannot read the mode of an SEV-ES guest, and passes in_kernel 0 for its spinner.
 */
#ifndef UNSPIN_POLICY_HOST_BOOST_H
#define UNSPIN_POLICY_HOST_BOOST_H

#include "config.h"

#define BOOST_VCPUS_MAX 256
#define BOOST_WORDS (BOOST_VCPUS_MAX / 64)

enum boost_policy {
	BOOST_OFF,
	BOOST_2009,
	BOOST_2011,
	BOOST_2012,
	BOOST_2013,
	BOOST_2017,
	BOOST_2019,
	BOOST_MAINLINE,
	BOOST_STRICT,
	BOOST_ECS,
};

/* Why a candidate is not chosen, in the order in which candidates are ruled out, and at last that
 * it is. So of several candidates, the greatest reason is that of the one that came nearest. A
 * host's record holds it for each pause loop; 0 is a record without reasons. */
enum boost_reason {
	/* The policy has no directed yield. */
	BOOST_NO_YIELD = 1,
	/* It is the spinner. */
	BOOST_SELF,
	/* It halts, and nothing waits for it. */
	BOOST_HALTED,
	/* It runs, or has nothing to run. */
	BOOST_NOT_READY,
	/* It has just been woken. */
	BOOST_NOT_PREEMPTED,
	/* It was preempted in user mode. */
	BOOST_USER_MODE,
	/* The spinner has sent it no interrupt, and it is in user mode. */
	BOOST_NO_IPI,
	/* It is in no critical section. */
	BOOST_NOT_CRITICAL,
	/* It was in a pause loop itself. */
	BOOST_SPINNING,
	/* The host's scheduler did not yield to it. */
	BOOST_REFUSED,
	BOOST_YES,
};

/* The facts about one vCPU. */
struct boost_facts {
	/* Its number in its VM, below BOOST_VCPUS_MAX. */
	u32 vcpu;
	/* 1: it is off: preempted, or woken and not yet run. */
	u32 ready;
	/* 1: it is off because it was preempted. */
	u32 preempted;
	/* 1: it runs, or was preempted, in kernel mode. */
	u32 in_kernel;
	/* 1: it was preempted in a critical section, and did not wait for one. */
	u32 critical;
	/* 1: it blocks in HLT. */
	u32 halted;
	/* 1: an interrupt waits for it. */
	u32 pending;
	/* 1: KVM sees that without entering the guest: APICv. */
	u32 posted;
	/* 1: it gave way in a pause loop and has not run since. */
	u32 spinning;
	/* Of one that is spinning, 1: it may be chosen this time. See boost_dy_after(). */
	u32 dy_eligible;
	/* A bit for each vCPU that has sent it an interrupt since it ran last. */
	u64 ipi_from[BOOST_WORDS];
};

HOST_POLICY void boost_ipi_sent(struct boost_facts *to, u32 from)
{
	to->ipi_from[from / 64 % BOOST_WORDS] |= 1ULL << from % 64;
}

/* It enters the guest: all interrupts sent to it have arrived. */
HOST_POLICY void boost_entered(struct boost_facts *f)
{
	u32 i;

	for (i = 0; i < BOOST_WORDS; i++)
		f->ipi_from[i] = 0;
	f->pending = f->posted = f->spinning = f->dy_eligible = 0;
}

HOST_POLICY u32 boost_has_ipi(const struct boost_facts *f, u32 from)
{
	return f->ipi_from[from / 64 % BOOST_WORDS] >> from % 64 & 1;
}

/* How long a spinner sleeps instead of yielding to somebody; 0: it does not. */
HOST_POLICY u64 boost_sleep_ns(u32 policy)
{
	return policy == BOOST_2009 ? 100000 : 0;
}

/* After how many yields that found both pCPUs without competitors a spinner gives up. */
HOST_POLICY u32 boost_attempts(u32 policy)
{
	return policy < BOOST_2013 ? HOST_NONE : 3;
}

/* The rules of the policy's n-th look at all candidates, from 0 on; HOST_NONE: there is none. */
HOST_POLICY u32 boost_look(u32 policy, u32 n)
{
	if (n > (policy == BOOST_ECS))
		return HOST_NONE;
	return n ? BOOST_MAINLINE : policy;
}

/* The i-th candidate of n vCPUs, for i from 0 to n - 1: round robin, after the last one boosted
 * (HOST_NONE: none was). HOST_NONE: the policy has none. */
HOST_POLICY u32 boost_order(u32 policy, u32 last_boosted, u32 n, u32 i)
{
	if (policy <= BOOST_2009 || !n || i >= n)
		return HOST_NONE;
	return (u32)(((u64)(last_boosted + 1) + i) % n);
}

/* dy_eligible of a candidate from now on: it changes each time that it is judged while it is
 * spinning, and got that far. */
HOST_POLICY u32 boost_dy_after(const struct boost_facts *candidate, u32 verdict)
{
	u32 judged = verdict == BOOST_YES || verdict == BOOST_SPINNING;

	return candidate->spinning && judged ? !candidate->dy_eligible : candidate->dy_eligible;
}

/* Whether its mode rules the candidate out, in the policies that look at it. */
HOST_POLICY u32 boost_mode(const struct boost_facts *me, const struct boost_facts *c, u32 policy)
{
	if (policy == BOOST_STRICT) {
		if (boost_has_ipi(c, me->vcpu))
			return BOOST_YES;
		if (!c->preempted)
			return BOOST_NOT_PREEMPTED;
		return c->in_kernel ? BOOST_YES : BOOST_NO_IPI;
	}
	if (policy == BOOST_ECS)
		return c->preempted && c->critical ? BOOST_YES : BOOST_NOT_CRITICAL;
	if (policy < BOOST_2017 || !me->in_kernel || c->in_kernel)
		return BOOST_YES;
	if (policy >= BOOST_2019 && !c->preempted)
		return BOOST_YES;
	return policy >= BOOST_MAINLINE && c->posted ? BOOST_YES : BOOST_USER_MODE;
}

/* enum boost_reason: why the spinner `me` yields to the candidate, or why not. */
HOST_POLICY u32 boost_verdict(const struct boost_facts *me, const struct boost_facts *candidate,
				u32 policy)
{
	u32 verdict;

	if (policy <= BOOST_2009)
		return BOOST_NO_YIELD;
	if (candidate->vcpu == me->vcpu)
		return BOOST_SELF;
	if (candidate->halted && (policy < BOOST_2019 || !candidate->pending))
		return BOOST_HALTED;
	if (!candidate->ready)
		return BOOST_NOT_READY;
	if (!candidate->preempted && (policy == BOOST_2013 || policy == BOOST_2017))
		return BOOST_NOT_PREEMPTED;
	verdict = boost_mode(me, candidate, policy);
	if (verdict != BOOST_YES)
		return verdict;
	if (policy >= BOOST_2012 && candidate->spinning && !candidate->dy_eligible)
		return BOOST_SPINNING;
	return BOOST_YES;
}

#endif /* UNSPIN_POLICY_HOST_BOOST_H */

/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a host does with a pause loop of a guest whose registers it cannot read.
 *
 * PAUSE exits without the guest's knowledge, so the host chooses whom to yield to in the dark. A
 * guest that has agreed gets its pause loops reflected instead, as #VC with SVM's exit code, and
 * answers by VMGEXIT: its privilege level, what it waits for, and which vCPU has it. The host
 * honours the answer as far as its own facts allow.
 *
 *   CONFIG    SW_EXITCODE VNAE_CONFIG; INFO1: version, operation from bit 8 on (0: set); INFO2: the
 *             wanted set. INFO2 returns the granted set. A reset of the vCPU takes it back.
 *   answer    SW_EXITCODE VNAE_PAUSE_EXIT; INFO1: version, kind from bit 8 on, bit 16: the GHCB's
 *             CPL is valid. INFO2: two APIC IDs or ~0: low half who has it, high half who is
 *             before this vCPU in a queue. INFO2 returns an enum vnae_outcome.
 *
 * An answer counts once, for the reflection before it; whatever else the guest asks for by VMGEXIT
 * in between makes it void. A guest may lie: it can only choose among its own vCPUs that wait for
 * a pCPU.
 */
#ifndef UNSPIN_POLICY_HOST_VNAE_H
#define UNSPIN_POLICY_HOST_VNAE_H

#include "config.h"

#define VNAE_CONFIG 0xf0000001u
#define VNAE_PAUSE_EXIT 0x77u
#define VNAE_VERSION 1
#define VNAE_CPL_VALID (1u << 16)
/* In the sets of CONFIG. */
#define VNAE_SET_PAUSE (1u << 0)
#define VNAE_SET_HLT (1u << 1)
/* In place of a granted set: the request makes no sense. */
#define VNAE_BAD_CONFIG (~0ULL)
#define VNAE_NAMES 2

/* What the host uses of an answer. */
enum vnae_arm {
	/* It does not offer reflection. */
	VNAE_OFF,
	/* Nothing: what reflection costs. */
	VNAE_NONE,
	VNAE_CPL,
	VNAE_VCPU,
	VNAE_BOTH,
	/* As both, but the pCPU goes to a vCPU drawn by lot, not to the named one: the control. */
	VNAE_SHAM,
	/* As both, for guests that have not agreed, too: they must fail. */
	VNAE_FORCE,
};

/* What a vCPU spins for. */
enum vnae_kind {
	VNAE_KIND_NONE,
	VNAE_KIND_OWNER,
	VNAE_KIND_QUEUE,
	VNAE_KIND_IPI,
	VNAE_KIND_SLEEPLOCK,
	VNAE_KINDS
};

/* What a named vCPU does, as the host knows. */
enum vnae_state {
	/* The guest has named nobody. */
	VNAE_NOBODY,
	/* The name is out of range, or is the answering vCPU itself. */
	VNAE_INVALID,
	/* It waits for a pCPU. */
	VNAE_READY,
	VNAE_RUNNING,
	VNAE_HALTED,
};

enum vnae_outcome {
	VNAE_YIELDED,
	VNAE_TARGET_RUNNING,
	VNAE_REFUSED,
	/* The host has chosen by itself. */
	VNAE_OWN_CHOICE,
};

/* A vCPU's part of the agreement. */
struct vnae {
	u32 granted;
	/* 1: a pause loop was reflected, and no VMGEXIT has come since. */
	u32 outstanding;
};

struct vnae_answer {
	/* 0: its form is not that of version 1. */
	u32 valid;
	/* enum vnae_kind */
	u32 kind;
	/* 1: the privilege level is known to be the user's. */
	u32 user;
	/* APIC IDs; HOST_NONE: nobody. */
	u32 name[VNAE_NAMES];
};

struct vnae_verdict {
	/* enum vnae_outcome: VNAE_YIELDED asks for a directed yield, VNAE_OWN_CHOICE for boost.h. */
	u32 outcome;
	/* Which name to yield to. */
	u32 name;
	/* For the own choice, 1: the spinner is in kernel mode as far as the host may know. */
	u32 in_kernel;
};

/* The vCPU is reset. */
HOST_POLICY void vnae_reset(struct vnae *v)
{
	v->granted = v->outstanding = 0;
}

/* CONFIG. Returns the granted set, or VNAE_BAD_CONFIG. The caller has refused it with VNAE_OFF. */
HOST_POLICY u64 vnae_config(struct vnae *v, u64 info_1, u64 wanted)
{
	if (info_1 != VNAE_VERSION)
		return VNAE_BAD_CONFIG;
	v->granted = wanted & VNAE_SET_PAUSE;
	return v->granted;
}

/* A pause loop leaves the guest: whether it is reflected. */
HOST_POLICY u32 vnae_reflects(struct vnae *v, u32 arm)
{
	u32 agreed = arm == VNAE_FORCE || (arm != VNAE_OFF && v->granted & VNAE_SET_PAUSE);

	if (!agreed || v->outstanding)
		return 0;
	v->outstanding = 1;
	return 1;
}

/* A VMGEXIT, whatever for. Returns whether a reflection is outstanding: an answer must be it. */
HOST_POLICY u32 vnae_vmgexit(struct vnae *v)
{
	u32 outstanding = v->outstanding;

	v->outstanding = 0;
	return outstanding;
}

HOST_POLICY struct vnae_answer vnae_parse(u64 info_1, u64 info_2, u32 cpl)
{
	struct vnae_answer a = { 0, (u32)(info_1 >> 8 & 0xff), 0, { 0, 0 } };

	a.valid = (info_1 & 0xff) == VNAE_VERSION && a.kind < VNAE_KINDS && info_1 >> 17 == 0;
	a.user = info_1 & VNAE_CPL_VALID && cpl != 0;
	a.name[0] = (u32)info_2;
	a.name[1] = (u32)(info_2 >> 32);
	return a;
}

/*
 * The lot of the sham: one of the n vCPUs that wait for a pCPU. It is drawn where the names lead to
 * a yield, so that a sham yields as often as both, and differs from it by the vCPU alone. HOST_NONE:
 * nobody waits.
 */
HOST_POLICY u32 vnae_sham(u64 random, u32 n)
{
	return n ? (u32)(random % n) : HOST_NONE;
}

/*
 * The first name counts whose vCPU runs or waits for a pCPU. One that waits gets this pCPU. Where
 * it runs, what the spinner waits for is under way, and a yield to the second one could take its
 * pCPU away. `state` holds an enum vnae_state for each name.
 */
HOST_POLICY struct vnae_verdict vnae_decide(u32 arm, u32 outstanding, const struct vnae_answer *a,
					    const u32 *state)
{
	struct vnae_verdict v = { VNAE_OWN_CHOICE, 0, 1 };
	u32 i, invalid = 0;

	if (!outstanding || !a->valid) {
		v.outcome = VNAE_REFUSED;
		return v;
	}
	if ((arm == VNAE_CPL || arm == VNAE_BOTH || arm == VNAE_FORCE) && a->user)
		v.in_kernel = 0;
	if (arm == VNAE_NONE || arm == VNAE_CPL)
		return v;
	for (i = 0; i < VNAE_NAMES; i++) {
		if (state[i] == VNAE_READY || state[i] == VNAE_RUNNING) {
			v.outcome = state[i] == VNAE_READY ? VNAE_YIELDED : VNAE_TARGET_RUNNING;
			v.name = i;
			return v;
		}
		invalid |= state[i] == VNAE_INVALID;
	}
	if (invalid)
		v.outcome = VNAE_REFUSED;
	return v;
}

#endif /* UNSPIN_POLICY_HOST_VNAE_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Estimates from its ticks how much a vCPU spins: a tick that interrupts a spinning function counts
 * for the time since the tick before. This costs nothing between ticks. It misses spins with
 * interrupts disabled, which also hold back the tick. Define spins_in_user() before you include
 * this file, as user_spin.h does.
 */
#ifndef UNSPIN_BPF_SAMPLES_H
#define UNSPIN_BPF_SAMPLES_H

#include "core/peek.h"

#ifdef OWN_TIMERS_ONLY
/* On such a kernel, programs cannot find the interrupt's registers, either. */
static u64 interrupted_at(void)
{
	return 0;
}
#else
extern const struct pt_regs *__irq_regs __ksym;

/* Returns the instruction that the interrupt hit. */
static u64 interrupted_at(void)
{
	const struct pt_regs **slot = bpf_this_cpu_ptr(&__irq_regs);
	const struct pt_regs *regs = *slot;

	return regs ? PEEK(regs, struct pt_regs, ip) : 0;
}
#endif

static bool is_spinning(u64 ip)
{
	u32 i;

	for (i = 0; i < SPINNING_RANGES && ip >= settings.spinning[i].from; i++) {
		if (ip < settings.spinning[i].to)
			return true;
	}
	return false;
}

/* The vCPU leaves idle: begins a new sampling period. */
static void restart_sampling(struct vcpu *v, u64 now_ns)
{
	v->samples.last_ns = now_ns;
	v->samples.last_off_ns = v->off_ns;
}

/* Counts a tick for the time that the vCPU was on since the tick before. Returns whether it
 * spins in the kernel now. */
static bool sample(struct vcpu *v, u64 now_ns)
{
	u64 since_ns = now_ns - v->samples.last_ns;
	u64 off_ns = v->off_ns - v->samples.last_off_ns;
	u64 ip = interrupted_at();
	bool spins = is_spinning(ip);

	v->samples.count++;
	/* Kernel addresses are negative; 0 is unknown. */
	v->samples.user_count += (s64)ip > 0;
	if (v->samples.last_ns && off_ns < since_ns) {
		if (spins)
			v->samples.spin_ns += since_ns - off_ns;
		else if (spins_in_user(ip))
			v->samples.user_spin_ns += since_ns - off_ns;
	}
	restart_sampling(v, now_ns);
	return spins;
}

#endif /* UNSPIN_BPF_SAMPLES_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The records of all vCPUs, and how a sign of life is judged: what the sensor and the
 * scheduler share.
 */
#ifndef UNSPIN_BPF_VCPU_H
#define UNSPIN_BPF_VCPU_H

#include "sense/sense.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

/* A kernel that does not say where its timers are (no CONFIG_KALLSYMS_ALL) leaves only ours. */
#ifdef OWN_TIMERS_ONLY
#define BEATS_ALONE 1
#else
#define BEATS_ALONE 0
extern const struct hrtimer_cpu_base hrtimer_bases __ksym;
#endif

static struct vcpu *this_vcpu(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&vcpus, &cpu);
}

/* When this vCPU's next timer interrupt is due as its kernel says; 0: that is not known. */
static u64 kernels_due_ns(void)
{
#ifdef OWN_TIMERS_ONLY
	return 0;
#else
	const struct hrtimer_cpu_base *base = bpf_this_cpu_ptr(&hrtimer_bases);
	s64 next = base->expires_next;

	return next == KTIME_MAX ? 0 : next;
#endif
}

static u64 earlier(u64 a_ns, u64 b_ns)
{
	if (!a_ns || !b_ns)
		return a_ns + b_ns;
	return a_ns < b_ns ? a_ns : b_ns;
}

/* When the next timer interrupt is due, seen from now. A heartbeat that has expired waits
 * for its softirq, not for an interrupt. */
static u64 due_ns(const struct vcpu *v, u64 now_ns)
{
	return earlier(kernels_due_ns(), v->beat_due_ns > now_ns ? v->beat_due_ns : 0);
}

struct found_off {
	struct activity_off off;
	bool was_idle;
};

/* It is no longer idle, and was asked to run at an instant. */
static void end_idle(struct vcpu *v, u64 asked_ns)
{
	if (v->idle_since_ns && asked_ns > v->idle_since_ns)
		v->idle_ns += asked_ns - v->idle_since_ns;
	v->idle_since_ns = 0;
}

/* This vCPU runs now, and its next timer interrupt is due then. Tells the off interval
 * behind it; its end is 0 where there was none. */
static void observe(struct vcpu *v, const struct activity_limits *limits, u64 now_ns, u64 due,
		  struct found_off *found)
{
	found->was_idle = v->activity.idle;
	activity_set_timer(&v->activity, due_ns(v, v->activity.alive_ns));
	if (v->activity.idle) {
		found->off = activity_resume(&v->activity, limits, now_ns, due);
		end_idle(v, found->off.end_ns ? found->off.earliest_ns : now_ns);
	} else {
		found->off = activity_alive(&v->activity, limits, now_ns, due);
	}
	if (found->off.end_ns) {
		v->offs++;
		v->off_ns += activity_off_ns(&found->off);
	}
}

#endif /* UNSPIN_BPF_VCPU_H */

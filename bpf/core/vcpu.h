/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The records of all vCPUs, and what a sign of life adds to them. The sensor and the scheduler
 * share this.
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

/* Without CONFIG_KALLSYMS_ALL, programs cannot find the kernel's timers. The heartbeat is then the
 * only timer whose expiry is known. */
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

/* Returns when the kernel's next timer interrupt on this vCPU is due; 0: unknown. */
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

/* Returns when the next timer interrupt is due. A heartbeat that has expired does not count: it
 * waits for its softirq, not for an interrupt. */
static u64 due_ns(const struct vcpu *v, u64 now_ns)
{
	return earlier(kernels_due_ns(), v->beat_due_ns > now_ns ? v->beat_due_ns : 0);
}

struct found_off {
	struct activity_off off;
	bool was_idle;
};

/* Ends the idle time of a vCPU that was asked to run at asked_ns. */
static void end_idle(struct vcpu *v, u64 asked_ns)
{
	if (v->idle_since_ns && asked_ns > v->idle_since_ns)
		v->idle_ns += asked_ns - v->idle_since_ns;
	v->idle_since_ns = 0;
}

/* Notes that this vCPU runs now, and when its next timer interrupt is due. Gives the off interval
 * that has just ended; its end is 0 if there was none. */
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
		v->last_off = found->off;
	}
}

#endif /* UNSPIN_BPF_VCPU_H */

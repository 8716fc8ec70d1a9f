/* SPDX-License-Identifier: GPL-2.0-only */
/* Notes when an idle vCPU is asked to run. */
#ifndef UNSPIN_BPF_WAKE_H
#define UNSPIN_BPF_WAKE_H

static int wake(u32 cpu)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &cpu);

	if (v && v->activity.idle)
		activity_wake(&v->activity, bpf_ktime_get_ns());
	return 0;
}

#endif /* UNSPIN_BPF_WAKE_H */

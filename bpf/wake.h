/* SPDX-License-Identifier: GPL-2.0-only */
/* When an idle vCPU is asked to run. */
#ifndef UNSPIN_BPF_WAKE_H
#define UNSPIN_BPF_WAKE_H

static int wake(u32 cpu)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &cpu);

	if (v && v->activity.idle)
		activity_wake(&v->activity, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(ipi_send_cpu, u32 cpu)
{
	return wake(cpu);
}

SEC("tp_btf/sched_wake_idle_without_ipi")
int BPF_PROG(sched_wake_idle_without_ipi, int cpu)
{
	return wake(cpu);
}

#endif /* UNSPIN_BPF_WAKE_H */

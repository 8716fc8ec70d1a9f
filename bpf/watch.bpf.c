// SPDX-License-Identifier: GPL-2.0-only
/*
 * The light sensor: totals of each vCPU's time off, idle and spent spinning. Its programs run
 * only at infrequent events: ticks, entering and leaving idle, and calls that wake an idle vCPU.
 * It leaves out what sense.bpf.c has: single intervals, heartbeats, and waits with their causes;
 * and calls of several vCPUs at once, which are frequent when TLBs are flushed.
 */
#include "core/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "sense/sense.h"
#include "core/vcpu.h"

char LICENSE[] SEC("license") = "GPL";

/* The agent sets them before it loads the programs. */
const volatile struct settings settings = {};

static void answered_after(u64 ns)
{
}

static void idle_changed(u32 cpu, bool idle)
{
}

static void found_spinning(u64 now_ns)
{
}

#include "sense/user_spin.h"
#include "sense/ticks.h"
#include "sense/wake.h"

SEC("tp_btf/local_timer_entry")
int BPF_PROG(local_timer_entry, int vector)
{
	return begin_timer();
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(local_timer_exit, int vector)
{
	return end_timer();
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, u32 entered, u32 cpu)
{
	return change_idle(entered, cpu);
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

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exact accounting of spins: how long each vCPU is in slow paths that wait without sleeping, by
 * their entry and exit. It counts with interrupts enabled and disabled, and needs neither the
 * owner of the lock nor a stack. An uncontended acquire does not enter a slow path.
 *
 * Slow paths nest: an interrupt's inside a task's, osq_lock() inside rwsem_optimistic_spin().
 * Only the outermost one is counted. Its frame identifies it: the programs at the entry and the
 * exit of a function get the same address as their context, that of the trampoline's frame. These
 * functions run with preemption disabled, so task and vCPU are the same at both ends.
 * smp_call_function_single() is left out, because it enables preemption before it returns. From
 * Linux 7.3 on, smp_call_function_many_cond() waits with preemption enabled (8df8a6028309). If a
 * task loses its vCPU during a wait, the vCPU's next tick drops the wait.
 *
 * A guest without PV spinlocks on a hypervisor that announces itself takes test-and-set locks,
 * which spin in virt_spin_lock(), inlined into native_queued_spin_lock_slowpath().
 *
 * Each function is optional. The agent skips those that the kernel lacks, and names them. If the
 * kernel can attach a program to several functions at once, enter_all() and leave_all() replace
 * the programs of the functions.
 */
#include "core/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "sense/account.h"
#include "sense/sense.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* The light sensor's records (watch.bpf.c). The agent makes both objects share one map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

/* A longer spin is one whose end was missed. */
#define LOST_NS 1000000000ULL
/* If a vCPU spins for ALARM_NS in a window of WINDOW_NS, it wakes the agent. So do ALARM_WAITS,
 * which cost 2 % to count, if the agent would look at nothing else for long. */
#define WINDOW_NS 10000000ULL
#define ALARM_NS 1000000ULL
#define ALARM_WAITS 200

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} alarms SEC(".maps");

/* 1, or RESTS_LONG, while the agent sleeps until the alarm. The agent sets it, and the program that
 * raises the alarm clears it. */
volatile u32 agent_rests;
#define RESTS_LONG 2

static struct account *this_account(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&accounts, &cpu);
}

static int enter(void *frame)
{
	struct account *a = this_account();
	u64 task = bpf_get_current_task();
	u64 now_ns = bpf_ktime_get_ns();

	if (!a)
		return 0;
	if (a->since_ns) {
		/* An interrupt runs as the task that it interrupts. */
		if (a->task == task && a->frame != (u64)frame && now_ns - a->since_ns < LOST_NS)
			return 0;
		/* The end was missed: the kernel skips a program that an interrupt would start
		 * while it runs. */
		a->lost++;
	}
	/* In this order, because an interrupt may spin in between: before since_ns is set, its
	 * own leave() clears what it wrote; after that, its enter() finds a spin under way. */
	a->task = task;
	barrier();
	*(volatile u64 *)&a->since_ns = now_ns;
	barrier();
	a->frame = (u64)frame;
	return 0;
}

static void count_window(struct account *a, u64 now_ns, u64 spun_ns)
{
	u32 alarm = 1;

	if (now_ns - a->window_ns >= WINDOW_NS) {
		a->window_ns = now_ns;
		a->window_spin_ns = 0;
		a->window_waits = 0;
	}
	a->window_spin_ns += spun_ns;
	a->window_waits++;
	if (!agent_rests)
		return;
	if (a->window_spin_ns < ALARM_NS &&
	    (a->window_waits < ALARM_WAITS || agent_rests != RESTS_LONG))
		return;
	agent_rests = 0;
	bpf_ringbuf_output(&alarms, &alarm, sizeof(alarm), BPF_RB_FORCE_WAKEUP);
}

static int leave(void *frame)
{
	struct account *a = this_account();
	u64 now_ns, spun_ns;

	if (!a || !a->since_ns || a->frame != (u64)frame)
		return 0;
	now_ns = bpf_ktime_get_ns();
	spun_ns = now_ns - a->since_ns;
	a->spin_ns += spun_ns;
	a->spins++;
	a->last_since_ns = a->since_ns;
	a->last_end_ns = now_ns;
	count_window(a, now_ns, spun_ns);
	/* Last, so that an interrupt before it finds the outer spin still under way. */
	barrier();
	*(volatile u64 *)&a->since_ns = 0;
	return 0;
}

/* Books an off interval that has ended. It lies in a slow path that is still under way, or in one
 * that held the tick back with interrupts disabled. In the latter, the vCPU may also have been
 * on, so half of the interval counts as off. An interval that a late wake-up revealed ended
 * before this tick, and before any spin since. */
static void count_off(struct account *a, const struct activity_off *off)
{
	u64 held_ns = activity_off_within_ns(off, a->last_since_ns, a->last_end_ns) / 2;

	if (a->since_ns)
		a->spin_off_ns += activity_off_within_ns(off, a->since_ns, off->end_ns);
	a->spin_off_ns += held_ns;
	a->held_ns += held_ns;
}

/* The light sensor's program has already handled this tick. */
SEC("tp_btf/local_timer_entry")
int BPF_PROG(tick, int vector)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &cpu);
	struct account *a = this_account();

	if (!a || !v)
		return 0;
	if (v->last_off.end_ns != a->off_end_ns) {
		count_off(a, &v->last_off);
		a->off_end_ns = v->last_off.end_ns;
	}
	if (a->since_ns && a->task != bpf_get_current_task()) {
		*(volatile u64 *)&a->since_ns = 0;
		a->lost++;
	}
	return 0;
}

#define ACCOUNT(function)               \
	SEC("fentry/" #function)        \
	int enter_##function(void *ctx) \
	{                               \
		return enter(ctx);      \
	}                               \
	SEC("fexit/" #function)         \
	int leave_##function(void *ctx) \
	{                               \
		return leave(ctx);      \
	}

ACCOUNT(native_queued_spin_lock_slowpath)
ACCOUNT(__pv_queued_spin_lock_slowpath)
ACCOUNT(queued_spin_lock_slowpath)
ACCOUNT(queued_read_lock_slowpath)
ACCOUNT(queued_write_lock_slowpath)
/* Waits for other vCPUs to acknowledge an inter-processor call. */
ACCOUNT(smp_call_function_many_cond)
/* Sleeping locks whose waiters spin as long as the owner seems to run. */
ACCOUNT(osq_lock)
ACCOUNT(mutex_spin_on_owner)
ACCOUNT(rwsem_optimistic_spin)
ACCOUNT(rwsem_spin_on_owner)

SEC("fentry.multi")
int enter_all(void *ctx)
{
	return enter(ctx);
}

SEC("fexit.multi")
int leave_all(void *ctx)
{
	return leave(ctx);
}

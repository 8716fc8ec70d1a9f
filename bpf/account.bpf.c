// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exact accounting of spins: how long each vCPU is in slow paths that wait without sleeping,
 * by their entry and exit. It counts with interrupts on and off, and needs neither the owner
 * of the lock nor a stack. An uncontended acquire does not come here.
 *
 * Slow paths nest: an interrupt's within a task's, osq_lock() within rwsem_optimistic_spin().
 * The outermost one is counted, which its frame identifies: both programs of a function get
 * the address of the same trampoline's frame as their context. These functions run with preemption
 * disabled, so the task is the same at both ends, and so is the vCPU. That is why
 * smp_call_function_single() is left out: it enables preemption before it returns. From Linux 7.3
 * on, smp_call_function_many_cond() waits with preemption enabled (8df8a6028309). A wait whose task
 * lost its vCPU is forgotten at that vCPU's next tick.
 *
 * A guest without PV spinlocks on a hypervisor that announces itself takes test-and-set locks,
 * which spin in virt_spin_lock(), inlined into native_queued_spin_lock_slowpath().
 *
 * Each function is optional. The agent leaves out those that the kernel does not have and
 * names them.
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

/* The light sensor's records (watch.bpf.c), which the agent puts here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

/* A spin that lasts longer is one whose end was not seen. */
#define LOST_NS 1000000000ULL
/* A vCPU that spins for so long in a window of so long wakes the agent. */
#define WINDOW_NS 10000000ULL
#define ALARM_NS 1000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} alarms SEC(".maps");

/* Whether the agent rests until then. It sets this, and who wakes it clears it. */
volatile u32 agent_rests;

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
		/* An interrupt has the task that it interrupts. */
		if (a->task == task && a->frame != (u64)frame && now_ns - a->since_ns < LOST_NS)
			return 0;
		/* The kernel skips a program that an interrupt would start while it runs. */
		a->lost++;
	}
	/* In this order, because an interrupt may spin in between: before since_ns is set, it undoes all
	 * that it writes here, and then it finds a spin under way. */
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
	}
	a->window_spin_ns += spun_ns;
	if (a->window_spin_ns < ALARM_NS || !agent_rests)
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
	/* Last, so that an interrupt before it finds the outer spin under way. */
	barrier();
	*(volatile u64 *)&a->since_ns = 0;
	return 0;
}

/* An off interval is over. It lies in a slow path that goes on, or in one that held the tick back
 * by disabled interrupts. There the vCPU may have been on as well: half of it counts as off. One
 * that a late wake-up showed ended before this tick, and before the spins since. */
static void count_off(struct account *a, const struct activity_off *off)
{
	u64 held_ns = activity_off_within_ns(off, a->last_since_ns, a->last_end_ns) / 2;

	if (a->since_ns)
		a->spin_off_ns += activity_off_within_ns(off, a->since_ns, off->end_ns);
	a->spin_off_ns += held_ns;
	a->held_ns += held_ns;
}

/* The light sensor has looked at this tick before. */
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

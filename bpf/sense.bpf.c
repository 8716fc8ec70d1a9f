// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sensor: gathers each vCPU's signs of life, finds off intervals in them by policy/activity.h,
 * and reports these. Signs of life are events that happen anyway: interrupts, task switches, and
 * entering or leaving idle. If the next one may be too far away, the sensor adds a heartbeat. It
 * never wakes an idle vCPU. It also reports spins (spin.h).
 */
#include "core/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "sense/sense.h"
#include "core/peek.h"
#include "core/vcpu.h"

char LICENSE[] SEC("license") = "GPL";

/* The agent sets them before it loads the programs. */
const volatile struct settings settings = {};

#include "sense/user_spin.h"
#include "sense/samples.h"

/* The shortest time between two heartbeats of a vCPU that is not idle; 0: no heartbeats. The agent
 * may change it at any time. */
volatile u64 beat_ns SEC(".data.beat");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

struct heart {
	struct bpf_timer timer;
	u32 ready;
	u32 beating;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct heart);
} hearts SEC(".maps");

/* Reserves the next slot of this vCPU's ring. An interrupt that comes now gets the slot after
 * it. */
static struct event *begin_event(u64 *seq)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = bpf_map_lookup_elem(&rings, &cpu);
	struct event *event;
	u64 number;

	if (!ring)
		return 0;
	number = __sync_fetch_and_add(&ring->head, 1);
	event = &ring->events[number % RING_EVENTS];
	*(volatile u64 *)&event->seq = 0;
	*seq = number + 1;
	return event;
}

static void end_event(struct event *event, u64 seq)
{
	barrier();
	*(volatile u64 *)&event->seq = seq;
}

static void observe_and_report(struct vcpu *v, u64 now_ns, u64 due)
{
	struct activity_limits limits = settings.limits;
	struct found_off found = {};
	struct activity_off *off = &found.off;
	struct event *event;
	u64 seq;

	/* A heartbeat runs with interrupts enabled. An interrupt during observe() would find
	 * the same off interval again; so would a heartbeat after an interrupt that has already
	 * found it. */
	if (*(volatile u64 *)&v->observing || now_ns < v->activity.alive_ns)
		return;
	*(volatile u64 *)&v->observing = 1;
	barrier();
	observe(v, &limits, now_ns, due, &found);
	barrier();
	*(volatile u64 *)&v->observing = 0;
	if (!off->end_ns)
		return;
	event = begin_event(&seq);
	if (!event)
		return;
	event->kind = EVENT_OFF;
	event->off.earliest_ns = off->earliest_ns;
	event->off.latest_ns = off->latest_ns;
	event->off.end_ns = off->end_ns;
	event->off.was_idle = found.was_idle;
	end_event(event, seq);
}

static int note_alive(struct vcpu *v)
{
	struct activity_limits limits = settings.limits;
	u64 now_ns = bpf_ktime_get_ns();

	if (!activity_is_early(&v->activity, &limits, now_ns))
		observe_and_report(v, now_ns, due_ns(v, now_ns));
	return 0;
}

static int this_is_alive(void)
{
	struct vcpu *v = this_vcpu();

	return v ? note_alive(v) : 0;
}

/* Arms the next heartbeat. */
static void set_heart(struct vcpu *v, struct heart *heart)
{
	u64 now_ns = bpf_ktime_get_ns();
	u64 next_ns = activity_beat_ns(&v->activity, beat_ns, BEATS_ALONE, now_ns);
	u64 due_ns = v->activity.due_ns;

	if (!next_ns)
		return;
	/* Arming a timer causes an exit, so the intended expiry must be recorded before. */
	v->beat_due_ns = now_ns + next_ns;
	v->activity.due_ns = earlier(due_ns, v->beat_due_ns);
	heart->beating = !bpf_timer_start(&heart->timer, next_ns, BPF_F_TIMER_CPU_PIN);
	/* Linux before 6.7 refuses the flag. The timer of a vCPU that is not idle stays there
	 * even so. */
	if (!heart->beating)
		heart->beating = !bpf_timer_start(&heart->timer, next_ns, 0);
	if (!heart->beating) {
		v->beat_due_ns = 0;
		v->activity.due_ns = due_ns;
	}
}

static int beat(void *map, u32 *cpu, struct heart *heart)
{
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, cpu);

	if (!v)
		return 0;
	v->beats++;
	heart->beating = 0;
	v->beat_due_ns = 0;
	/* The timers of a vCPU that goes offline move to another vCPU. A heartbeat there would
	 * report that vCPU's off intervals as those of the first. */
	if (*cpu == bpf_get_smp_processor_id() && (u32)bpf_get_current_pid_tgid())
		set_heart(v, heart);
	return this_is_alive();
}

#include "sense/wake_all.h"
#include "sense/spin.h"
#include "core/glibc.h"
#include "sense/wait.h"

/* Timer interrupts are the signs of life of a vCPU that computes, and the first ones of a vCPU that
 * leaves idle. */
SEC("tp_btf/local_timer_entry")
int BPF_PROG(local_timer_entry, int vector)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct vcpu *v = this_vcpu();
	struct heart *heart;
	bool was_idle;

	if (beat_ns) {
		heart = bpf_map_lookup_elem(&hearts, &cpu);
		if (heart && !heart->ready && !bpf_timer_init(&heart->timer, &hearts, CLOCK_MONOTONIC) &&
		    !bpf_timer_set_callback(&heart->timer, beat))
			heart->ready = 1;
	}
	if (!v)
		return 0;
	was_idle = v->activity.idle;
	note_alive(v);
	if (!was_idle)
		sample(v, bpf_ktime_get_ns());
	return 0;
}

/* If the vCPU was off when a heartbeat was due, the entry of this interrupt has found that. The
 * heartbeat's softirq runs at once, or milliseconds later if the interrupt hit another softirq
 * or a section with softirqs disabled. So an expired heartbeat is not due now. If heartbeats
 * are the only known timer, nothing is due until the softirq arms the next one. An off interval
 * that begins before that is not detected, but a late softirq is not mistaken for one. */
SEC("tp_btf/local_timer_exit")
int BPF_PROG(local_timer_exit, int vector)
{
	struct vcpu *v = this_vcpu();
	u64 now_ns = bpf_ktime_get_ns();

	if (v)
		observe_and_report(v, now_ns, due_ns(v, now_ns));
	return 0;
}

SEC("tp_btf/reschedule_entry")
int BPF_PROG(reschedule_entry, int vector)
{
	return this_is_alive();
}

SEC("tp_btf/call_function_entry")
int BPF_PROG(call_function_entry, int vector)
{
	return this_is_alive();
}

SEC("tp_btf/call_function_single_entry")
int BPF_PROG(call_function_single_entry, int vector)
{
	return this_is_alive();
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq)
{
	return this_is_alive();
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct vcpu *v = this_vcpu();
	struct heart *heart;

	if (!v)
		return 0;
	note_alive(v);
	end_spin_at_switch(ctx);
	if (!beat_ns || !next->pid)
		return 0;
	heart = bpf_map_lookup_elem(&hearts, &cpu);
	if (heart && heart->ready && !heart->beating)
		set_heart(v, heart);
	return 0;
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, u32 state, u32 cpu)
{
	struct vcpu *v = this_vcpu();
	u64 now_ns;

	if (!v)
		return 0;
	note_alive(v);
	now_ns = bpf_ktime_get_ns();
	if (state != PWR_EVENT_EXIT) {
		activity_idle(&v->activity, now_ns, due_ns(v, now_ns));
		v->idle_since_ns = now_ns;
	} else {
		restart_sampling(v, now_ns);
	}
	return 0;
}

SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(ipi_send_cpu, u32 cpu)
{
	return wake(cpu);
}

SEC("tp_btf/ipi_send_cpumask")
int BPF_PROG(ipi_send_cpumask, const u64 *mask)
{
	return wake_all(mask);
}

SEC("tp_btf/sched_wake_idle_without_ipi")
int BPF_PROG(sched_wake_idle_without_ipi, int cpu)
{
	return wake(cpu);
}

SEC("fentry/native_queued_spin_lock_slowpath")
int BPF_PROG(slowpath_begin, void *lock)
{
	begin_spin((u64)lock, LCB_F_SPIN);
	return 0;
}

SEC("fexit/native_queued_spin_lock_slowpath")
int BPF_PROG(slowpath_end, void *lock)
{
	end_spin(ctx, (u64)lock, true);
	return 0;
}

/* The slow path's name without CONFIG_PARAVIRT_SPINLOCKS. The agent loads only the programs of the
 * name that the kernel has. */
SEC("fentry/queued_spin_lock_slowpath")
int BPF_PROG(slowpath_begin_plain, void *lock)
{
	begin_spin((u64)lock, LCB_F_SPIN);
	return 0;
}

SEC("fexit/queued_spin_lock_slowpath")
int BPF_PROG(slowpath_end_plain, void *lock)
{
	end_spin(ctx, (u64)lock, true);
	return 0;
}

SEC("fentry/kvm_wait")
int BPF_PROG(pv_halt_begin)
{
	return begin_halt();
}

SEC("fexit/kvm_wait")
int BPF_PROG(pv_halt_end)
{
	return end_halt();
}

SEC("fentry/smp_call_function_many_cond")
int BPF_PROG(ipi_begin)
{
	begin_spin(0, WAIT_IPI);
	return 0;
}

SEC("fexit/smp_call_function_many_cond")
int BPF_PROG(ipi_end)
{
	end_spin(ctx, 0, false);
	return 0;
}

SEC("fentry/futex_wait")
int BPF_PROG(futex_begin, const void *word)
{
	return begin_futex(word);
}

SEC("fexit/futex_wait")
int BPF_PROG(futex_end, const void *word)
{
	end_sleep(ctx, (u64)word);
	return 0;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, u32 flags)
{
	if (flags & LCB_F_SPIN) {
		begin_spin((u64)lock, flags);
		return 0;
	}
	/* Spinning did not get the mutex: the same wait goes on asleep. */
	end_spin(ctx, (u64)lock, false);
	/* A plain semaphore has no flags and no owner. */
	if (flags & (LCB_F_MUTEX | LCB_F_READ | LCB_F_WRITE) && !(flags & (LCB_F_RT | LCB_F_PERCPU)))
		begin_sleep((u64)lock, flags);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int ret)
{
	end_spin(ctx, (u64)lock, !ret);
	end_sleep(ctx, (u64)lock);
	return 0;
}

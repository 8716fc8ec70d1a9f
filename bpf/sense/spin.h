/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spins in the kernel: which task waited for which lock, from where, how long, and which vCPU had
 * the lock meanwhile. The kernel reports contention with two tracepoints (since 5.19). With a
 * test-and-set spinlock, they do not fire. With a native queued one, they do not fire for the
 * first waiter, which spins on the lock word and not in the queue. So the sensor also watches the
 * slow path itself. A wait for other vCPUs to acknowledge an inter-processor call counts as a
 * spin.
 *
 * Spinning for a lock disables preemption, so the spins of a vCPU form a stack: an interrupt's
 * spin lies above a task's. A spin ends when its vCPU switches tasks, at the latest. Waits that
 * sleep are in wait.h.
 *
 * Most spins are too short to report, so the work for each spin is small.
 */
#ifndef UNSPIN_BPF_SPIN_H
#define UNSPIN_BPF_SPIN_H

#include "core/owner.h"

/* A task, a softirq, an interrupt and an NMI. */
#define SPIN_DEPTH 4

struct spins {
	u64 depth;
	/* When the vCPU halted in the topmost spin; 0 if it is not halted. */
	u64 halted_since_ns;
	struct wait stack[SPIN_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spins);
} spins SEC(".maps");

/* The vCPU that took a contended lock last, and when. Two locks of the same slot overwrite each
 * other. */
struct taken {
	u64 lock;
	u64 ns;
	u64 cpu;
};

#define TAKEN_BITS 12

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << TAKEN_BITS);
	__type(key, u32);
	__type(value, struct taken);
} taken SEC(".maps");

static struct spins *this_spins(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&spins, &zero);
}

/* Returns how long a task has waited for a CPU in total; 0 if the kernel does not count it. */
static u64 run_delay_ns(const void *task)
{
	if (!bpf_core_field_exists(((struct task_struct *)0)->sched_info.run_delay))
		return 0;
	return PEEK(task, struct task_struct, sched_info.run_delay);
}

static void look_at_owner(struct wait *wait, const void *task)
{
	wait->owner_tid = PEEK(task, struct task_struct, pid);
	wait->owner_cpu = PEEK(task, struct task_struct, thread_info.cpu);
	if (PEEK(task, struct task_struct, on_cpu))
		wait->owner_state = OWNER_RUNNING;
	else if (PEEK(task, struct task_struct, __state))
		wait->owner_state = OWNER_ASLEEP;
	else
		wait->owner_state = OWNER_RUNNABLE;
	if (wait->flags & WAIT_ASLEEP)
		wait->owner_delay_ns = run_delay_ns(task);
}

/* Fills in the owner, if the lock's word names it. */
static void find_owner(struct wait *wait)
{
	u64 task = 0;

	if (wait->flags & LCB_F_MUTEX)
		task = mutex_owner(wait->lock);
	else if (wait->flags & WAIT_ASLEEP)
		task = rwsem_owner(wait->lock);
	if (task)
		look_at_owner(wait, (const void *)task);
}

static void begin_wait(struct wait *wait, u64 lock, u32 flags)
{
	wait->begin_ns = bpf_ktime_get_ns();
	wait->lock = lock;
	wait->flags = flags;
	wait->tid = bpf_get_current_pid_tgid();
	wait->owner_tid = 0;
	wait->owner_delay_ns = 0;
}

/* Returns whether this is the current task's spin for this lock. Otherwise it is a spin whose end
 * was missed. */
static bool is_ours(const struct wait *spin, u64 lock)
{
	return spin->lock == lock && spin->tid == (u32)bpf_get_current_pid_tgid();
}

static bool is_top(const struct spins *s, u64 depth, u64 lock)
{
	u64 at;

	for (at = 1; at < SPIN_DEPTH; at++)
		if (at == depth)
			return is_ours(&s->stack[at - 1], lock);
	return false;
}

static void begin_spin(u64 lock, u32 flags)
{
	struct spins *s = this_spins();
	u64 depth;

	if (!s)
		return;
	/* A full stack holds spins whose end was missed: clear it. */
	depth = s->depth < SPIN_DEPTH ? s->depth : 0;
	/* The entry of the slow path has already pushed the spin of a waiter that joins the
	 * queue. */
	if (lock && is_top(s, depth, lock))
		return;
	s->depth = depth + 1;
	begin_wait(&s->stack[depth], lock, flags);
	find_owner(&s->stack[depth]);
}

/* Notes that this vCPU has the lock now. Returns which vCPU took it before, if known. The lock's
 * address is a plain number here, which the verifier does not treat as a pointer. */
static struct taken take(u64 lock, u64 now_ns)
{
	u32 place = (u32)((lock * 0x9e3779b97f4a7c15ULL) >> (64 - TAKEN_BITS));
	struct taken *last = bpf_map_lookup_elem(&taken, &place);
	struct taken before = {};

	if (!last)
		return before;
	if (last->lock == lock)
		before = *last;
	last->lock = lock;
	last->ns = now_ns;
	last->cpu = bpf_get_smp_processor_id();
	return before;
}

/* Pops this task's spin for a lock, and all spins above it. The end of a spin can be missed,
 * because the kernel skips a program that an interrupt would start while it runs. A wait for
 * other vCPUs has lock 0. */
static struct wait *pop(struct spins *s, u64 lock)
{
	u64 at;

	for (at = SPIN_DEPTH; at > 0; at--) {
		if (at <= s->depth && is_ours(&s->stack[at - 1], lock)) {
			s->depth = at - 1;
			return &s->stack[at - 1];
		}
	}
	return 0;
}

/* Pops the spins that cannot go on when the vCPU switches tasks. Returns the spin of the task
 * that leaves, if a task can leave it: the task has given up spinning for a mutex, or is
 * preempted while it waits for other vCPUs (from Linux 7.3 on). The rest of such a wait is not
 * observed, because the task may end it on another vCPU. The end of every other popped spin was
 * missed. */
static struct wait *pop_at_switch(struct spins *s)
{
	struct wait *spin;
	u64 at;

	for (at = SPIN_DEPTH; at > 0; at--) {
		if (at > s->depth)
			continue;
		spin = &s->stack[at - 1];
		s->depth = at - 1;
		if (spin->flags & (LCB_F_MUTEX | WAIT_IPI) && is_ours(spin, spin->lock))
			return spin;
	}
	return 0;
}

/* Reports a wait with its stack, without the innermost frames_left_out frames. */
static void hand_on(void *ctx, const struct wait *wait, u64 end_ns, const struct taken *before,
		    u64 frames_left_out)
{
	struct event *event;
	u64 seq;

	event = begin_event(&seq);
	if (!event)
		return;
	event->kind = EVENT_WAIT;
	event->wait.wait = *wait;
	event->wait.end_ns = end_ns;
	event->wait.taken_ns = before->ns;
	event->wait.taken_cpu = before->cpu;
	__builtin_memset(event->wait.frames, 0, sizeof(event->wait.frames));
	bpf_get_stack(ctx, event->wait.frames, sizeof(event->wait.frames), frames_left_out);
	end_event(event, seq);
}

static void finish_spin(void *ctx, const struct wait *spin, bool got, u64 frames_left_out)
{
	struct vcpu *v = this_vcpu();
	struct taken before = {};
	u64 now_ns;

	if (!v)
		return;
	now_ns = bpf_ktime_get_ns();
	v->spins++;
	v->spin_ns += now_ns - spin->begin_ns;
	if (got)
		before = take(spin->lock, now_ns);
	if (now_ns - spin->begin_ns < settings.spin_ns)
		return;
	/* A shorter spin cannot hold an interrupt back for long. */
	activity_postpone(&v->activity, now_ns, due_ns(v, now_ns));
	hand_on(ctx, spin, now_ns, &before, frames_left_out);
}

/* Ends a spin: the vCPU has the lock, or gives up spinning for it. */
static void end_spin(void *ctx, u64 lock, bool got)
{
	struct spins *s = this_spins();
	struct wait *spin;

	if (!s || !s->depth)
		return;
	spin = pop(s, lock);
	if (spin)
		finish_spin(ctx, spin, got, 0);
}

/* A waiter of KVM's PV spinlock halts. An interrupt's halt overwrites that of the task below it. */
static int begin_halt(void)
{
	struct spins *s = this_spins();

	if (s)
		s->halted_since_ns = bpf_ktime_get_ns();
	return 0;
}

static int end_halt(void)
{
	struct spins *s = this_spins();
	u64 at, since_ns;

	if (!s || !s->halted_since_ns)
		return 0;
	since_ns = s->halted_since_ns;
	s->halted_since_ns = 0;
	for (at = 0; at < SPIN_DEPTH; at++)
		if (at + 1 == s->depth)
			s->stack[at].halted_ns += bpf_ktime_get_ns() - since_ns;
	return 0;
}

/* More frames lie between a task switch and the function that wanted the lock than a stack keeps.
 * The innermost ones belong to the program and its callers. A preempting interrupt adds more. */
#define FRAMES_OF_SWITCH 3
#define FRAMES_OF_PREEMPTION 8

/* mutex_optimistic_spin() gives up, and calls schedule(), if another task should run. The kernel
 * reports the end of that spin only when the waiter runs again, perhaps on another vCPU. */
static void end_spin_at_switch(void *ctx)
{
	struct spins *s = this_spins();
	struct wait *spin;
	bool is_preempted;

	if (!s || !s->depth)
		return;
	spin = pop_at_switch(s);
	if (!spin)
		return;
	is_preempted = spin->flags & WAIT_IPI;
	finish_spin(ctx, spin, false, is_preempted ? FRAMES_OF_PREEMPTION : FRAMES_OF_SWITCH);
}

#endif /* UNSPIN_BPF_SPIN_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spins in the kernel: who waited for which lock, from where, how long, and who had it
 * meanwhile. The kernel tells of contention with two tracepoints (since 5.19); where
 * its spinlock is a plain test-and-set one, as in a guest without any help, those say
 * nothing of it, and the slow path itself is watched. Waits for other vCPUs to
 * acknowledge an inter-processor call are spins, too.
 *
 * A wait that sleeps burns nothing and is left out. Spinning disables preemption, so a
 * vCPU's spins are a stack: an interrupt's above a task's.
 */
#ifndef UNSPIN_BPF_SPIN_H
#define UNSPIN_BPF_SPIN_H

/* A task, a softirq, an interrupt and an NMI. */
#define SPIN_DEPTH 4

struct spins {
	u64 depth;
	struct spin_event stack[SPIN_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spins);
} spins SEC(".maps");

/* Which vCPU took a contended lock last, and when. Two locks that fall into one place
 * make each other forgotten. */
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

/* What a mutex's owner does: the lock's word holds the task and three flags. */
static void look_at_owner(struct spin_event *spin)
{
	const struct mutex *mutex = (const struct mutex *)spin->lock;
	const struct task_struct *task;
	long word = 0;

	bpf_core_read(&word, sizeof(word), &mutex->owner.counter);
	task = (const struct task_struct *)(word & ~7L);
	if (!task)
		return;
	bpf_core_read(&spin->owner_tid, sizeof(spin->owner_tid), &task->pid);
	bpf_core_read(&spin->owner_cpu, sizeof(spin->owner_cpu), &task->thread_info.cpu);
	bpf_core_read(&spin->owner_running, sizeof(spin->owner_running), &task->on_cpu);
}

static void begin_spin(u64 lock, u32 flags)
{
	struct spins *s = this_spins();
	struct spin_event *spin;
	u64 depth;

	if (!s)
		return;
	/* Full of spins whose end went unnoticed: begin anew. */
	depth = s->depth < SPIN_DEPTH ? s->depth : 0;
	spin = &s->stack[depth];
	s->depth = depth + 1;
	__builtin_memset(spin, 0, sizeof(*spin));
	spin->begin_ns = bpf_ktime_get_ns();
	spin->lock = lock;
	spin->flags = flags;
	spin->tid = bpf_get_current_pid_tgid();
	if (flags & LCB_F_MUTEX)
		look_at_owner(spin);
}

/* Notes who has the lock now, and who had it before. */
static void take(struct spin_event *spin)
{
	u32 place = (u32)((spin->lock * 0x9e3779b97f4a7c15ULL) >> (64 - TAKEN_BITS));
	struct taken *last = bpf_map_lookup_elem(&taken, &place);

	if (!last)
		return;
	if (last->lock == spin->lock) {
		spin->taken_ns = last->ns;
		spin->taken_cpu = last->cpu;
	}
	last->lock = spin->lock;
	last->ns = spin->end_ns;
	last->cpu = bpf_get_smp_processor_id();
}

/* Takes the spin for a lock off the stack, with all that lies above it: a program that an
 * interrupt would start a second time is skipped, so the end of a spin can be missed. */
static struct spin_event *pop(struct spins *s, u64 lock)
{
	u64 at;

	for (at = SPIN_DEPTH; at > 0; at--) {
		if (at <= s->depth && s->stack[at - 1].lock == lock) {
			s->depth = at - 1;
			return &s->stack[at - 1];
		}
	}
	return 0;
}

/* The vCPU has the lock now, or gives up spinning for it. */
static void end_spin(void *ctx, u64 lock, bool got)
{
	struct spins *s = this_spins();
	struct vcpu *v = this_vcpu();
	struct spin_event *spin;
	struct event *event;
	u64 seq;

	if (!s || !v)
		return;
	spin = pop(s, lock);
	if (!spin)
		return;
	spin->end_ns = bpf_ktime_get_ns();
	v->spins++;
	v->spin_ns += spin->end_ns - spin->begin_ns;
	if (got)
		take(spin);
	if (spin->end_ns - spin->begin_ns < settings.spin_ns)
		return;
	event = begin_event(&seq);
	if (!event)
		return;
	event->kind = EVENT_SPIN;
	event->spin = *spin;
	bpf_get_stack(ctx, event->spin.frames, sizeof(event->spin.frames), 0);
	end_event(event, seq);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, u32 flags)
{
	/* A mutex that spinning did not get: the same wait goes on asleep. */
	if (flags & LCB_F_SPIN)
		begin_spin((u64)lock, flags);
	else
		end_spin(ctx, (u64)lock, false);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int ret)
{
	end_spin(ctx, (u64)lock, !ret);
	return 0;
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

SEC("fentry/smp_call_function_many_cond")
int BPF_PROG(ipi_begin)
{
	begin_spin(0, SPIN_IPI);
	return 0;
}

SEC("fexit/smp_call_function_many_cond")
int BPF_PROG(ipi_end)
{
	end_spin(ctx, 0, false);
	return 0;
}

#endif /* UNSPIN_BPF_SPIN_H */

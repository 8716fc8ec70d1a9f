/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spins in the kernel: who waited for which lock, from where, how long, and who had it
 * meanwhile. The kernel tells of contention with two tracepoints (since 5.19); where
 * its spinlock is a plain test-and-set one, as in a guest without any help, those say
 * nothing of it, and the slow path itself is watched. Waits for other vCPUs to
 * acknowledge an inter-processor call are spins, too.
 *
 * Spinning disables preemption, so a vCPU's spins are a stack: an interrupt's above a
 * task's. Waits that sleep are in wait.h.
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

/* How long it has waited for a CPU in all; 0 where the kernel does not count that. */
static u64 run_delay_ns(const struct task_struct *task)
{
	u64 delay_ns = 0;

	if (bpf_core_field_exists(task->sched_info.run_delay))
		bpf_core_read(&delay_ns, sizeof(delay_ns), &task->sched_info.run_delay);
	return delay_ns;
}

static void look_at_owner(struct spin_event *wait, const struct task_struct *task)
{
	u32 running = 0, state = 0;

	bpf_core_read(&wait->owner_tid, sizeof(wait->owner_tid), &task->pid);
	bpf_core_read(&wait->owner_cpu, sizeof(wait->owner_cpu), &task->thread_info.cpu);
	bpf_core_read(&running, sizeof(running), &task->on_cpu);
	bpf_core_read(&state, sizeof(state), &task->__state);
	wait->owner_delay_ns = run_delay_ns(task);
	wait->owner_state = running ? OWNER_RUNNING : state ? OWNER_ASLEEP : OWNER_RUNNABLE;
}

/* Who has the lock, where its word says so: it holds the task and three flags. */
static void find_owner(struct spin_event *wait)
{
	long word = 0;

	if (wait->flags & LCB_F_MUTEX) {
		const struct mutex *mutex = (const struct mutex *)wait->lock;

		bpf_core_read(&word, sizeof(word), &mutex->owner.counter);
	} else if (wait->flags & WAIT_ASLEEP) {
		const struct rw_semaphore *sem = (const struct rw_semaphore *)wait->lock;

		bpf_core_read(&word, sizeof(word), &sem->owner.counter);
		if (word & RWSEM_READER_OWNED)
			return;
	}
	if (word & ~7L)
		look_at_owner(wait, (const struct task_struct *)(word & ~7L));
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
	find_owner(spin);
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

static void hand_on(void *ctx, const struct spin_event *wait)
{
	struct event *event;
	u64 seq;

	event = begin_event(&seq);
	if (!event)
		return;
	event->kind = EVENT_SPIN;
	event->spin = *wait;
	bpf_get_stack(ctx, event->spin.frames, sizeof(event->spin.frames), 0);
	end_event(event, seq);
}

/* The vCPU has the lock now, or gives up spinning for it. */
static void end_spin(void *ctx, u64 lock, bool got)
{
	struct spins *s = this_spins();
	struct vcpu *v = this_vcpu();
	struct spin_event *spin;

	if (!s || !v)
		return;
	spin = pop(s, lock);
	if (!spin)
		return;
	spin->end_ns = bpf_ktime_get_ns();
	activity_excuse(&v->activity, spin->end_ns, due_ns(v, spin->end_ns));
	v->spins++;
	v->spin_ns += spin->end_ns - spin->begin_ns;
	if (got)
		take(spin);
	if (spin->end_ns - spin->begin_ns >= settings.spin_ns)
		hand_on(ctx, spin);
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
	begin_spin(0, WAIT_IPI);
	return 0;
}

SEC("fexit/smp_call_function_many_cond")
int BPF_PROG(ipi_end)
{
	end_spin(ctx, 0, false);
	return 0;
}

#endif /* UNSPIN_BPF_SPIN_H */

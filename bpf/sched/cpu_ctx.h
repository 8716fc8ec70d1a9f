/* SPDX-License-Identifier: GPL-2.0-only */
/* The scheduler's state: its maps, a context for each vCPU, and virtual time. */
#ifndef UNSPIN_BPF_CPU_CTX_H
#define UNSPIN_BPF_CPU_CTX_H

/* Makes the verifier check a function once, and not again for each state of its callers. */
#define GLOBAL __attribute__((noinline))

/* The queue of waiting tasks of a vCPU. */
#define QUEUE(cpu) ((u64)(cpu))
/* The queue of tasks that were sent to a vCPU while it was idle (placed.h). */
#define PLACED(cpu) (2ULL << 32 | (u64)(cpu))
/* The slice of a task. Every tick checks whether another task waits, so a task runs longer only
 * if none does. */
#define LONG_NS 100000000ULL
/* The weight of a task of nice 0. */
#define WEIGHT 100
/* The most that a task may be ahead of virtual time, or behind it. */
#define AHEAD_MAX_NS 100000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpu_ctxs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct run_state);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct run_end);
} ends SEC(".maps");

/* For each vCPU, one more than the first of the vCPUs that share its pCPU; 0: it shares with
 * none. The agent writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} stacks SEC(".maps");

struct window_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct window_timer);
} window_timers SEC(".maps");

/* The current virtual time. Every task that begins to run may advance it, so it has a map of its
 * own, and with it a cache line. */
static u64 vtime_now SEC(".data.vtime");

/* One more than the number of the highest online vCPU. */
static u32 vcpu_count;

static struct run_state *state(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&states, &zero);
}

static struct cpu_ctx *ctx_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpu_ctxs, &key);
}

static struct vcpu *vcpu_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&vcpus, &key);
}

static struct cpu_ctx *this_ctx(void)
{
	return ctx_of(bpf_get_smp_processor_id());
}

#define COUNT(what)                                 \
	do {                                        \
		struct cpu_ctx *own = this_ctx();   \
		if (own)                            \
			own->counts.what++;         \
	} while (0)

static bool is_used(s32 cpu)
{
	struct cpu_ctx *cctx = ctx_of(cpu);

	return cctx && cctx->used;
}

static bool is_online(s32 cpu)
{
	struct cpu_ctx *cctx = ctx_of(cpu);

	return cctx && cctx->online;
}

/* The vCPUs in use, in the form that the kernel compares with a task's affinity. */
static struct bpf_cpumask __kptr *used_vcpus SEC(".data.used_vcpus");

static s32 init_used(void)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return -1;
	mask = bpf_kptr_xchg(&used_vcpus, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

static void set_used(struct cpu_ctx *cctx, u32 cpu, bool used)
{
	struct bpf_cpumask *mask;

	bpf_rcu_read_lock();
	mask = used_vcpus;
	if (mask && used)
		bpf_cpumask_set_cpu(cpu, mask);
	else if (mask)
		bpf_cpumask_clear_cpu(cpu, mask);
	bpf_rcu_read_unlock();
	cctx->used = used;
}

/* Returns whether the task may run only on vCPUs that are not in use: because of its affinity, or
 * because the kernel has pinned a task that it switched out with migration disabled. */
static bool is_bound(const struct task_struct *p)
{
	const struct bpf_cpumask *mask = used_vcpus;

	return mask && !bpf_cpumask_intersects((const struct cpumask *)mask, p->cpus_ptr);
}

/* Returns whether the task cannot leave a vCPU that is not in use. The kernel keeps an exiting
 * task on its vCPU without asking the scheduler. */
static bool cannot_leave(const struct task_struct *p)
{
	return p->flags & PF_EXITING || is_bound(p);
}

/* Returns the number of tasks in a vCPU's queue; 0 for an offline vCPU, which has no queue. */
static u32 waiting_at(s32 cpu)
{
	s32 tasks = scx_bpf_dsq_nr_queued(QUEUE(cpu));

	return tasks > 0 ? tasks : 0;
}

/* Returns the number of tasks that were sent to a vCPU and still wait. */
static u32 placed_at(s32 cpu)
{
	s32 tasks = scx_bpf_dsq_nr_queued(PLACED(cpu));

	return tasks > 0 ? tasks : 0;
}

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

/* Kernels with this symbol count nested interrupt disabling in preempt_count. The count takes the
 * bits that hold the hardirq count in other kernels. */
extern const void local_interrupt_disable_state __ksym __weak;

/* Returns whether this runs in a hardirq, or in a softirq that serves one, as far as the kernel
 * shows it. */
static bool in_interrupt(void)
{
	int hard = bpf_ksym_exists(&local_interrupt_disable_state) ? HARDIRQ_MASK_COUNTED : HARDIRQ_MASK;
	int count = 0;

	if (bpf_ksym_exists(&__preempt_count))
		count = *(const int *)bpf_this_cpu_ptr(&__preempt_count);
	else if (bpf_ksym_exists(&pcpu_hot))
		count = ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	return count & (hard | SOFTIRQ_SERVED);
}

/* A bit for each idle vCPU. Valid if there are no more vCPUs than bits. */
#define IDLE_BITS 64
static u64 idle_vcpus;

/* Notes that a vCPU enters or leaves idle. */
static void idle_changed(u32 cpu, bool idle)
{
	u64 bit = 1ULL << (cpu % IDLE_BITS);

	if (idle)
		__sync_fetch_and_or(&idle_vcpus, bit);
	else
		__sync_fetch_and_and(&idle_vcpus, ~bit);
}

static bool none_is_idle(void)
{
	return vcpu_count <= IDLE_BITS && !idle_vcpus;
}

/* Notes how long this idle vCPU took to respond to a wake-up. */
static void answered_after(u64 ns)
{
	struct cpu_ctx *cctx = ctx_of(bpf_get_smp_processor_id());

	if (cctx)
		cctx->wake_ns = policy_mean(cctx->wake_ns, ns);
}

#endif /* UNSPIN_BPF_CPU_CTX_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the scheduler keeps: its maps, a context for each vCPU, and virtual time. */
#ifndef UNSPIN_BPF_CPU_CTX_H
#define UNSPIN_BPF_CPU_CTX_H

/* A function that the verifier checks once, and not again for each state that a caller is in. */
#define GLOBAL __attribute__((noinline))

/* Every vCPU has a queue of tasks. */
#define QUEUE(cpu) ((u64)(cpu))
/* And one of tasks that were sent to it while it was idle (placed.h). */
#define PLACED(cpu) (2ULL << 32 | (u64)(cpu))
/* Where nobody waits, a task runs on; every tick looks whether somebody does. */
#define LONG_NS 100000000ULL
/* A weight of 100 is a task's normal one. */
#define WEIGHT 100
/* Nobody is further ahead of virtual time than this, nor further behind. */
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

/* For each vCPU, one more than the first of those that share its pCPU; 0: it shares with none.
 * The agent finds out. */
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

/* The virtual time that runs now. Every task that begins to run may move it on, so it has a map, and
 * with it a cache line, of its own. */
static u64 vtime_now SEC(".data.vtime");

/* One more than the highest vCPU that is online. */
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

/* The vCPUs in use, as the kernel compares them with those where a task may run. */
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

/* Whether the task is bound to vCPUs that are not in use: by its affinity, or by the kernel, which
 * sets that where it switches out a task that may not migrate. */
static bool is_bound(const struct task_struct *p)
{
	const struct bpf_cpumask *mask = used_vcpus;

	return mask && !bpf_cpumask_intersects((const struct cpumask *)mask, p->cpus_ptr);
}

/* Whether the task would not leave a vCPU that is not in use. The kernel does not ask us about one
 * that exits, and leaves it where it is. */
static bool cannot_leave(const struct task_struct *p)
{
	return p->flags & PF_EXITING || is_bound(p);
}

/* How many tasks wait in its queue. One that is offline has none. */
static u32 waiting_at(s32 cpu)
{
	s32 tasks = scx_bpf_dsq_nr_queued(QUEUE(cpu));

	return tasks > 0 ? tasks : 0;
}

/* How many were sent to it and wait. */
static u32 placed_at(s32 cpu)
{
	s32 tasks = scx_bpf_dsq_nr_queued(PLACED(cpu));

	return tasks > 0 ? tasks : 0;
}

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

/* Kernels that count how often interrupts were disabled have it, and that count where others have
 * the one of interrupts. */
extern const void local_interrupt_disable_state __ksym __weak;

/* Whether this runs in an interrupt, or in a softirq that serves what one has brought, as far as
 * the kernel says. */
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

/* The vCPUs that are idle, a bit each, where there are no more of them than bits. */
#define IDLE_BITS 64
static u64 idle_vcpus;

/* A vCPU goes idle, or no longer is. */
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

/* This vCPU, which was idle, took so long to answer. */
static void answered_after(u64 ns)
{
	struct cpu_ctx *cctx = ctx_of(bpf_get_smp_processor_id());

	if (cctx)
		cctx->wake_ns = policy_mean(cctx->wake_ns, ns);
}

#endif /* UNSPIN_BPF_CPU_CTX_H */

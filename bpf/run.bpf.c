// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest scheduler. Tasks wait in one queue that all vCPUs in use take from, in the
 * order of their virtual time. A vCPU takes a task when it runs, so no task waits for one
 * that is off. How many vCPUs are in use is decided by policy/pack.h, every PACK_WINDOW_NS,
 * from what each was: on, off, idle, spinning.
 *
 * Tasks that may not run everywhere wait in the queue of a vCPU where they may; a vCPU that
 * is not in use runs those of its own queue, and no others.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "scx.h"
#include "run.h"
#include "vcpu.h"

char LICENSE[] SEC("license") = "GPL";

/* Set before loading. */
const volatile struct run_settings settings = {};

#define SHARED 0
#define OWN(cpu) (1 + (u64)(cpu))
/* A weight of 100 is a task's normal one. */
#define WEIGHT 100

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seat);
} seats SEC(".maps");

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

struct clockwork {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct clockwork);
} clockworks SEC(".maps");

/* The virtual time that runs now. */
static u64 vtime_now;
static u32 vcpu_count;

static struct run_state *state(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&states, &zero);
}

static struct seat *seat_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&seats, &key);
}

static bool is_used(s32 cpu)
{
	struct seat *seat = seat_of(cpu);

	return seat && seat->used;
}

static bool may_run_everywhere(const struct task_struct *p)
{
	return p->nr_cpus_allowed >= vcpu_count;
}

/* Signs of life, and what the kernel does at them. */

static void look(struct vcpu *v, struct seat *seat, u64 now_ns, u64 off_ns);

/* Returns the length of the off interval behind it. */
static u64 sign_of_life(struct vcpu *v, u64 now_ns, u64 due)
{
	struct activity_limits limits = settings.limits;
	struct found_off found = {};

	judge(v, &limits, now_ns, due, &found);
	return found.off.end_ns ? activity_off_ns(&found.off) : 0;
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(local_timer_entry, int vector)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now_ns = bpf_ktime_get_ns();
	struct seat *seat = seat_of(cpu);
	struct vcpu *v = this_vcpu();
	bool was_idle;
	u64 off_ns;

	if (!v || !seat)
		return 0;
	was_idle = v->activity.idle;
	off_ns = sign_of_life(v, now_ns, due_ns(v, now_ns));
	if (!was_idle)
		look(v, seat, now_ns, off_ns);
	return 0;
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(local_timer_exit, int vector)
{
	struct vcpu *v = this_vcpu();

	if (v)
		sign_of_life(v, bpf_ktime_get_ns(), kernels_due_ns());
	return 0;
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, u32 entered, u32 cpu)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();
	struct seat *seat = seat_of(cpu);

	if (!v || !seat)
		return 0;
	sign_of_life(v, now_ns, due_ns(v, now_ns));
	if (entered != PWR_EVENT_EXIT) {
		activity_idle(&v->activity, now_ns, due_ns(v, now_ns));
		v->idle_since_ns = now_ns;
	} else {
		seat->looked_ns = now_ns;
		seat->looked_off_ns = v->off_ns;
	}
	return 0;
}

extern const struct pt_regs *__irq_regs __ksym;

/* Where the interrupt found this vCPU. */
static u64 interrupted_at(void)
{
	const struct pt_regs **slot = bpf_this_cpu_ptr(&__irq_regs);
	const struct pt_regs *regs = *slot;

	return regs ? BPF_CORE_READ(regs, ip) : 0;
}

static bool is_within(const volatile struct range *ranges, u32 count, u64 ip)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (ip >= ranges[i].from && ip < ranges[i].to)
			return true;
	}
	return false;
}

/* Each tick stands for the time since the one before that the vCPU was on. The last off
 * interval ended with it. */
static void look(struct vcpu *v, struct seat *seat, u64 now_ns, u64 last_off_ns)
{
	u64 since_ns = now_ns - seat->looked_ns;
	u64 off_ns = v->off_ns - seat->looked_off_ns;
	u64 ip = interrupted_at();

	if (last_off_ns && is_within(settings.unmasking, UNMASKING_RANGES, ip))
		seat->masked_ns += last_off_ns;
	if (seat->looked_ns && off_ns < since_ns && is_within(settings.spinning, SPINNING_RANGES, ip))
		seat->spin_ns += since_ns - off_ns;
	seat->looked_ns = now_ns;
	seat->looked_off_ns = v->off_ns;
}

/* Where tasks go. */

/* An idle vCPU in use where the task may run, the one where it was first; it is taken. */
static s32 take_idle(const struct task_struct *p, s32 prev_cpu)
{
	s32 cpu;
	u32 i;

	bpf_for(i, 0, vcpu_count) {
		cpu = prev_cpu + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		if (is_used(cpu) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
		    scx_bpf_test_and_clear_cpu_idle(cpu))
			return cpu;
	}
	return -1;
}

/* A vCPU where a task that may not run everywhere is to wait: one in use if it may run on
 * one, where it was if possible. */
static s32 home_of(const struct task_struct *p)
{
	s32 was = scx_bpf_task_cpu(p), home = -1, cpu;
	u32 i;

	bpf_for(i, 0, vcpu_count) {
		cpu = was + i;
		if (cpu >= (s32)vcpu_count)
			cpu -= vcpu_count;
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (is_used(cpu))
			return cpu;
		if (home < 0)
			home = cpu;
	}
	return home < 0 ? was : home;
}

/* Whether the task can go on here, because who wakes it will sleep at once. Others wait no
 * longer than a slice for such pairs. */
static bool can_take_over(const struct task_struct *p, s32 here)
{
	struct seat *seat = seat_of(here);

	return seat && seat->used && seat->since_ns - seat->served_ns < settings.slice_ns &&
	       bpf_cpumask_test_cpu(here, p->cpus_ptr) &&
	       !scx_bpf_dsq_nr_queued(SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL));
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(run_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 here = bpf_get_smp_processor_id();
	struct run_state *s = state();
	s32 cpu;

	if (wake_flags & SCX(scx_wake_flags, SCX_WAKE_SYNC) && can_take_over(p, here))
		cpu = here;
	else
		cpu = take_idle(p, prev_cpu);
	if (cpu < 0)
		return prev_cpu;
	insert(p, SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL), settings.slice_ns, 0);
	if (s)
		s->placed++;
	return cpu;
}

/* A task has earned no more than a slice by sleeping. */
static u64 place_in_time(const struct task_struct *p)
{
	u64 earliest = vtime_now - settings.slice_ns;
	u64 vtime = p->scx.dsq_vtime;

	return (s64)(vtime - earliest) < 0 ? earliest : vtime;
}

SEC("struct_ops/enqueue")
void BPF_PROG(run_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 local = SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	s32 was = scx_bpf_task_cpu(p), cpu;
	struct run_state *s = state();

	/* The kernel's own threads of a vCPU, which others wait for. */
	if (p->nr_cpus_allowed == 1 && p->flags & PF_KTHREAD) {
		insert(p, local, settings.slice_ns,
		       enq_flags | SCX(scx_enq_flags, SCX_ENQ_PREEMPT));
		return;
	}
	/* Nobody else wants this vCPU. */
	if (enq_flags & SCX(scx_enq_flags, SCX_ENQ_LAST) &&
	    (is_used(was) || p->nr_cpus_allowed == 1)) {
		insert(p, local, settings.slice_ns, enq_flags);
		return;
	}
	if (s)
		s->queued++;
	if (may_run_everywhere(p)) {
		insert_in_order(p, SHARED, settings.slice_ns, place_in_time(p), enq_flags);
		cpu = take_idle(p, was);
	} else {
		cpu = home_of(p);
		insert_in_order(p, OWN(cpu), settings.slice_ns, place_in_time(p), enq_flags);
		if (!scx_bpf_test_and_clear_cpu_idle(cpu))
			cpu = take_idle(p, was);
	}
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
}

static bool take_shared(void)
{
	struct run_state *s = state();

	if (!take_from(SHARED))
		return false;
	if (s)
		s->taken++;
	return true;
}

SEC("struct_ops/dispatch")
void BPF_PROG(run_dispatch, s32 cpu, struct task_struct *prev)
{
	struct seat *seat = seat_of(cpu);
	u32 i, other;

	if (!seat)
		return;
	if (!seat->used) {
		take_from(OWN(cpu));
		return;
	}
	seat->turn ^= 1;
	seat->served_ns = bpf_ktime_get_ns();
	if ((seat->turn && take_shared()) || take_from(OWN(cpu)) || (!seat->turn && take_shared()))
		return;
	/* Tasks that wait elsewhere and may run here. */
	bpf_for(i, 1, vcpu_count) {
		other = cpu + i;
		if (other >= vcpu_count)
			other -= vcpu_count;
		if (scx_bpf_dsq_nr_queued(OWN(other)) && take_from(OWN(other)))
			return;
	}
}

/* A task that may run elsewhere leaves a vCPU that is not in use. */
SEC("struct_ops/tick")
void BPF_PROG(run_tick, struct task_struct *p)
{
	if (!is_used(bpf_get_smp_processor_id()) && may_run_everywhere(p))
		p->scx.slice = 0;
}

SEC("struct_ops/running")
void BPF_PROG(run_running, struct task_struct *p)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	struct vcpu *v = this_vcpu();

	if (!seat || !v)
		return;
	seat->since_ns = bpf_ktime_get_ns();
	seat->since_off_ns = v->off_ns;
	if ((s64)(p->scx.dsq_vtime - vtime_now) > 0)
		vtime_now = p->scx.dsq_vtime;
}

/* What it ran is charged, without what its vCPU was off meanwhile. */
SEC("struct_ops/stopping")
void BPF_PROG(run_stopping, struct task_struct *p, bool runnable)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	struct vcpu *v = this_vcpu();
	u64 ran_ns, off_ns;

	if (!seat || !v)
		return;
	ran_ns = bpf_ktime_get_ns() - seat->since_ns;
	off_ns = v->off_ns - seat->since_off_ns;
	ran_ns -= off_ns < ran_ns ? off_ns : ran_ns;
	p->scx.dsq_vtime += ran_ns * WEIGHT / (p->scx.weight ? p->scx.weight : WEIGHT);
}

SEC("struct_ops/enable")
void BPF_PROG(run_enable, struct task_struct *p)
{
	p->scx.dsq_vtime = vtime_now;
}

/* How many vCPUs are used. */

/* Sums over all vCPUs, nanoseconds since the start. */
struct sums {
	u64 idle_ns;
	u64 off_ns;
	u64 spin_ns;
	u64 masked_ns;
};

static void sum_up(u64 now_ns, struct sums *sums)
{
	struct activity_limits limits = settings.limits;
	struct seat *seat;
	struct vcpu *v;
	u32 i, key;

	bpf_for(i, 0, vcpu_count) {
		key = i;
		v = bpf_map_lookup_elem(&vcpus, &key);
		seat = seat_of(i);
		if (!v || !seat)
			break;
		sums->idle_ns += v->idle_ns;
		if (v->idle_since_ns && now_ns > v->idle_since_ns)
			sums->idle_ns += now_ns - v->idle_since_ns;
		sums->off_ns += v->off_ns;
		if (!v->activity.idle && v->activity.due_ns &&
		    activity_look(&v->activity, &limits, now_ns) == ACTIVITY_OFF)
			sums->off_ns += now_ns - v->activity.due_ns;
		sums->spin_ns += seat->spin_ns;
		sums->masked_ns += seat->masked_ns;
	}
}

static u32 thousandths(u64 now, u64 before, u64 window_ns)
{
	return now > before ? (now - before) * 1000 / window_ns : 0;
}

/* Uses the first so many vCPUs. */
static void use_vcpus(struct run_state *s, u32 use)
{
	struct seat *seat;
	u32 i, wanted;

	bpf_for(i, 0, vcpu_count) {
		seat = seat_of(i);
		if (!seat)
			break;
		wanted = i < use;
		if (seat->used == wanted)
			continue;
		seat->used = wanted;
		s->cleared += !wanted;
		scx_bpf_kick_cpu(i, wanted ? SCX(scx_kick_flags, SCX_KICK_IDLE)
					   : SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
}

static void decide(struct run_state *s, const struct sums *sums, u64 now_ns)
{
	u64 window_ns = now_ns - s->t_ns, all_m = (u64)vcpu_count * 1000, away_m;
	struct pack_facts facts = {};

	if (!s->t_ns || !window_ns)
		return;
	facts.off_m = thousandths(sums->off_ns, s->off_ns, window_ns);
	facts.spin_m = thousandths(sums->spin_ns, s->spin_ns, window_ns);
	facts.masked_m = thousandths(sums->masked_ns, s->masked_ns, window_ns);
	away_m = facts.off_m + thousandths(sums->idle_ns, s->idle_ns, window_ns);
	facts.on_m = away_m < all_m ? all_m - away_m : 0;
	facts.wakes = s->placed + s->queued - s->wakes;
	facts.taken = s->taken - s->taken_before;
	s->taken_before = s->taken;
	facts.queued_m = scx_bpf_dsq_nr_queued(SHARED) * 1000;
	s->facts = facts;
	s->windows++;
	s->used_sum += pack_use(&s->pack);
	if (!settings.no_pack)
		use_vcpus(s, pack_step(&s->pack, &facts, now_ns));
}

static int window(void *map, u32 *key, struct clockwork *clockwork)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct run_state *s = state();
	struct sums sums = {};

	bpf_timer_start(&clockwork->timer, PACK_WINDOW_NS, 0);
	if (!s)
		return 0;
	sum_up(now_ns, &sums);
	decide(s, &sums, now_ns);
	s->idle_ns = sums.idle_ns;
	s->off_ns = sums.off_ns;
	s->spin_ns = sums.spin_ns;
	s->masked_ns = sums.masked_ns;
	s->wakes = s->placed + s->queued;
	s->t_ns = now_ns;
	return 0;
}

SEC("struct_ops.s/init")
s32 BPF_PROG(run_init)
{
	struct clockwork *clockwork;
	struct run_state *s = state();
	struct seat *seat;
	u32 zero = 0, i;
	s32 error;

	vcpu_count = scx_bpf_nr_cpu_ids();
	clockwork = bpf_map_lookup_elem(&clockworks, &zero);
	if (!clockwork || !s)
		return -1;
	error = scx_bpf_create_dsq(SHARED, -1);
	bpf_for(i, 0, vcpu_count) {
		if (error)
			break;
		error = scx_bpf_create_dsq(OWN(i), -1);
		seat = seat_of(i);
		if (seat)
			seat->used = 1;
	}
	if (error)
		return error;
	s->pack.vcpus = vcpu_count;
	error = bpf_timer_init(&clockwork->timer, &clockworks, CLOCK_MONOTONIC);
	if (!error)
		error = bpf_timer_set_callback(&clockwork->timer, window);
	if (!error)
		error = bpf_timer_start(&clockwork->timer, PACK_WINDOW_NS, 0);
	return error;
}

SEC("struct_ops/exit")
void BPF_PROG(run_exit, struct scx_exit_info *info)
{
	struct run_end *end;
	u32 zero = 0;

	end = bpf_map_lookup_elem(&ends, &zero);
	if (!end)
		return;
	bpf_probe_read_kernel_str(end->reason, sizeof(end->reason), info->reason);
	bpf_probe_read_kernel_str(end->message, sizeof(end->message), info->msg);
	end->code = info->exit_code;
	end->kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops unspin = {
	.select_cpu = (void *)run_select_cpu,
	.enqueue = (void *)run_enqueue,
	.dispatch = (void *)run_dispatch,
	.tick = (void *)run_tick,
	.running = (void *)run_running,
	.stopping = (void *)run_stopping,
	.enable = (void *)run_enable,
	.init = (void *)run_init,
	.exit = (void *)run_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.timeout_ms = 10000,
	.name = "unspin",
};

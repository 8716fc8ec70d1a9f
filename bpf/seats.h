/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler knows: its maps, each vCPU's signs of life, and how much it spins.
 */
#ifndef UNSPIN_BPF_SEATS_H
#define UNSPIN_BPF_SEATS_H

/* Where nobody waits, a task runs on; every tick looks whether somebody does. */
#define LONG_NS 100000000ULL
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

static struct vcpu *vcpu_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&vcpus, &key);
}

static bool is_used(s32 cpu)
{
	struct seat *seat = seat_of(cpu);

	return seat && seat->used;
}

static bool may_run_everywhere(const struct task_struct *p)
{
	struct run_state *s = state();

	return s && p->nr_cpus_allowed >= s->online;
}

extern const struct pt_regs *__irq_regs __ksym;

/* Where the interrupt found this vCPU. */
static u64 interrupted_at(void)
{
	const struct pt_regs **slot = bpf_this_cpu_ptr(&__irq_regs);
	const struct pt_regs *regs = *slot;

	return regs ? BPF_CORE_READ(regs, ip) : 0;
}

static bool is_spinning(u64 ip)
{
	u32 i;

	for (i = 0; i < SPINNING_RANGES; i++) {
		if (ip >= settings.spinning[i].from && ip < settings.spinning[i].to)
			return true;
	}
	return false;
}

/* Each tick stands for the time since the one before that the vCPU was on. */
static void look(struct vcpu *v, struct seat *seat, u64 now_ns)
{
	u64 since_ns = now_ns - seat->looked_ns;
	u64 off_ns = v->off_ns - seat->looked_off_ns;

	if (seat->looked_ns && off_ns < since_ns && is_spinning(interrupted_at()))
		seat->spin_ns += since_ns - off_ns;
	seat->looked_ns = now_ns;
	seat->looked_off_ns = v->off_ns;
}

static void sign_of_life(struct vcpu *v, struct seat *seat, u64 now_ns, u64 due)
{
	struct activity_limits limits = settings.limits;
	struct found_off found = {};
	u64 asked_ns;

	asked_ns = v->activity.idle ? activity_asked_ns(&v->activity) : 0;
	if (asked_ns && now_ns > asked_ns)
		seat->wake_ns = policy_mean(seat->wake_ns, now_ns - asked_ns);
	judge(v, &limits, now_ns, due, &found);
}

SEC("tp_btf/local_timer_entry")
int BPF_PROG(local_timer_entry, int vector)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now_ns = bpf_ktime_get_ns();
	struct seat *seat = seat_of(cpu);
	struct vcpu *v = this_vcpu();
	bool was_idle;

	if (!v || !seat)
		return 0;
	was_idle = v->activity.idle;
	sign_of_life(v, seat, now_ns, due_ns(v, now_ns));
	if (!was_idle)
		look(v, seat, now_ns);
	return 0;
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(local_timer_exit, int vector)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	struct vcpu *v = this_vcpu();

	if (v && seat)
		sign_of_life(v, seat, bpf_ktime_get_ns(), kernels_due_ns());
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
	sign_of_life(v, seat, now_ns, due_ns(v, now_ns));
	if (entered != PWR_EVENT_EXIT) {
		activity_idle(&v->activity, now_ns, due_ns(v, now_ns));
		v->idle_since_ns = now_ns;
	} else {
		seat->looked_ns = now_ns;
		seat->looked_off_ns = v->off_ns;
	}
	return 0;
}

#endif /* UNSPIN_BPF_SEATS_H */

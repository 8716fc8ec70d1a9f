/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler knows: its maps, and by ticks.h each vCPU's signs of life.
 */
#ifndef UNSPIN_BPF_SEATS_H
#define UNSPIN_BPF_SEATS_H

/* Where nobody waits, a task runs on; every tick looks whether somebody does. */
#define LONG_NS 100000000ULL
/* A weight of 100 is a task's normal one. */
#define WEIGHT 100
/* Virtual time goes on at least at this share of real time, whatever the weights of those
 * that run, and nobody is further ahead of it than this. So nobody waits, for weight alone,
 * longer than AHEAD_MAX_NS * SLOWEST: well within the kernel's watchdog. */
#define SLOWEST 30
#define AHEAD_MAX_NS 100000000ULL

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
/* As it was at the end of the last window. */
static u64 vtime_before;
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

/* This vCPU, which was idle, took so long to answer. */
static void answered_after(u64 ns)
{
	struct seat *seat = seat_of(bpf_get_smp_processor_id());

	if (seat)
		seat->wake_ns = policy_mean(seat->wake_ns, ns);
}

#endif /* UNSPIN_BPF_SEATS_H */

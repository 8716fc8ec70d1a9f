/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Signs of life of the vCPUs, and how much they spin, for the scheduler.
 */
#ifndef UNSPIN_BPF_SIGNS_H
#define UNSPIN_BPF_SIGNS_H

/* Each interrupt of the timer stands for the time since the one before that the vCPU was on. */
static void look(struct vcpu *v, struct seat *seat, u64 now_ns)
{
	u64 since_ns = now_ns - seat->looked_ns;
	u64 off_ns = v->off_ns - seat->looked_off_ns;
	struct run_state *s = state();
	bool spins = is_spinning(interrupted_at());

	if (spins && seat->looked_ns && off_ns < since_ns)
		seat->spin_ns += since_ns - off_ns;
	seat->looked_ns = now_ns;
	seat->looked_off_ns = v->off_ns;
	if (spins && s)
		watch_spinner(s, seat, now_ns);
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

/* Another vCPU asks for something, or whether this one is on. */
SEC("tp_btf/reschedule_entry")
int BPF_PROG(reschedule_entry, int vector)
{
	struct activity_limits limits = settings.limits;
	struct seat *seat = seat_of(bpf_get_smp_processor_id());
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();

	if (v && seat && !activity_is_early(&v->activity, &limits, now_ns))
		sign_of_life(v, seat, now_ns, due_ns(v, now_ns));
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

#endif /* UNSPIN_BPF_SIGNS_H */

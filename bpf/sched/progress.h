/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel counts for itself and what grows with the work that is done, whoever
 * spins: a measure of progress that no wrong clock touches.
 */
#ifndef UNSPIN_BPF_PROGRESS_H
#define UNSPIN_BPF_PROGRESS_H

#define PROGRESS_SEGMENTS 4

extern const struct rcu_data rcu_data __ksym __weak;
extern const struct vm_event_state vm_event_states __ksym __weak;

/* Objects that were given up on this vCPU since the machine's start: directory entries, files,
 * pages of tables and what else readers may still look at. */
static u64 objects_given_up(u32 cpu)
{
	const struct rcu_data *rcu;
	u64 count;
	u32 i;

	if (!&rcu_data)
		return 0;
	rcu = bpf_per_cpu_ptr(&rcu_data, cpu);
	if (!rcu)
		return 0;
	count = BPF_CORE_READ(rcu, n_cbs_invoked);
	for (i = 0; i < PROGRESS_SEGMENTS; i++)
		count += BPF_CORE_READ(rcu, cblist.seglen[i]);
	return count;
}

/* What this kernel does not count, of enum run_missing. */
static u64 missing_counts(void)
{
	return (&vm_event_states ? 0 : RUN_NO_PAGE_FAULTS) | (&rcu_data ? 0 : RUN_NO_GIVEN_UP);
}

static u64 page_faults(u32 cpu)
{
	const struct vm_event_state *events;
	u64 count = 0;

	if (!&vm_event_states)
		return 0;
	events = bpf_per_cpu_ptr(&vm_event_states, cpu);
	if (!events)
		return 0;
	bpf_probe_read_kernel(&count, sizeof(count),
			      &events->event[0] + bpf_core_enum_value(enum vm_event_item, PGFAULT));
	return count;
}

#endif /* UNSPIN_BPF_PROGRESS_H */

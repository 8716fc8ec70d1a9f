/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that were sent to an idle vCPU. They wait in a queue that this vCPU takes from before all
 * others when it asks for its next task. From the kernel's own queue of the vCPU, nobody could take
 * them away again: they would wait for a real-time task that comes first, or for the host to run
 * the vCPU, however long that is. The kernel calls cpu_release() only where a task of ours makes
 * way, and not where a real-time task follows on idle.
 */
#ifndef UNSPIN_BPF_PLACED_H
#define UNSPIN_BPF_PLACED_H

/* The kernel's clock of ticks at the last window. */
static u64 window_at;

/* Whether a real-time task is to run on the vCPU next. Before 6.19, the kernel asks for a task of
 * ours all the same, and leaves it in its own queue. Since then it asks only where it is to run
 * one: from 7.0 on also beside a real-time task, which it does not let have all the time. */
static bool real_time_is_next(s32 cpu)
{
	const struct rq *rq;

	if (bpf_ksym_exists(scx_bpf_task_set_slice) || !bpf_ksym_exists(&runqueues) ||
	    !bpf_core_field_exists(((struct rq *)0)->rt.rt_queued))
		return false;
	rq = bpf_per_cpu_ptr(&runqueues, cpu);
	return rq && rq->rt.rt_queued > 0;
}

GLOBAL int release_placed(s32 cpu, u64 now_ns)
{
	struct task_struct *p;

	if (!placed_at(cpu))
		return 0;
	/* Some kernels take a timer's function for one that may sleep. */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, PLACED(cpu), 0) {
		if (p->scx.runnable_at < window_at)
			release(&___it, p, p->scx.dsq_vtime, now_ns);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* A window has passed: what the vCPU has not taken since before the last one goes where all take
 * from. */
GLOBAL int keep_placed(u64 now_ns)
{
	u32 i;

	bpf_for(i, 0, vcpu_count)
		release_placed(i, now_ns);
	window_at = bpf_jiffies64();
	return 0;
}

#endif /* UNSPIN_BPF_PLACED_H */

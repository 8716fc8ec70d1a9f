/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that were sent to an idle vCPU. They wait in a queue of their own, which the vCPU takes
 * from first when it looks for its next task. If they waited in the kernel's local queue of the
 * vCPU, no other vCPU could take them: they would wait as long as a real-time task occupies the
 * vCPU, or the host keeps it off. The kernel calls cpu_release() only when one of our tasks makes
 * way, not when a real-time task follows on idle.
 */
#ifndef UNSPIN_BPF_PLACED_H
#define UNSPIN_BPF_PLACED_H

/* jiffies at the last window. */
static u64 window_at;

/* Returns whether a real-time task runs on the vCPU next. Before 6.19, the kernel asks for one of
 * our tasks even then, and leaves it in the local queue. Since 6.19 it asks only if it will run
 * that task. From 7.0 on, that also happens beside a real-time task, whose share of the time is
 * bounded. */
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
	/* Some kernels treat a timer callback as sleepable, so the iterator needs an RCU
	 * section. */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, PLACED(cpu), 0) {
		if (p->scx.runnable_at < window_at)
			release(&___it, p, p->scx.dsq_vtime, now_ns);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* Once a window, moves tasks that their vCPU has not taken since the window before to queues that
 * all vCPUs take from. */
GLOBAL int keep_placed(u64 now_ns)
{
	u32 i;

	bpf_for(i, 0, vcpu_count)
		release_placed(i, now_ns);
	window_at = bpf_jiffies64();
	return 0;
}

#endif /* UNSPIN_BPF_PLACED_H */

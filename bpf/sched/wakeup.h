/* SPDX-License-Identifier: GPL-2.0-only */
/* A task becomes ready: its place in virtual time, and whether it preempts a running task or is
 * throttled. */
#ifndef UNSPIN_BPF_WAKEUP_H
#define UNSPIN_BPF_WAKEUP_H

/* Returns whether the task can take over this vCPU, because its waker is about to sleep. Other
 * tasks wait no longer than a slice for such pairs. */
static bool can_take_over(const struct task_struct *p, s32 here)
{
	struct cpu_ctx *cctx = ctx_of(here);

	return cctx && cctx->used && cctx->since_ns - cctx->served_ns < settings.slice_ns &&
	       bpf_cpumask_test_cpu(here, p->cpus_ptr) &&
	       !scx_bpf_dsq_nr_queued(SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL)) && !placed_at(here);
}

/* A sleeper is credited with at most a slice of virtual time, or two if an interrupt wakes it. A
 * preempted task keeps its credit, up to AHEAD_MAX_NS, because tasks on vCPUs where it may not
 * run may have advanced virtual time. Its debt is bounded in the same way. */
static u64 place_in_time(const struct task_struct *p, u64 enq_flags)
{
	u64 earned_ns = in_interrupt() ? 2 * settings.slice_ns : settings.slice_ns;
	u64 had = p->scx.dsq_vtime, latest = vtime_now + AHEAD_MAX_NS, earliest;

	if (!(enq_flags & SCX(scx_enq_flags, SCX_ENQ_WAKEUP)))
		earned_ns = AHEAD_MAX_NS;
	earliest = vtime_now - earned_ns;
	if ((s64)(had - earliest) < 0)
		return earliest;
	return (s64)(had - latest) > 0 ? latest : had;
}

/* Returns whether the running task is so far ahead in virtual time that the woken one preempts
 * it. Tasks that exchange small pieces of work must not preempt each other at each of them.
 * Wake-ups by timers and devices are not of that kind. */
static bool should_preempt(const struct cpu_ctx *cctx, u64 vtime, u64 now_ns)
{
	u64 since_ns = cctx->since_ns, ran_ns = now_ns > since_ns ? now_ns - since_ns : 0;
	u64 runs_vtime = cctx->since_vtime + charge_ns(ran_ns, cctx->weight, cctx->group);
	u64 more_ns = in_interrupt() ? 0 : settings.slice_ns * 2 / 3;

	return cctx->used && since_ns && !cctx->due_ns &&
	       (s64)(runs_vtime - vtime) > (s64)more_ns;
}

/* Preempts the task of that vCPU, unless it holds a lock, which only its own vCPU can find
 * out. */
static void preempt(struct cpu_ctx *cctx, s32 cpu, u64 now_ns)
{
	COUNT(preempted);
	if (!settings.handoff || !(cctx->holder || may_hold(cctx->process, now_ns))) {
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	} else if (cpu != bpf_get_smp_processor_id()) {
		cctx->due_ns = now_ns;
		scx_bpf_kick_cpu(cpu, 0);
	} else if (extends_slice(cctx, now_ns)) {
		arm_recheck_locked(cpu, now_ns);
	} else {
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	}
}

/* Makes a vCPU run the queued task, if one should. */
static void wake_for(const struct task_struct *p, s32 target, u64 vtime, u64 enq_flags, u64 now_ns)
{
	struct cpu_ctx *cctx = ctx_of(target);
	s32 cpu = take_idle(p, target);

	if (!cctx)
		return;
	/* If none of our tasks runs there, the vCPU may be on its way into idle, and may have
	 * looked for tasks already. This kick does nothing to a vCPU that is not idle. */
	if (cpu < 0 && (!cctx->used || !cctx->since_ns))
		cpu = target;
	if (cpu >= 0) {
		note_wake(cpu);
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
	} else if (enq_flags & SCX(scx_enq_flags, SCX_ENQ_WAKEUP) &&
		   should_preempt(cctx, vtime, now_ns)) {
		preempt(cctx, target, now_ns);
	}
}

/* Runs in a timer interrupt on a vCPU whose task's group has used its time. Returns whether the
 * task is in user space, and therefore leaves now or when it has released a lock. */
static bool throttle(struct cpu_ctx *cctx, u64 now_ns)
{
	s32 here = bpf_get_smp_processor_id();

	if ((s64)interrupted_at() < 0) {
		arm_recheck(here, now_ns, IN_KERNEL_WATCH_NS);
		return false;
	}
	forget_in_kernel(cctx, bpf_get_current_pid_tgid());
	if (extends_slice(cctx, now_ns)) {
		arm_recheck(here, now_ns, WATCH_NS);
		return true;
	}
	cctx->throttled_tid = bpf_get_current_pid_tgid();
	scx_bpf_kick_cpu(here, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
	return true;
}

/* Returns whether this task has just left its vCPU because its group has used its time. */
static bool is_to_wait(const struct task_struct *p, s32 was)
{
	struct cpu_ctx *cctx = ctx_of(was);

	if (!cctx || cctx->throttled_tid != (u32)p->pid)
		return false;
	cctx->throttled_tid = 0;
	forget_in_kernel(cctx, p->pid);
	return is_throttled(p);
}

#endif /* UNSPIN_BPF_WAKEUP_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task's turn on a vCPU: its begin, its charge, and whether it goes on when no other task
 * should run. The kernel calls neither stopping() nor running() for a task that it keeps.
 */
#ifndef UNSPIN_BPF_TURN_H
#define UNSPIN_BPF_TURN_H

/* Advances virtual time, which never goes back. If another vCPU advances it at the same time,
 * that suffices. */
static void advance_vtime(u64 vtime)
{
	u64 now = *(volatile u64 *)&vtime_now;

	if ((s64)(vtime - now) > 0)
		__sync_val_compare_and_swap(&vtime_now, now, vtime);
}

/* Returns the least virtual time of all running tasks and of one that begins to run. */
static __noinline u64 least_vtime(u64 vtime)
{
	struct cpu_ctx *cctx;
	u32 i;

	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (!cctx)
			break;
		if (cctx->since_ns && (s64)(cctx->since_vtime - vtime) < 0)
			vtime = cctx->since_vtime;
	}
	return vtime;
}

/* Returns whether the task is charged more than its runtime. */
static bool is_light(const struct task_struct *p)
{
	return charge_ns(WEIGHT, p->scx.weight, group_of(p)) > WEIGHT;
}

/* A task of nice 19 is charged a hundred times its runtime. Alone on its vCPU, it would advance
 * virtual time at that pace, and all other tasks would lose their credit and the order that their
 * weights give them. So a light task never advances it past the tasks that run. */
static void follow_vtime(const struct task_struct *p)
{
	u64 vtime = p->scx.dsq_vtime;

	if ((s64)(vtime - vtime_now) <= 0)
		return;
	advance_vtime(is_light(p) ? least_vtime(vtime) : vtime);
}

static void begin_turn(struct cpu_ctx *cctx, const struct vcpu *v, struct task_struct *p)
{
	u64 latest = vtime_now + AHEAD_MAX_NS;

	/* A throttled task's virtual time was a time of the clock. */
	if ((s64)(p->scx.dsq_vtime - latest) > 0)
		set_vtime(p, latest);
	follow_vtime(p);
	cctx->since_ns = cctx->charged_ns = bpf_ktime_get_ns();
	cctx->since_off_ns = v->off_ns;
	cctx->since_vtime = p->scx.dsq_vtime;
	cctx->bound = cannot_leave(p);
	cctx->due_ns = 0;
	cctx->extended = 0;
	cctx->spent = 0;
	cctx->throttled_tid = 0;
}

/* Charges a task for its turn, without the time that its vCPU was off. */
static void charge_turn(struct cpu_ctx *cctx, const struct vcpu *v, struct task_struct *p,
			u64 now_ns)
{
	u64 ran_ns = now_ns - cctx->since_ns, off_ns = v->off_ns - cctx->since_off_ns;

	charge_limits(cctx, now_ns);
	ran_ns -= off_ns < ran_ns ? off_ns : ran_ns;
	set_vtime(p, p->scx.dsq_vtime + charge_ns(ran_ns, p->scx.weight, cctx->group));
}

/* Returns whether the task that has run has to wait, for its group's time or for a vCPU in
 * use. */
static bool has_to_leave(const struct cpu_ctx *cctx, const struct task_struct *p)
{
	if (p->flags & PF_EXITING)
		return false;
	return cctx->throttled_tid == (u32)p->pid || !(cctx->used || is_bound(p));
}

/* No other task should run here, so the task that has run goes on: the kernel keeps a task
 * that has a slice left. Without one, the kernel chooses to go idle, and enqueues the task
 * only then. */
static void keep(struct cpu_ctx *cctx, s32 cpu, struct task_struct *p, u64 now_ns)
{
	struct vcpu *v = vcpu_of(cpu);

	if (!v || !cctx->since_ns || !is_ready(p))
		return;
	if (has_to_leave(cctx, p)) {
		/* The kernel leaves a task with migration disabled here. Without this kick, some
		 * kernels stay idle beside it. */
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
		return;
	}
	charge_turn(cctx, v, p, now_ns);
	begin_turn(cctx, v, p);
	set_slice(p, LONG_NS);
}

#endif /* UNSPIN_BPF_TURN_H */

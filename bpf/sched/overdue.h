/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Moves tasks that have waited for a second to the front of their queue. Weights alone could let
 * a light task wait for an unlimited time beside heavy ones, and the kernel's watchdog ends a
 * scheduler that leaves a task waiting.
 */
#ifndef UNSPIN_BPF_OVERDUE_H
#define UNSPIN_BPF_OVERDUE_H

/* The time between two sweeps of all queues. */
#define SWEEP_NS 250000000ULL
/* A task is overdue if it has waited for so many sweeps, which is a second or more. */
#define OVERDUE_SWEEPS 4
/* The number of overdue tasks of a queue that come first after a sweep. With slices of 4 ms, they
 * take a quarter of a vCPU's time. */
#define OVERDUE_AT_ONCE 16
/* A task that has waited for so many sweeps (3 s) comes first in any case. */
#define SWEEPS 12
/* How long all vCPUs are used, whatever the limit, if no vCPU looks at the queue of such a task,
 * or no vCPU takes any task. */
#define STUCK_NS 1000000000ULL

/* jiffies at the last sweeps. The kernel stamps a task with jiffies when the task begins to
 * wait. */
static u64 swept_at[SWEEPS];
static u32 next_sweep;
static u64 swept_ns;
/* The number of tasks of a queue that this sweep has moved. Not a local variable, because the
 * verifier would follow each of its values. */
static u32 moved;

/* Returns whether no vCPU looks at that queue for the task. A task that was throttled counts as
 * overdue as well, but its queue is served. A vCPU that is not in use takes only tasks that are
 * bound to such vCPUs. */
static bool is_unserved(const struct cpu_ctx *cctx, const struct task_struct *p)
{
	return (!cctx->used && !is_bound(p)) || cctx->served_ns + SWEEP_NS < swept_ns;
}

GLOBAL int serve_overdue(s32 cpu, u64 overdue, u64 long_overdue)
{
	struct cpu_ctx *cctx = ctx_of(cpu);
	struct run_state *s = state();
	struct task_struct *p;
	u64 since, before;

	if (!cctx || !s || !waiting_at(cpu))
		return 0;
	/* Consecutive virtual times keep the tasks' order. */
	before = cctx->first_vtime - waiting_at(cpu) - 1;
	moved = 0;
	/* Some kernels treat a timer callback as sleepable, so the iterator needs an RCU
	 * section. */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, QUEUE(cpu), 0) {
		since = p->scx.runnable_at;
		if (since >= overdue || (since >= long_overdue && moved >= OVERDUE_AT_ONCE))
			continue;
		moved++;
		move_in_order(&___it, p, QUEUE(cpu), before + moved);
		/* The vCPU cannot run it: real-time tasks may occupy it. Other vCPUs can take the
		 * task. */
		if (since < long_overdue) {
			if (is_unserved(cctx, p))
				s->stuck_until_ns = swept_ns + STUCK_NS;
			scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
			scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX(scx_kick_flags, SCX_KICK_IDLE));
		}
	}
	bpf_rcu_read_unlock();
	if (moved)
		cctx->first_vtime = before + 1;
	return 0;
}

/* Sweeps all queues if a sweep is due. Runs once a window. */
GLOBAL int sweep(u64 now_ns)
{
	u64 overdue, long_overdue;
	u32 at, i;

	if (now_ns - swept_ns < SWEEP_NS)
		return 0;
	swept_ns = now_ns;
	/* The verifier of Linux 6.12 does not derive bounds from a modulo. */
	at = next_sweep < SWEEPS ? next_sweep : 0;
	next_sweep = at + 1;
	long_overdue = swept_at[at];
	swept_at[at] = bpf_jiffies64();
	overdue = swept_at[at < OVERDUE_SWEEPS ? at + SWEEPS - OVERDUE_SWEEPS : at - OVERDUE_SWEEPS];
	bpf_for(i, 0, vcpu_count)
		serve_overdue(i, overdue, long_overdue);
	return 0;
}

#endif /* UNSPIN_BPF_OVERDUE_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that have waited for a second come first in their queue. Weights alone let one of a small
 * weight wait for as long as it takes those of great weights to use what is theirs, and the
 * kernel's watchdog ends a scheduler that leaves a task waiting.
 */
#ifndef UNSPIN_BPF_OVERDUE_H
#define UNSPIN_BPF_OVERDUE_H

/* A sweep of all queues, every so often. */
#define SWEEP_NS 250000000ULL
/* A task is overdue that has waited since before so many sweeps: for a second or more. */
#define OVERDUE_SWEEPS 4
/* So many of a queue come first after a sweep: with slices of 4 ms, a quarter of a vCPU's time. */
#define OVERDUE_AT_ONCE 16
/* One that has waited since before so many sweeps, 3 s, comes first in any case. */
#define SWEEPS 12
/* How long all vCPUs are used, whatever the limit, where nobody asks for such a task, or no vCPU
 * takes any. */
#define STUCK_NS 1000000000ULL

/* The kernel's clock of ticks, which it notes when a task begins to wait, at the last sweeps. */
static u64 swept_at[SWEEPS];
static u32 next_sweep;
static u64 swept_ns;
/* Tasks of a queue that come first after this sweep. Not a local variable: the verifier would
 * follow each of its values. */
static u32 moved;

/* Whether nobody asks for that queue's task. One that had to wait for its group's time counts as
 * overdue as well, but is served. A vCPU that is not in use asks for those bound to such alone. */
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
	/* So that they keep their order. */
	before = cctx->first_vtime - waiting_at(cpu) - 1;
	moved = 0;
	/* Some kernels take a timer's function for one that may sleep. */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, QUEUE(cpu), 0) {
		since = p->scx.runnable_at;
		if (since >= overdue || (since >= long_overdue && moved >= OVERDUE_AT_ONCE))
			continue;
		moved++;
		move_in_order(&___it, p, QUEUE(cpu), before + moved);
		/* Who is to run it cannot: real-time tasks may have that vCPU, while others take. */
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

/* A window has passed. */
GLOBAL int sweep(u64 now_ns)
{
	u64 overdue, long_overdue;
	u32 at, i;

	if (now_ns - swept_ns < SWEEP_NS)
		return 0;
	swept_ns = now_ns;
	/* The verifier of Linux 6.12 does not see what a modulo is limited to. */
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

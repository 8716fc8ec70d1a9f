/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who holds what others wait for. The slow paths of the kernel's sleeping locks and of
 * glibc's mutexes show it, and cost nothing where nobody waits. A holder that is to give way
 * goes on until it has released the lock (policy/handoff.h); one that waits for a vCPU
 * runs next, on the vCPU of who wants the lock; and who spins for one whose vCPU is off
 * sleeps instead (policy/adaptive_spin.h).
 */
#ifndef UNSPIN_BPF_HOLDERS_H
#define UNSPIN_BPF_HOLDERS_H

#include "sched/contended.h"

/* A kernel may be built without cgroups. */
extern struct cgroup *bpf_cgroup_from_id(u64 id) __ksym __weak;
extern void bpf_cgroup_release(struct cgroup *cgroup) __ksym __weak;
extern long bpf_task_under_cgroup(struct task_struct *task,
				  struct cgroup *ancestor) __ksym __weak;

/* How often a task is looked at that spins, or that holds a lock and is to give way. */
#define WATCH_NS 250000ULL
/* The same of one that is in the kernel and waits for its group's time from then on. */
#define IN_KERNEL_WATCH_NS 1000000ULL
/* What sleeping and waking up takes beside the time until an idle vCPU answers. */
#define SWITCH_NS 20000ULL

struct recheck {
	struct bpf_timer timer;
	/* When it goes off next, or went off last. */
	u64 at_ns;
	u64 ready;
};

/* A timer whose interrupt shows what the task does that it meets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct recheck);
} rechecks SEC(".maps");

struct owner {
	u64 task;
	u32 tid;
	s32 cpu;
	bool runs;
	bool is_ready;
};

static void read_owner(u64 task, struct owner *owner)
{
	const void *p = (const void *)task;

	owner->task = task;
	owner->tid = PEEK(p, struct task_struct, pid);
	owner->cpu = PEEK(p, struct task_struct, thread_info.cpu);
	owner->runs = PEEK(p, struct task_struct, on_cpu);
	owner->is_ready = !owner->runs && !PEEK(p, struct task_struct, __state);
}

static bool lock_owner(u64 lock, u32 kind, struct owner *owner)
{
	u64 task = owner_of(lock, kind);

	if (task)
		read_owner(task, owner);
	return task;
}

/* When the vCPU went off, at the latest; 0: it is not, as far as is known. */
static u64 off_since_ns(s32 cpu, u64 now_ns)
{
	struct cpu_ctx *cctx = ctx_of(cpu);
	struct vcpu *v = vcpu_of(cpu);
	u64 asked_ns;

	if (!v || !cctx || v->activity.idle)
		return 0;
	if (is_off(v, now_ns))
		return v->activity.due_ns;
	asked_ns = cctx->asked_ns;
	/* Others may have asked since this one looked at the clock. */
	if (asked_ns > v->activity.alive_ns && now_ns > asked_ns &&
	    now_ns - asked_ns > settings.limits.timer_ns)
		return asked_ns;
	return 0;
}

/* Whether what spins on this vCPU for a lock should sleep. */
static bool should_sleep(const struct owner *owner, const struct cpu_ctx *here, u64 now_ns)
{
	struct adaptive_spin spin = {};
	struct vcpu *v = vcpu_of(owner->cpu);

	spin.off_since_ns = off_since_ns(owner->cpu, now_ns);
	if (!spin.off_since_ns || !v)
		return false;
	spin.off_mean_ns = v->activity.off_mean_ns;
	spin.block_ns = SWITCH_NS + here->wake_ns;
	return adaptive_spin_ends(&spin, now_ns);
}

/* The kernel's optimistic spinners look at need_resched(), so a preempting kick ends the spin. */
static void put_to_sleep(s32 here)
{
	COUNT(slept);
	scx_bpf_kick_cpu(here, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
}

static int recheck_fired(void *map, u32 *key, struct recheck *recheck)
{
	return 0;
}

static struct recheck *recheck_of(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&rechecks, &key);
}

/* In so long, unless it goes off before anyway. */
static void start_recheck(struct recheck *recheck, u64 now_ns, u64 ns)
{
	if (!recheck->ready || (now_ns < recheck->at_ns && recheck->at_ns <= now_ns + ns))
		return;
	if (!bpf_timer_start(&recheck->timer, ns, BPF_F_TIMER_CPU_PIN))
		recheck->at_ns = now_ns + ns;
}

static void arm_recheck(s32 here, u64 now_ns, u64 ns)
{
	struct recheck *recheck = recheck_of(here);

	if (!recheck)
		return;
	if (!recheck->ready && !bpf_timer_init(&recheck->timer, &rechecks, CLOCK_MONOTONIC) &&
	    !bpf_timer_set_callback(&recheck->timer, recheck_fired))
		recheck->ready = 1;
	start_recheck(recheck, now_ns, ns);
}

/* The same with a run queue locked, where no timer may be allocated: until the vCPU has one, only
 * its ticks look. */
static void arm_recheck_locked(s32 here, u64 now_ns)
{
	struct recheck *recheck = recheck_of(here);

	if (recheck)
		start_recheck(recheck, now_ns, WATCH_NS);
}

/* An owner that runs, as its own kernel believes. */
static void want_running(struct run_state *s, struct cpu_ctx *cctx, const struct owner *owner,
			 u64 now_ns)
{
	s32 here = bpf_get_smp_processor_id();

	if (!settings.adaptive_spin || !cctx->lock)
		return;
	if (should_sleep(owner, cctx, now_ns))
		put_to_sleep(here);
	else if (s->overcommitted)
		arm_recheck(here, now_ns, WATCH_NS);
}

static void want(const struct owner *owner, u64 now_ns)
{
	struct cpu_ctx *cctx = ctx_of(bpf_get_smp_processor_id());
	struct run_state *s = state();

	if (!cctx || !s)
		return;
	if (owner->runs) {
		want_running(s, cctx, owner, now_ns);
	} else if (owner->is_ready && settings.handoff) {
		cctx->wanted_task = owner->task;
		barrier();
		cctx->wanted_tid = owner->tid;
	}
}

static int begin_wait(u64 lock, u32 kind)
{
	struct cpu_ctx *cctx = ctx_of(bpf_get_smp_processor_id());
	u64 now_ns = bpf_ktime_get_ns();
	struct owner owner = {};

	if (!cctx)
		return 0;
	/* Another task may run here in between. The last one says whose the others are. */
	cctx->lock = lock;
	cctx->lock_kind = kind;
	barrier();
	cctx->lock_tid = bpf_get_current_pid_tgid();
	if (settings.handoff)
		note_contended(lock, kind, KERNEL, now_ns);
	if (lock_owner(lock, kind, &owner))
		want(&owner, now_ns);
	return 0;
}

static int begin_futex(const void *word)
{
	struct cpu_ctx *cctx = ctx_of(bpf_get_smp_processor_id());
	u32 process = bpf_get_current_pid_tgid() >> 32, tid;
	u64 now_ns = bpf_ktime_get_ns();
	struct owner owner = {};
	struct task_struct *p;

	tid = cctx && settings.handoff && can_find_tasks() ? glibc_owner(word) : 0;
	p = tid ? find_thread(tid) : 0;
	if (!p)
		return 0;
	/* It does not spin for this one. */
	cctx->lock = 0;
	if (is_of_this_process(p)) {
		note_contended((u64)word, LOCK_GLIBC, process, now_ns);
		read_owner((u64)p, &owner);
		want(&owner, now_ns);
	}
	bpf_task_release(p);
	return 0;
}

/* Whether the user has said that this task holds what others wait for. */
static bool is_named(struct task_struct *p)
{
	struct task_name name = {};
	struct cgroup *cgroup;
	bool is_below;
	u32 i;

	if (!settings.holder_names[0].halves[0] && !settings.holder_cgroups[0])
		return false;
	bpf_core_read(&name, sizeof(name), &p->comm);
	for (i = 0; i < HOLDER_PLACES && settings.holder_names[i].halves[0]; i++)
		if (name.halves[0] == settings.holder_names[i].halves[0] &&
		    name.halves[1] == settings.holder_names[i].halves[1])
			return true;
	if (!bpf_ksym_exists(bpf_cgroup_from_id) || !bpf_ksym_exists(bpf_cgroup_release) ||
	    !bpf_ksym_exists(bpf_task_under_cgroup))
		return false;
	for (i = 0; i < HOLDER_PLACES && settings.holder_cgroups[i]; i++) {
		cgroup = bpf_cgroup_from_id(settings.holder_cgroups[i]);
		if (!cgroup)
			continue;
		is_below = bpf_task_under_cgroup(p, cgroup);
		bpf_cgroup_release(cgroup);
		if (is_below)
			return true;
	}
	return false;
}

/* Whether the task that runs here, and is to give way, goes on for now: it holds a lock. */
static bool extends_slice(struct cpu_ctx *cctx, u64 now_ns)
{
	if (!cctx->due_ns)
		cctx->due_ns = now_ns;
	if (!settings.handoff || !handoff_goes_on(cctx->due_ns, now_ns) ||
	    !(cctx->holder || holds_contended(now_ns))) {
		cctx->due_ns = 0;
		return false;
	}
	cctx->counts.extended += !cctx->extended;
	cctx->extended = 1;
	return true;
}

/* An interrupt on a vCPU whose task is to give way: now, or when it has released a lock. */
static void give_way(u64 now_ns)
{
	s32 here = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = ctx_of(here);

	if (!cctx || !cctx->due_ns)
		return;
	if (extends_slice(cctx, now_ns))
		arm_recheck(here, now_ns, WATCH_NS);
	else
		scx_bpf_kick_cpu(here, SCX(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* A timer's interrupt has found a spinner. Its owner is off if the owner's vCPU shows no sign of
 * life, or does not answer until the next look. */
static void found_spinning(u64 now_ns)
{
	s32 here = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = ctx_of(here), *its;
	struct run_state *s = state();
	struct owner owner = {};

	if (!cctx || !s || !settings.adaptive_spin || !cctx->lock ||
	    cctx->lock_tid != (u32)bpf_get_current_pid_tgid() ||
	    !lock_owner(cctx->lock, cctx->lock_kind, &owner) || !owner.runs || owner.cpu == here)
		return;
	if (should_sleep(&owner, cctx, now_ns)) {
		put_to_sleep(here);
		return;
	}
	if (!s->overcommitted)
		return;
	its = ctx_of(owner.cpu);
	if (its && now_ns > its->asked_ns + WATCH_NS) {
		its->asked_ns = now_ns;
		cctx->counts.asked++;
		scx_bpf_kick_cpu(owner.cpu, 0);
	}
	arm_recheck(here, now_ns, WATCH_NS);
}

/* The queue that a task waits in now; below 0: one of the kernel's own, or none. Where the task ran
 * last does not say that: its vCPU may be out of use since, or its group out of time. What is read
 * of a task that has ended may be anything, and names no queue where it is found. */
static s64 queue_of(u64 task)
{
	const void *queue = PEEK((const void *)task, struct task_struct, scx.dsq);

	return queue ? (s64)PEEK(queue, struct scx_dispatch_q, id) : -1;
}

/* The holder that this vCPU's task has begun to wait for runs here, now. */
static bool take_wanted(struct cpu_ctx *cctx)
{
	s32 here = bpf_get_smp_processor_id();
	u32 tid = cctx->wanted_tid;
	bool taken;
	s64 queue;

	if (!tid)
		return false;
	cctx->wanted_tid = 0;
	queue = queue_of(cctx->wanted_task);
	taken = queue >= 0 && take_one(queue, tid, here);
	cctx->counts.handed += taken;
	return taken;
}

#endif /* UNSPIN_BPF_HOLDERS_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The holders of contended locks. The slow paths of the kernel's sleeping locks and of glibc's
 * mutexes reveal them, which costs nothing while no task waits. A holder that is to give way goes
 * on until it has released the lock (policy/handoff.h). A holder that waits for a vCPU runs next,
 * on the vCPU of the task that wants the lock. A task that spins for a lock whose holder's vCPU
 * is off sleeps instead (policy/adaptive_spin.h).
 */
#ifndef UNSPIN_BPF_HOLDERS_H
#define UNSPIN_BPF_HOLDERS_H

#include "sched/contended.h"

/* These are weak, because a kernel may be built without cgroups. */
extern struct cgroup *bpf_cgroup_from_id(u64 id) __ksym __weak;
extern void bpf_cgroup_release(struct cgroup *cgroup) __ksym __weak;
extern long bpf_task_under_cgroup(struct task_struct *task,
				  struct cgroup *ancestor) __ksym __weak;

/* How often the scheduler looks at a task that spins, or that holds a lock and is to give way. */
#define WATCH_NS 250000ULL
/* How often it looks at a task in the kernel whose group is out of time. */
#define IN_KERNEL_WATCH_NS 1000000ULL
/* The cost of a sleep and a wake-up, beside the time until an idle vCPU responds. */
#define SWITCH_NS 20000ULL

struct recheck {
	struct bpf_timer timer;
	/* When it expires next, or expired last. */
	u64 at_ns;
	u64 ready;
};

/* A timer for each vCPU. Its interrupt shows what the current task is doing. */
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

/* Returns when the vCPU went off, at the latest; 0: it is not known to be off. */
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
	/* Another vCPU may have asked after this one read the clock. */
	if (asked_ns > v->activity.alive_ns && now_ns > asked_ns &&
	    now_ns - asked_ns > settings.limits.timer_ns)
		return asked_ns;
	return 0;
}

/* Returns whether the spinner on this vCPU should sleep. */
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

/* The kernel's optimistic spinners check need_resched(), so a preempting kick ends the spin. */
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

/* Arms the timer, unless it is due earlier anyway. */
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

/* Does the same while a run queue is locked, when no timer may be allocated. Until the vCPU has a
 * timer, only its ticks look. */
static void arm_recheck_locked(s32 here, u64 now_ns)
{
	struct recheck *recheck = recheck_of(here);

	if (recheck)
		start_recheck(recheck, now_ns, WATCH_NS);
}

/* Handles an owner that runs, as far as the guest's kernel knows. */
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
	/* Another task may run here between these writes. The last one names the task that the
	 * other two belong to. */
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
	/* A futex has no optimistic spinning. */
	cctx->lock = 0;
	if (is_of_this_process(p)) {
		note_contended((u64)word, LOCK_GLIBC, process, now_ns);
		read_owner((u64)p, &owner);
		want(&owner, now_ns);
	}
	bpf_task_release(p);
	return 0;
}

/* Returns whether the user has named this task as a holder. */
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

/* Returns whether the current task, which is to give way, goes on for now because it holds a
 * lock. */
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

/* Runs in an interrupt on a vCPU whose task is to give way: the task leaves now, or when it has
 * released its lock. */
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

/* Runs in a timer interrupt that has found a spinner. Its owner is off if the owner's vCPU shows
 * no sign of life, or does not respond until the next look. */
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

/* Returns the queue that a task waits in; below 0: one of the kernel's queues, or none. The vCPU
 * where the task ran last does not determine it: that vCPU may have gone out of use, or the
 * task's group out of time. The fields of a task that has ended may hold anything; at worst they
 * name a queue in which the task is not found. */
static s64 queue_of(u64 task)
{
	const void *queue = PEEK((const void *)task, struct task_struct, scx.dsq);

	return queue ? (s64)PEEK(queue, struct scx_dispatch_q, id) : -1;
}

/* Takes the holder that this vCPU's last task waits for, to run it here next. */
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

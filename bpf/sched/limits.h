/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The limits of cgroups (cpu.max). The runtime of a task is charged to its group and all groups
 * above, as policy/bandwidth.h accounts for it. When a group has used its time, a timer interrupt
 * that finds one of its tasks in user space sends the task into a queue of throttled tasks. A
 * task in the kernel may hold a lock that others need, so it goes on for a while. A throttled
 * task stays in the queue until its group has time again, for LONGEST_WAIT_NS at most, or until
 * another task waits for a lock that it holds.
 */
#ifndef UNSPIN_BPF_LIMITS_H
#define UNSPIN_BPF_LIMITS_H

/* The queue of throttled tasks. */
#define THROTTLED (1ULL << 32)
/* The time that a task is assumed to use until a tick looks at it. */
#define TURN_NS 4000000ULL
/* A task that has waited for so long gets a turn even if its group has no time: the kernel's
 * watchdog ends a scheduler that leaves a task waiting. */
#define LONGEST_WAIT_NS 4000000000ULL
/* A timer interrupt throttles a task only in user space, because a task in the kernel may hold a
 * lock. A task that makes system calls all the time might never be found in user space, and would
 * have no limit. So if all looks for so long have found a task in the kernel, the end of its
 * slice throttles it there. */
#define IN_KERNEL_MOST_NS 10000000ULL
/* For so long after a limit was seen, the scheduler checks tasks for limits. */
#define LIMITS_NS 10000000000ULL

static bool limits_exist;

/* Returns whether the group, or one above it, has used its time. */
GLOBAL int is_spent(u64 key)
{
	struct group *group;
	u32 level;

	for (level = 0; level < GROUP_LEVELS && key; level++) {
		group = bpf_map_lookup_elem(&groups, &key);
		if (!group)
			return false;
		if (!bandwidth_has(&group->bandwidth, 0))
			return true;
		key = group->parent;
	}
	return false;
}

static bool is_throttled(const struct task_struct *p)
{
	return limits_exist && !(p->flags & PF_EXITING) && is_spent(group_key(p));
}

/* Forgets a task that is in user space, sleeps, or is throttled. */
static void forget_in_kernel(struct cpu_ctx *cctx, u32 tid)
{
	if (cctx->kernel_tid == tid)
		cctx->kernel_tid = 0;
}

/* Checks whether the group of the vCPU's task has used its time. Returns whether the task has
 * been in the kernel for too long since then. A vCPU follows one such task at a time, across its
 * turns. */
static bool look_at_time(struct cpu_ctx *cctx, const struct task_struct *p, u64 now_ns)
{
	u32 tid = p->pid, followed = cctx->kernel_tid;

	cctx->spent = is_throttled(p);
	if (!cctx->spent) {
		forget_in_kernel(cctx, tid);
		return false;
	}
	if (followed != tid) {
		/* The followed task may have moved to another vCPU. */
		if (followed && now_ns < cctx->kernel_ns + LONG_NS)
			return false;
		cctx->kernel_tid = tid;
		cctx->kernel_ns = now_ns;
	}
	return now_ns >= cctx->kernel_ns + IN_KERNEL_MOST_NS;
}

/* Charges the groups of the vCPU's task for its runtime since the last charge. */
static __noinline void charge_groups(struct cpu_ctx *cctx, u64 now_ns)
{
	u64 key = cctx->group, ran_ns = now_ns - cctx->charged_ns;
	struct group *group;
	u32 level;

	cctx->charged_ns = now_ns;
	for (level = 0; level < GROUP_LEVELS && key; level++) {
		group = bpf_map_lookup_elem(&groups, &key);
		if (!group)
			return;
		bandwidth_charge(&group->bandwidth, ran_ns);
		key = group->parent;
	}
}

static void charge_limits(struct cpu_ctx *cctx, u64 now_ns)
{
	if (limits_exist)
		charge_groups(cctx, now_ns);
}

static long refill(void *map, u64 *key, struct group *group, u64 *now_ns)
{
	bandwidth_refill(&group->bandwidth, *now_ns);
	group->promised_ns = 0;
	return 0;
}

/* Returns whether the group has time for the turn of one more task. */
GLOBAL int has_time(u64 key)
{
	struct group *group;
	u32 level;

	for (level = 0; level < GROUP_LEVELS && key; level++) {
		group = bpf_map_lookup_elem(&groups, &key);
		if (!group)
			return true;
		if (!bandwidth_has(&group->bandwidth, group->promised_ns))
			return false;
		key = group->parent;
	}
	return true;
}

GLOBAL int promise_turn(u64 key)
{
	struct group *group;
	u32 level;

	for (level = 0; level < GROUP_LEVELS && key; level++) {
		group = bpf_map_lookup_elem(&groups, &key);
		if (!group)
			return 0;
		group->promised_ns += TURN_NS;
		key = group->parent;
	}
	return 0;
}

/* Reads the groups of a throttled task again. */
GLOBAL int see_groups(u64 key, u64 now_ns)
{
	struct group *group;
	u32 level;

	for (level = 0; level < GROUP_LEVELS && key; level++) {
		group = see_group(key, now_ns);
		if (!group)
			return 0;
		key = group->parent;
	}
	return 0;
}

/* Moves the iterator's task into a vCPU's queue, at that virtual time. Inline, so that the
 * verifier of every kernel recognizes the iterator. */
static __always_inline void release(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 vtime,
				    u64 now_ns)
{
	s32 was = scx_bpf_task_cpu(p), target = pick_queue(p, was, now_ns), cpu = take_idle(p, target);
	struct cpu_ctx *cctx = ctx_of(target);

	if (cctx && (!waiting_at(target) || (s64)(vtime - cctx->first_vtime) < 0))
		cctx->first_vtime = vtime;
	move_in_order(it, p, QUEUE(target), vtime);
	/* If none of our tasks runs on the target, nothing makes it look at its queue. The target
	 * may be this vCPU, which is about to go idle again. */
	if (cpu < 0 && cctx && (!cctx->used || !cctx->since_ns))
		cpu = target;
	if (cpu >= 0) {
		note_wake(cpu);
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
	}
}

/* Releases, once a window, the throttled tasks whose groups have time again, longest wait
 * first. */
GLOBAL int keep_limits(u64 now_ns)
{
	struct task_struct *p;
	u64 key;

	limits_exist = limit_seen_ns && now_ns - limit_seen_ns < LIMITS_NS;
	if (limits_exist)
		bpf_for_each_map_elem(&groups, refill, &now_ns, 0);
	if (scx_bpf_dsq_nr_queued(THROTTLED) <= 0)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, THROTTLED, 0) {
		key = group_key(p);
		see_groups(key, now_ns);
		/* A task that was queued after the timer read the clock is not overdue. */
		if (now_ns < p->scx.dsq_vtime + LONGEST_WAIT_NS && !has_time(key))
			continue;
		promise_turn(key);
		/* The task gets no credit for the time that it was throttled. */
		release(&___it, p, vtime_now, now_ns);
	}
	bpf_rcu_read_unlock();
	return 0;
}

#endif /* UNSPIN_BPF_LIMITS_H */

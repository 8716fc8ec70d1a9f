/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The limits of cgroups (cpu.max). What a task runs is taken from the time of its group and
 * of those above, as policy/bandwidth.h keeps it. Where that is used, a timer's interrupt
 * that finds a task of the group in user space sends it into a queue of those that wait
 * for time: one in the kernel may hold what others need, and goes on for a while. It stays in
 * the queue until there is time again, for LONGEST_WAIT_NS at most, or until another task
 * waits for a lock that it holds.
 */
#ifndef UNSPIN_BPF_LIMITS_H
#define UNSPIN_BPF_LIMITS_H

/* The queue of those that wait for time. */
#define THROTTLED (1ULL << 32)
/* What a task is taken to use until a tick looks at it. */
#define TURN_NS 4000000ULL
/* Who has waited for so long gets a turn, whether there is time or not: the kernel's watchdog
 * ends a scheduler that leaves a task waiting. */
#define LONGEST_WAIT_NS 4000000000ULL
/* A task whose group is out of time is stopped by a timer's interrupt that finds it in user space:
 * in the kernel, it may hold a lock. One that calls the kernel all the time may never be found in
 * user space, and would have no limit. So once every look has found a task in the kernel for this
 * long, the end of its slice stops it there, too. */
#define IN_KERNEL_MOST_NS 10000000ULL
/* For so long after a limit was seen, tasks may be in a group that has one. */
#define LIMITS_NS 10000000000ULL

static bool limits_exist;

/* Whether the tasks of that group are to wait. */
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

/* The task is in user space, sleeps, or waits for its group's time. */
static void forget_in_kernel(struct cpu_ctx *cctx, u32 tid)
{
	if (cctx->kernel_tid == tid)
		cctx->kernel_tid = 0;
}

/* Looks whether the group of the vCPU's task has used its time. Returns whether the task has been
 * in the kernel for too long since then. A vCPU follows one such task at a time, from turn to
 * turn. */
static bool look_at_time(struct cpu_ctx *cctx, const struct task_struct *p, u64 now_ns)
{
	u32 tid = p->pid, followed = cctx->kernel_tid;

	cctx->spent = is_throttled(p);
	if (!cctx->spent) {
		forget_in_kernel(cctx, tid);
		return false;
	}
	if (followed != tid) {
		/* The other one may have gone elsewhere. */
		if (followed && now_ns < cctx->kernel_ns + LONG_NS)
			return false;
		cctx->kernel_tid = tid;
		cctx->kernel_ns = now_ns;
	}
	return now_ns >= cctx->kernel_ns + IN_KERNEL_MOST_NS;
}

/* What the vCPU's task has run since the last time is taken from its group's time. */
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

/* Whether there is time for a turn of one more of the group's tasks. */
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

/* The groups of a task that waits for time, as they are now. */
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

/* The iterator's task waits for a vCPU, at that virtual time. Inline, so that the verifier of every
 * kernel knows the iterator. */
static __always_inline void release(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 vtime,
				    u64 now_ns)
{
	s32 was = scx_bpf_task_cpu(p), target = pick_queue(p, was, now_ns), cpu = take_idle(p, target);
	struct cpu_ctx *cctx = ctx_of(target);

	if (cctx && (!waiting_at(target) || (s64)(vtime - cctx->first_vtime) < 0))
		cctx->first_vtime = vtime;
	move_in_order(it, p, QUEUE(target), vtime);
	/* Where nothing of ours runs, nobody asks that queue. It may be this vCPU's, which is about to
	 * be idle again. */
	if (cpu < 0 && cctx && (!cctx->used || !cctx->since_ns))
		cpu = target;
	if (cpu >= 0) {
		note_wake(cpu);
		scx_bpf_kick_cpu(cpu, SCX(scx_kick_flags, SCX_KICK_IDLE));
	}
}

/* A window has passed: whose groups have time again go on, who has waited longest first. */
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
		/* A task that was queued after the timer read the clock has not waited yet. */
		if (now_ns < p->scx.dsq_vtime + LONGEST_WAIT_NS && !has_time(key))
			continue;
		promise_turn(key);
		/* What it has not had meanwhile is not owed to it. */
		release(&___it, p, vtime_now, now_ns);
	}
	bpf_rcu_read_unlock();
	return 0;
}

#endif /* UNSPIN_BPF_LIMITS_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The weights of cgroups, which policy/share.h turns into factors of their tasks' weights. Every
 * window counts which tasks run and wait, and so which groups compete. So sleeping and waking up
 * cost nothing more.
 */
#ifndef UNSPIN_BPF_SHARES_H
#define UNSPIN_BPF_SHARES_H

/* The number of waiting tasks of a queue that are examined. They represent the others. */
#define COUNTED 16

/* The total weight of all ready tasks, in this window and on average. */
static u64 ready_in_all;
static u64 ready_in_all_mean;
/* Whether any group's factor differs from one: in force, and as this window finds it. */
static bool weights_differ;
static bool found_to_differ;

/* Counts a ready task of that weight, and the groups above it. */
GLOBAL int count_ready(u64 key, u64 weight, u64 window)
{
	struct group *group;
	u32 level;

	ready_in_all += weight;
	for (level = 0; level < GROUP_LEVELS && key; level++) {
		group = see_group(key, window);
		if (!group)
			return 0;
		if (group->window == window) {
			group->ready += weight;
			return 0;
		}
		group->window = window;
		group->ready = weight;
		weight = group->weight;
		key = group->parent;
	}
	return 0;
}

static void count_waiting(s32 cpu, u64 window)
{
	u32 waiting = waiting_at(cpu), counted = 0;
	u32 looked = waiting < COUNTED ? waiting : COUNTED;
	struct task_struct *p;

	if (!looked)
		return;
	/* Some kernels treat a timer callback as sleepable, so the iterator needs an RCU
	 * section. */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, QUEUE(cpu), 0) {
		if (++counted > looked)
			break;
		count_ready(group_key(p), (u64)p->scx.weight * PARTS * waiting / looked, window);
	}
	bpf_rcu_read_unlock();
}

static long average(void *map, u64 *key, struct group *group, u64 *window)
{
	if (group->window == *window)
		group->ready_mean = policy_mean(group->ready_mean, group->ready);
	return 0;
}

static long weigh(void *map, u64 *key, struct group *group, u64 *window)
{
	u64 share = SHARE_ONE, above = group->parent, weight = group->weight;
	struct group *parent;
	u32 level;

	if (group->window != *window)
		return 0;
	for (level = 0; level < GROUP_LEVELS && above; level++) {
		parent = bpf_map_lookup_elem(&groups, &above);
		if (!parent)
			break;
		share = share_of(share, weight, parent->ready_mean);
		above = parent->parent;
		weight = parent->weight;
	}
	group->factor = share_factor(share, group->ready_mean, ready_in_all_mean);
	if (group->factor < SHARE_ONE * 99 / 100 || group->factor > SHARE_ONE * 101 / 100)
		found_to_differ = true;
	return 0;
}

/* Weighs all groups again. Runs once a window. */
GLOBAL int weigh_groups(u64 window)
{
	struct cpu_ctx *cctx;
	u32 i;

	ready_in_all = 0;
	bpf_for(i, 0, vcpu_count) {
		cctx = ctx_of(i);
		if (!cctx)
			break;
		if (cctx->group)
			count_ready(cctx->group, cctx->weight * PARTS, window);
		count_waiting(i, window);
	}
	if (!ready_in_all)
		return 0;
	ready_in_all_mean = policy_mean(ready_in_all_mean, ready_in_all);
	found_to_differ = false;
	bpf_for_each_map_elem(&groups, average, &window, 0);
	bpf_for_each_map_elem(&groups, weigh, &window, 0);
	weights_differ = found_to_differ;
	return 0;
}

/* Returns the virtual time that a task of that weight and group is charged. */
static u64 charge_ns(u64 ran_ns, u32 weight, u64 key)
{
	struct group *group = weights_differ ? bpf_map_lookup_elem(&groups, &key) : 0;

	return share_charge_ns(ran_ns, weight, group ? group->factor : SHARE_ONE);
}

#endif /* UNSPIN_BPF_SHARES_H */

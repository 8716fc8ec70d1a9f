/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The groups that tasks are in. The kernel's own groups are read, so version 1 and 2 of
 * cgroups, and sessions where those are groups (autogroup), count as for its own scheduler.
 */
#ifndef UNSPIN_BPF_GROUPS_H
#define UNSPIN_BPF_GROUPS_H

/* Groups that are remembered; who was not seen for the longest is forgotten. */
#define GROUPS 2048
/* Levels of groups in groups. */
#define GROUP_LEVELS 16
/* A group's weight on the scale of tasks': the kernel's normal one is 1024, in 1024ths. */
#define GROUP_WEIGHT(shares) ((shares) * WEIGHT >> 20)
/* Parts of a weight, for means of small ones. */
#define PARTS 64

struct group {
	/* The key of the group it is in; 0: of none. */
	u64 parent;
	u64 weight;
	/* Weights of what is ready in it, in the last window in which any was, and on average. */
	u64 ready;
	u64 ready_mean;
	/* That window, and the one in which the kernel's group was read last. */
	u64 window;
	u64 seen;
	u64 factor;
	struct bandwidth bandwidth;
	/* Turns of tasks that go on in this window. */
	u64 promised_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GROUPS);
	__type(key, u64);
	__type(value, struct group);
} groups SEC(".maps");

/* When a group that has a limit was seen last. */
static u64 limit_seen_ns;

static u64 group_of(const struct task_struct *p)
{
	if (!bpf_core_field_exists(p->sched_task_group))
		return 0;
	return (u64)PEEK(p, struct task_struct, sched_task_group);
}

/* The same as a number to the verifier too, which global functions ask for. */
static u64 group_key(const struct task_struct *p)
{
	u64 key = 0;

	if (bpf_core_field_exists(p->sched_task_group))
		bpf_core_read(&key, sizeof(key), &p->sched_task_group);
	return key;
}

static struct group *find_group(u64 key)
{
	struct group empty = {}, *group = bpf_map_lookup_elem(&groups, &key);

	if (group)
		return group;
	empty.factor = SHARE_ONE;
	bpf_map_update_elem(&groups, &key, &empty, 0);
	return bpf_map_lookup_elem(&groups, &key);
}

static void read_limit(const void *kernels, struct group *group, u64 now_ns)
{
	if (!bpf_core_field_exists(((struct task_group *)0)->cfs_bandwidth.burst))
		return;
	bandwidth_set(&group->bandwidth, PEEK(kernels, struct task_group, cfs_bandwidth.quota),
		      PEEK(kernels, struct task_group, cfs_bandwidth.period),
		      PEEK(kernels, struct task_group, cfs_bandwidth.burst), now_ns);
	if (group->bandwidth.quota_ns)
		limit_seen_ns = now_ns;
}

/* A group of a task that is ready, as the kernel has it in the window that ended now. */
static struct group *see_group(u64 key, u64 now_ns)
{
	const void *kernels = (const void *)key;
	struct group *group = find_group(key);
	u64 weight;

	if (!group || group->seen == now_ns)
		return group;
	group->seen = now_ns;
	group->parent = (u64)PEEK(kernels, struct task_group, parent);
	weight = GROUP_WEIGHT(PEEK(kernels, struct task_group, shares));
	group->weight = (weight ? weight : 1) * PARTS;
	read_limit(kernels, group, now_ns);
	return group;
}

#endif /* UNSPIN_BPF_GROUPS_H */

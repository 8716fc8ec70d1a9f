/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The groups that tasks are in. The scheduler reads the kernel's own task groups. So cgroups of
 * both versions count as they do for the kernel's scheduler, and so do sessions with autogroup.
 */
#ifndef UNSPIN_BPF_GROUPS_H
#define UNSPIN_BPF_GROUPS_H

/* The number of groups that are kept; the least recently used one is dropped first. */
#define GROUPS 2048
/* The deepest nesting of groups that counts. */
#define GROUP_LEVELS 16
/* Converts a group's shares to the scale of task weights. The kernel's default of 1024 is stored
 * in 1024ths. */
#define GROUP_WEIGHT(shares) ((shares) * WEIGHT >> 20)
/* Fractions of a weight, so that means of small weights keep their precision. */
#define PARTS 64

struct group {
	/* The key of the parent group; 0: none. */
	u64 parent;
	u64 weight;
	/* The total weight of ready children, in the last window in which any was ready, and on
	 * average. */
	u64 ready;
	u64 ready_mean;
	/* That window, and the last window in which the kernel's group was read. */
	u64 window;
	u64 seen;
	u64 factor;
	struct bandwidth bandwidth;
	/* CPU time for the turns of tasks that are released in this window. */
	u64 promised_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GROUPS);
	__type(key, u64);
	__type(value, struct group);
} groups SEC(".maps");

/* The last time that a group with a limit was seen. */
static u64 limit_seen_ns;

static u64 group_of(const struct task_struct *p)
{
	if (!bpf_core_field_exists(p->sched_task_group))
		return 0;
	return (u64)PEEK(p, struct task_struct, sched_task_group);
}

/* Returns the same as a plain number, which global functions need as an argument. */
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

/* Returns the group of a ready task, and reads the kernel's group if this window has not read it
 * yet. */
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

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of sched_ext that the scheduler uses, for Linux 6.12 and later. Kernels differ in the
 * names of kfuncs and the values of flags, so libbpf resolves both at load time.
 */
#ifndef UNSPIN_BPF_SCX_H
#define UNSPIN_BPF_SCX_H

enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1ULL,
	SCX_ENQ_PREEMPT = 1ULL << 32,
	SCX_ENQ_LAST = 1ULL << 41,
};

enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 1ULL << 63 | 2,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};

enum scx_wake_flags {
	SCX_WAKE_SYNC = 16,
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};

/* Flags of struct sched_ext_ops have had these values since 6.12. */
#define SCX_OPS_ENQ_LAST 2

#define SCX(type, name) bpf_core_enum_value(enum type, name)

/* The iterator of bpf_for_each(scx_dsq, ...). */
struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct scx_cpu_release_args;

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

/* The members that only this scheduler reads. libbpf ignores the suffix from "___" on. */
struct sched_ext_entity___here {
	u32 flags;
};

#pragma clang attribute pop

/* The members in use. libbpf finds them by name. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*enable)(struct task_struct *p);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u32 scx_bpf_nr_cpu_ids(void) __ksym;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) __ksym;
bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b) __ksym;

/* The kfuncs that insert a task, and that take one from a queue, have had three forms: since
 * 6.12, since 6.13 (another name), and since 6.19 or 7.1 (another prototype). libbpf ignores the
 * last "___" of a name and what follows, so two forms of one name can be declared. */
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 flags) __ksym __weak;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 flags) __ksym __weak;
bool scx_bpf_dsq_insert___v2___here(struct task_struct *p, u64 dsq_id, u64 slice,
				    u64 flags) __ksym __weak;

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			    u64 flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			      u64 flags) __ksym __weak;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;

bool scx_bpf_consume(u64 dsq_id) __ksym __weak;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v2___here(u64 dsq_id, u64 flags) __ksym __weak;

/* Since 6.19. Until then, schedulers write the fields. */
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) __ksym __weak;

/* Since 7.1. */
void scx_bpf_dsq_reenq(u64 dsq_id, u64 flags) __ksym __weak;
/* Until then. */
u32 scx_bpf_reenqueue_local(void) __ksym __weak;

bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
		      u64 flags) __ksym __weak;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			    u64 flags) __ksym __weak;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
/* Until 6.13. */
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			       u64 flags) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p,
				     u64 dsq_id, u64 flags) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym __weak;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym __weak;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym __weak;

static void insert(struct task_struct *p, u64 queue, u64 slice_ns, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___here))
		scx_bpf_dsq_insert___v2___here(p, queue, slice_ns, flags);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, queue, slice_ns, flags);
	else
		scx_bpf_dispatch(p, queue, slice_ns, flags);
}

static void insert_in_order(struct task_struct *p, u64 queue, u64 slice_ns, u64 vtime, u64 flags)
{
	struct scx_bpf_dsq_insert_vtime_args args = {
		.dsq_id = queue,
		.slice = slice_ns,
		.vtime = vtime,
		.enq_flags = flags,
	};

	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime))
		__scx_bpf_dsq_insert_vtime(p, &args);
	else if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime))
		scx_bpf_dsq_insert_vtime(p, queue, slice_ns, vtime, flags);
	else
		scx_bpf_dispatch_vtime(p, queue, slice_ns, vtime, flags);
}

static bool take_from(u64 queue)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___here))
		return scx_bpf_dsq_move_to_local___v2___here(queue, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(queue);
	return scx_bpf_consume(queue);
}

static void set_slice(struct task_struct *p, u64 slice_ns)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice_ns);
	else
		p->scx.slice = slice_ns;
}

static void set_vtime(struct task_struct *p, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(p, vtime);
	else
		p->scx.dsq_vtime = vtime;
}

/* Enqueues the tasks of this vCPU's local queue again. */
static void reenqueue_local(void)
{
	if (bpf_ksym_exists(scx_bpf_dsq_reenq))
		scx_bpf_dsq_reenq(SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0);
	else if (bpf_ksym_exists(scx_bpf_reenqueue_local))
		scx_bpf_reenqueue_local();
}

/* Moves the iterator's task to that queue. */
static bool move_in_order(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 queue, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime)) {
		scx_bpf_dsq_move_set_vtime(it, vtime);
		return scx_bpf_dsq_move_vtime(it, p, queue, 0);
	}
	scx_bpf_dispatch_from_dsq_set_vtime(it, vtime);
	return scx_bpf_dispatch_vtime_from_dsq(it, p, queue, 0);
}

/* The number of waiting tasks that a search for a particular task examines. */
#define SEARCH 32

/* Inside a loop over a queue: moves the task to the local queue of this vCPU. */
#define TAKE_THIS(p, local)                                                           \
	(bpf_ksym_exists(scx_bpf_dsq_move) ? scx_bpf_dsq_move(&___it, p, local, 0) : \
					     scx_bpf_dispatch_from_dsq(&___it, p, local, 0))

/* Returns whether the kernel keeps the task on its vCPU for now, whatever its affinity. While
 * this program runs, the current task itself counts as such, and is excepted. From 6.15 on, the
 * kernel does not pass such tasks to the scheduler. */
static bool stays(const struct task_struct *p)
{
	if (!bpf_core_field_exists(p->migration_disabled))
		return false;
	if (p->migration_disabled == 1)
		return p != bpf_get_current_task_btf();
	return p->migration_disabled;
}

/* Returns whether the task that has run is still runnable. */
static bool is_ready(const struct task_struct *p)
{
	const struct sched_ext_entity___here *scx = (const void *)&p->scx;

	return scx->flags & SCX(scx_ent_flags, SCX_TASK_QUEUED);
}

/* Returns whether a waiting task may be taken to this vCPU. Taking one that may not is an error,
 * which ends the scheduler. */
static bool may_go_to(const struct task_struct *p, s32 here)
{
	return bpf_cpumask_test_cpu(here, p->cpus_ptr) &&
	       (!stays(p) || scx_bpf_task_cpu(p) == here);
}

/* Takes that task from the queue that it waits in, if it is among the first and may run here. */
static bool take_one(u64 queue, u32 tid, s32 here)
{
	u64 local = SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	struct task_struct *p;
	u32 looked = 0;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if ((u32)p->pid == tid && may_go_to(p, here))
			return TAKE_THIS(p, local);
		if (++looked >= SEARCH)
			break;
	}
	return false;
}

#endif /* UNSPIN_BPF_SCX_H */

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest scheduler. Tasks wait in the queues of vCPUs (queues.h). A vCPU also takes tasks from
 * the queues of vCPUs that do not serve them. The agent decides how many vCPUs are in use
 * (packing.h). A vCPU that is not in use runs only tasks that may run nowhere else.
 */
#include "core/kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "sched/scx.h"
#include "sched/run.h"
#include "core/peek.h"
#include "core/vcpu.h"

char LICENSE[] SEC("license") = "GPL";

/* The agent sets them before it loads the programs. */
const volatile struct run_settings settings = {};

#include "sched/cpu_ctx.h"
#include "sched/groups.h"
#include "sched/shares.h"
#include "sched/queues.h"
#include "sched/limits.h"
#include "sched/overdue.h"
#include "sched/holders.h"

/* The scheduler does not act on spinning in user space. */
static bool spins_in_user(u64 ip)
{
	return false;
}

#include "sense/ticks.h"
#include "sched/placed.h"
#include "sched/packing.h"
#include "sched/wakeup.h"
#include "sched/turn.h"

SEC("tp_btf/local_timer_entry")
int BPF_PROG(local_timer_entry, int vector)
{
	return begin_timer();
}

SEC("tp_btf/local_timer_exit")
int BPF_PROG(local_timer_exit, int vector)
{
	return end_timer();
}

SEC("tp_btf/cpu_idle")
int BPF_PROG(cpu_idle, u32 entered, u32 cpu)
{
	change_idle(entered, cpu);
	if (entered != PWR_EVENT_EXIT)
		look_again(cpu);
	return 0;
}

/* Another vCPU asks this one to reschedule, or for a sign of life. */
SEC("tp_btf/reschedule_entry")
int BPF_PROG(reschedule_entry, int vector)
{
	struct activity_limits limits = settings.limits;
	u64 now_ns = bpf_ktime_get_ns();
	struct vcpu *v = this_vcpu();

	if (v && !activity_is_early(&v->activity, &limits, now_ns))
		note_alive(v, now_ns, due_ns(v, now_ns));
	give_way(now_ns);
	return 0;
}

SEC("fentry/__mutex_lock_slowpath")
int BPF_PROG(mutex_begin, void *lock)
{
	return begin_wait((u64)lock, LOCK_MUTEX);
}

SEC("fentry/__mutex_lock_killable_slowpath")
int BPF_PROG(mutex_killable_begin, void *lock)
{
	return begin_wait((u64)lock, LOCK_MUTEX);
}

SEC("fentry/__mutex_lock_interruptible_slowpath")
int BPF_PROG(mutex_interruptible_begin, void *lock)
{
	return begin_wait((u64)lock, LOCK_MUTEX);
}

SEC("fentry/rwsem_down_write_slowpath")
int BPF_PROG(rwsem_write_begin, void *lock)
{
	return begin_wait((u64)lock, LOCK_RWSEM);
}

SEC("fentry/rwsem_down_read_slowpath")
int BPF_PROG(rwsem_read_begin, void *lock)
{
	return begin_wait((u64)lock, LOCK_RWSEM);
}

SEC("fentry/futex_wait")
int BPF_PROG(futex_begin, const void *word)
{
	return begin_futex(word);
}

/* Runs after the timer's work, including the tick. */
SEC("tp_btf/local_timer_exit")
int BPF_PROG(timer_done, int vector)
{
	struct cpu_ctx *cctx = this_ctx();
	u64 now_ns = bpf_ktime_get_ns();

	if (!cctx || !cctx->spent || !throttle(cctx, now_ns))
		give_way(now_ns);
	/* A real-time task may occupy this vCPU. Then only a window can move the tasks that were
	 * sent here. */
	if (resting && placed_at(bpf_get_smp_processor_id()))
		end_rest();
	return 0;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(run_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 here = bpf_get_smp_processor_id(), cpu;
	bool takes_over = wake_flags & SCX(scx_wake_flags, SCX_WAKE_SYNC) && can_take_over(p, here);

	cpu = takes_over ? here : take_idle(p, prev_cpu);
	if (cpu < 0)
		return prev_cpu;
	note_wake(cpu);
	set_vtime(p, place_in_time(p, SCX(scx_enq_flags, SCX_ENQ_WAKEUP)));
	/* The idle vCPU runs the task next. When other vCPUs could take it from the queue
	 * instead, hackbench was 10 % slower (4 vCPUs on 2 pCPUs, six seeds in virtual time). */
	insert(p, takes_over ? SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL) : PLACED(cpu), LONG_NS, 0);
	if (!takes_over)
		COUNT(placed);
	return cpu;
}

SEC("struct_ops/enqueue")
void BPF_PROG(run_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 local = SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL), now_ns = bpf_ktime_get_ns();
	s32 was = scx_bpf_task_cpu(p), target;
	u64 vtime;

	/* The kernel's per-CPU threads run at once, because others wait for them. */
	if (p->nr_cpus_allowed == 1 && p->flags & PF_KTHREAD) {
		insert(p, local, LONG_NS, enq_flags | SCX(scx_enq_flags, SCX_ENQ_PREEMPT));
		return;
	}
	if (stays(p)) {
		insert(p, local, LONG_NS, enq_flags);
		return;
	}
	if (is_to_wait(p, was)) {
		insert_in_order(p, THROTTLED, LONG_NS, now_ns, enq_flags);
		COUNT(throttled);
		return;
	}
	target = pick_queue(p, was, now_ns);
	/* No other task wants this vCPU. */
	if (enq_flags & SCX(scx_enq_flags, SCX_ENQ_LAST) && target == was) {
		insert(p, local, LONG_NS, enq_flags);
		/* The kernel has already chosen to go idle, and some kernels do not look
		 * again. */
		scx_bpf_kick_cpu(was, SCX(scx_kick_flags, SCX_KICK_IDLE));
		return;
	}
	vtime = place_in_time(p, enq_flags);
	COUNT(queued);
	end_rest();
	queue_at(p, target, vtime, enq_flags);
	wake_for(p, target, vtime, enq_flags, now_ns);
}

SEC("struct_ops/dispatch")
void BPF_PROG(run_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_ctx *cctx = ctx_of(cpu);

	if (!cctx || real_time_is_next(cpu) || (placed_at(cpu) && take_from(PLACED(cpu))))
		return;
	cctx->served_ns = now_ns;
	if (!take_wanted(cctx) && !take_next(cctx, cpu, now_ns) && prev)
		keep(cctx, cpu, prev, now_ns);
}

/* A task of a higher class has taken this vCPU. Our tasks in its local queue, from which no other
 * vCPU takes, go back to our queues. */
SEC("struct_ops/cpu_release")
void BPF_PROG(run_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	struct cpu_ctx *cctx = ctx_of(cpu);
	s32 tasks = scx_bpf_dsq_nr_queued(SCX(scx_dsq_id_flags, SCX_DSQ_LOCAL));

	if (tasks <= 0)
		return;
	if (cctx)
		cctx->counts.reenqueued += tasks;
	reenqueue_local();
}

/* Ends the turn of a task if others wait, if its group's time is used up, or if the vCPU is not
 * in use and the task may run elsewhere. */
SEC("struct_ops/tick")
void BPF_PROG(run_tick, struct task_struct *p)
{
	u64 now_ns = bpf_ktime_get_ns(), ran_ns;
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = ctx_of(cpu);
	bool overstays;

	end_rest();
	if (!cctx)
		return;
	charge_limits(cctx, now_ns);
	ran_ns = now_ns - cctx->since_ns;
	overstays = look_at_time(cctx, p, now_ns);
	if (!cctx->used)
		cctx->bound = cannot_leave(p);
	if (!cctx->used && !cctx->bound) {
		set_slice(p, 0);
	} else if (ran_ns >= settings.slice_ns &&
		   (overstays || others_wait(cctx, cpu, ran_ns, now_ns)) &&
		   !extends_slice(cctx, now_ns)) {
		if (overstays)
			cctx->throttled_tid = p->pid;
		set_slice(p, 0);
	}
}

SEC("struct_ops/running")
void BPF_PROG(run_running, struct task_struct *p)
{
	struct cpu_ctx *cctx = this_ctx(), *from;
	struct vcpu *v = this_vcpu();

	if (!cctx || !v)
		return;
	begin_turn(cctx, v, p);
	cctx->process = p->tgid;
	cctx->weight = p->scx.weight;
	cctx->group = group_of(p);
	cctx->holder = is_named(p);
	from = ctx_of(cctx->from);
	if (from)
		from->first_vtime = p->scx.dsq_vtime;
	cctx->from = -1;
	/* The task that began to wait for that lock has left the vCPU. */
	cctx->lock = 0;
}

SEC("struct_ops/stopping")
void BPF_PROG(run_stopping, struct task_struct *p, bool runnable)
{
	struct cpu_ctx *cctx = this_ctx();
	struct vcpu *v = this_vcpu();

	if (!cctx || !v)
		return;
	charge_turn(cctx, v, p, bpf_ktime_get_ns());
	if (!runnable) {
		/* When it wakes up, it may have to release a lock that it holds in the kernel. */
		cctx->throttled_tid = 0;
		forget_in_kernel(cctx, p->pid);
	}
	cctx->group = 0;
	cctx->spent = 0;
	cctx->since_ns = 0;
}

SEC("struct_ops/enable")
void BPF_PROG(run_enable, struct task_struct *p)
{
	set_vtime(p, vtime_now);
}

/* Creates the queues of each online vCPU. The set of online vCPUs does not change: when one comes
 * or goes, the kernel ends the scheduler, and the agent loads it again. */
static s32 init_cpus(struct run_state *s)
{
	u32 i, possible = scx_bpf_nr_cpu_ids();
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	struct cpu_ctx *cctx;
	s32 error = 0;

	s->online = 0;
	bpf_for(i, 0, possible) {
		cctx = ctx_of(i);
		if (!cctx || !bpf_cpumask_test_cpu(i, online))
			continue;
		error = scx_bpf_create_dsq(QUEUE(i), -1);
		if (!error)
			error = scx_bpf_create_dsq(PLACED(i), -1);
		if (error)
			break;
		cctx->online = 1;
		set_used(cctx, i, true);
		cctx->from = -1;
		s->online++;
		vcpu_count = i + 1;
	}
	scx_bpf_put_cpumask(online);
	return error;
}

SEC("struct_ops.s/init")
s32 BPF_PROG(run_init)
{
	struct window_timer *timer;
	struct run_state *s = state();
	u32 zero = 0;
	s32 error;

	timer = bpf_map_lookup_elem(&window_timers, &zero);
	if (!timer || !s)
		return -1;
	error = init_used();
	if (!error)
		error = init_cpus(s);
	if (!error)
		error = scx_bpf_create_dsq(THROTTLED, -1);
	if (error)
		return error;
	s->use = s->online;
	error = bpf_timer_init(&timer->timer, &window_timers, CLOCK_MONOTONIC);
	if (!error)
		error = bpf_timer_set_callback(&timer->timer, window);
	if (!error)
		error = bpf_timer_start(&timer->timer, RUN_WINDOW_NS, 0);
	end_choice();
	return error;
}

/* Sets the number of vCPUs in use, for the agent. The agent's own thread applies it at once,
 * because timers are late on vCPUs that spin with interrupts disabled. Returns how many vCPUs
 * have yet to release their tasks, 1 if the agent should call again, or WANT_REFUSED. */
SEC("syscall")
int want_vcpus(u32 *vcpus)
{
	struct run_state *s = state();
	u64 now_ns = bpf_ktime_get_ns();

	wanted_vcpus = *vcpus;
	if (!s || !begin_choice())
		return 1;
	use_vcpus(to_use(s, now_ns));
	end_choice();
	return *vcpus && now_ns < s->stuck_until_ns ? WANT_REFUSED : clear_vcpus();
}

SEC("struct_ops/exit")
void BPF_PROG(run_exit, struct scx_exit_info *info)
{
	struct run_end *end;
	u32 zero = 0;

	end = bpf_map_lookup_elem(&ends, &zero);
	if (!end)
		return;
	bpf_probe_read_kernel_str(end->reason, sizeof(end->reason), info->reason);
	bpf_probe_read_kernel_str(end->message, sizeof(end->message), info->msg);
	end->code = info->exit_code;
	end->kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops unspin = {
	.select_cpu = (void *)run_select_cpu,
	.enqueue = (void *)run_enqueue,
	.dispatch = (void *)run_dispatch,
	.tick = (void *)run_tick,
	.running = (void *)run_running,
	.stopping = (void *)run_stopping,
	.enable = (void *)run_enable,
	.cpu_release = (void *)run_cpu_release,
	.init = (void *)run_init,
	.exit = (void *)run_exit,
	.flags = SCX_OPS_ENQ_LAST,
	/* The longest timeout that the kernel allows. */
	.timeout_ms = 30000,
	.name = "unspin",
};

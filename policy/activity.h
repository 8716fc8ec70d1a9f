/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Infers what a vCPU does (on, off or idle) from its signs of life.
 *
 * A vCPU cannot observe that the host takes it off its pCPU; only its clock jumps. Two
 * observations reveal the absence once the vCPU is back: it serves a timer late that expired
 * meanwhile, and it answers a wake-up late that was sent to it while it was idle. Both give the
 * time of its return to the nanosecond. They give the time of its departure only within bounds:
 * after its last sign of life, and before the timer was due.
 *
 * A gap without a due timer proves nothing, because a program that computes gives no sign of
 * life. So while a vCPU is on, a timer must be due soon: the kernel's tick, or a heartbeat. A
 * timer can also be late because interrupts are disabled. A sign of life after the due time shows
 * this case, and the timer then counts as due from that sign on, because interrupts are disabled
 * only briefly. Only a vCPU that spins may have them disabled for long, so the end of a spin is
 * never judged.
 *
 * Other vCPUs read a vCPU's record without its cooperation: if the vCPU should have given a sign
 * of life and has not, it is off now.
 */
#ifndef UNSPIN_POLICY_ACTIVITY_H
#define UNSPIN_POLICY_ACTIVITY_H

#include "base.h"

enum activity_state {
	ACTIVITY_ON,
	ACTIVITY_OFF,
	ACTIVITY_IDLE,
};

/* The lateness from which the policy infers that a vCPU was off. */
struct activity_limits {
	/* A timer that is served later than this expired while its vCPU was off. */
	u64 timer_ns;
	/* A wake-up that is answered later than this arrived while the vCPU was off. */
	u64 wake_ns;
};

/* The record of one vCPU. The vCPU writes it, except woken_ns, which the waker writes; all vCPUs
 * read it. Zeroed at first. */
struct activity {
	/* The time of the last sign of life. */
	u64 alive_ns;
	/* When its next timer expires; 0: unknown. */
	u64 due_ns;
	/* While idle: when another vCPU sent the first wake-up; 0: none was sent. */
	u64 woken_ns;
	/* The start of the current run, as far as is known. */
	u64 run_ns;
	/* The mean length of the runs that an off interval ended, and of the off intervals; 0:
	 * none was seen yet. */
	u64 run_mean_ns;
	u64 off_mean_ns;
	/* When its last off interval ended; before the first one, when the vCPU was first
	 * seen. */
	u64 stirred_ns;
	u32 idle;
	u32 unused;
};

/* An off interval: the vCPU left its pCPU not before earliest_ns and not after latest_ns, and was
 * back at end_ns. If end_ns is 0, no interval was found. */
struct activity_off {
	u64 earliest_ns;
	u64 latest_ns;
	u64 end_ns;
};

/* The length of an off interval, measured from the middle of its bounds. */
POLICY u64 activity_off_ns(const struct activity_off *off)
{
	return off->end_ns - off->latest_ns + (off->latest_ns - off->earliest_ns) / 2;
}

/* Returns how much of an off interval lies between two instants, in nanoseconds, if it began in
 * the middle of its bounds. */
POLICY u64 activity_off_within_ns(const struct activity_off *off, u64 from_ns, u64 to_ns)
{
	u64 left_ns = off->end_ns - activity_off_ns(off);
	u64 first_ns = from_ns > left_ns ? from_ns : left_ns;
	u64 last_ns = to_ns < off->end_ns ? to_ns : off->end_ns;

	return last_ns > first_ns ? last_ns - first_ns : 0;
}

/* A new run begins now, after an off interval if there was one. */
POLICY void activity_begin_run(struct activity *a, const struct activity_off *off, u64 now_ns)
{
	u64 left_ns;

	if (off->end_ns) {
		left_ns = off->end_ns - activity_off_ns(off);
		if (!a->idle && left_ns > a->run_ns)
			a->run_mean_ns = policy_mean(a->run_mean_ns, left_ns - a->run_ns);
		a->off_mean_ns = policy_mean(a->off_mean_ns, activity_off_ns(off));
		a->stirred_ns = off->end_ns;
	}
	a->run_ns = now_ns;
}

/* Returns when a timer counts as due: now, if it has expired and was not served yet. */
POLICY u64 activity_due_ns(u64 now_ns, u64 due_ns)
{
	return due_ns && due_ns < now_ns ? now_ns : due_ns;
}

/* Notes that the vCPU has programmed another timer since its last sign of life. A timer that
 * already waits to be served stays the next one. */
POLICY void activity_set_timer(struct activity *a, u64 due_ns)
{
	if (!a->due_ns || a->due_ns != a->alive_ns)
		a->due_ns = activity_due_ns(a->alive_ns, due_ns);
}

/* Notes that the vCPU is on after an activity that may have held back its interrupts. */
POLICY void activity_postpone(struct activity *a, u64 now_ns, u64 due_ns)
{
	if (a->idle || now_ns < a->alive_ns)
		return;
	a->alive_ns = now_ns;
	a->due_ns = activity_due_ns(now_ns, due_ns);
}

/* Notes a sign of life soon after the last one, with no timer due in between: it shows only that
 * the vCPU is on. Returns 0, and notes nothing, if the sign may end an off interval; the caller
 * then calls activity_alive() or activity_resume(). */
POLICY u32 activity_is_early(struct activity *a, const struct activity_limits *limits, u64 now_ns)
{
	if (a->idle || now_ns < a->alive_ns || now_ns - a->alive_ns >= limits->timer_ns ||
	    now_ns >= a->due_ns)
		return 0;
	a->alive_ns = now_ns;
	return 1;
}

/*
 * Notes a sign of life of a vCPU that is not idle. Returns the off interval that ended with it,
 * if there is one. due_ns is when the vCPU's next timer expires; 0: unknown. A sign that comes
 * with a timer's interrupt is given before the kernel serves the timer; due_ns is then the time
 * of the following timer, or 0.
 */
POLICY struct activity_off activity_alive(struct activity *a, const struct activity_limits *limits,
					  u64 now_ns, u64 due_ns)
{
	struct activity_off off = {};

	if (!a->alive_ns) {
		a->run_ns = now_ns;
		a->stirred_ns = now_ns;
	} else if (a->due_ns && a->due_ns >= a->alive_ns && now_ns > a->due_ns &&
		   now_ns - a->due_ns > limits->timer_ns) {
		off.earliest_ns = a->alive_ns;
		off.latest_ns = a->due_ns;
		off.end_ns = now_ns;
		activity_begin_run(a, &off, now_ns);
	}
	if (now_ns > a->alive_ns)
		a->alive_ns = now_ns;
	a->due_ns = activity_due_ns(a->alive_ns, due_ns);
	return off;
}

/* Notes that the vCPU halts. Its next timer wakes it at due_ns; 0: it has none. */
POLICY void activity_idle(struct activity *a, u64 now_ns, u64 due_ns)
{
	a->alive_ns = now_ns;
	a->due_ns = due_ns;
	a->woken_ns = 0;
	a->idle = 1;
}

/* Notes that another vCPU sends this one a wake-up. */
POLICY void activity_wake(struct activity *a, u64 now_ns)
{
	if (a->idle && !a->woken_ns)
		a->woken_ns = now_ns;
}

/* Returns when an idle vCPU was first asked to run, by a wake-up or by its timer; 0: it was
 * not. */
POLICY u64 activity_asked_ns(const struct activity *a)
{
	if (!a->woken_ns || (a->due_ns && a->due_ns < a->woken_ns))
		return a->due_ns;
	return a->woken_ns;
}

/* Notes that the vCPU leaves idle. Returns the off interval between the wake-up and now if the
 * answer came too late. */
POLICY struct activity_off activity_resume(struct activity *a, const struct activity_limits *limits,
					   u64 now_ns, u64 due_ns)
{
	struct activity_off off = {};
	u64 asked_ns = activity_asked_ns(a);

	if (a->idle && asked_ns > a->alive_ns && now_ns > asked_ns &&
	    now_ns - asked_ns > limits->wake_ns) {
		off.earliest_ns = asked_ns;
		off.latest_ns = asked_ns;
		off.end_ns = now_ns;
	}
	activity_begin_run(a, &off, now_ns);
	a->idle = 0;
	a->woken_ns = 0;
	a->alive_ns = now_ns;
	a->due_ns = activity_due_ns(now_ns, due_ns);
	return off;
}

/* Returns what the vCPU does now, as another vCPU sees it. */
POLICY enum activity_state activity_look(const struct activity *a, const struct activity_limits *limits,
					 u64 now_ns)
{
	u64 asked_ns = a->idle ? activity_asked_ns(a) : a->due_ns;
	u64 limit_ns = a->idle ? limits->wake_ns : limits->timer_ns;

	if (asked_ns && asked_ns >= a->alive_ns && now_ns > asked_ns &&
	    now_ns - asked_ns > limit_ns)
		return ACTIVITY_OFF;
	return a->idle ? ACTIVITY_IDLE : ACTIVITY_ON;
}

/* Returns how long this run will probably still last, if it resembles the runs before; ~0 if no
 * off interval has ended a run yet. */
POLICY u64 activity_left_ns(const struct activity *a, u64 now_ns)
{
	u64 run_ns = now_ns > a->run_ns ? now_ns - a->run_ns : 0;

	if (!a->run_mean_ns)
		return ~(u64)0;
	return a->run_mean_ns > run_ns ? a->run_mean_ns - run_ns : 0;
}

/* The interval between heartbeats doubles each time that a vCPU has not been off for this long.
 * After this many doublings heartbeats end, because the kernel's own tick then shows the next off
 * interval. If the time of that tick is unknown, heartbeats continue at the interval of the last
 * doubling. */
#define ACTIVITY_PATIENCE_NS 500000000ULL
#define ACTIVITY_HALVINGS 4

/* Returns how long to wait before the next heartbeat; 0: none is needed. beat_ns is the shortest
 * interval; `alone` is nonzero if no other timer can show that the vCPU was off. */
POLICY u64 activity_beat_ns(const struct activity *a, u64 beat_ns, u32 alone, u64 now_ns)
{
	u64 quiet_ns = now_ns > a->stirred_ns ? now_ns - a->stirred_ns : 0;
	u64 halvings = quiet_ns / ACTIVITY_PATIENCE_NS;

	if (halvings < ACTIVITY_HALVINGS)
		return beat_ns << halvings;
	return alone ? beat_ns << (ACTIVITY_HALVINGS - 1) : 0;
}

#endif /* UNSPIN_POLICY_ACTIVITY_H */

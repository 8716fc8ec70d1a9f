/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a vCPU does, by its signs of life.
 *
 * A vCPU does not see that it is taken off its pCPU: its clock jumps, that is all. Two
 * things give it away when it is back. A timer that was due meanwhile is served late.
 * And a wake-up that was sent to it while it was idle is answered late. Both show
 * when the vCPU came back to the nanosecond, and when it left only within bounds: after
 * its last sign of life, and before the timer was due.
 *
 * A gap without a timer in it says nothing, because a program that computes gives no
 * sign of life. So while a vCPU is on, a timer must be due soon: the kernel's tick,
 * or a heartbeat. A timer can also be late because interrupts are disabled. A sign of
 * life after it was due shows that, and the timer counts as due from then on: interrupts
 * are disabled for short. Only a vCPU that spins may have them disabled for long, and
 * where a spin ends, nothing is judged.
 *
 * Others look at a vCPU's record without asking it: if it should have given a sign of
 * life and has not, it is off now.
 */
#ifndef UNSPIN_POLICY_ACTIVITY_H
#define UNSPIN_POLICY_ACTIVITY_H

#include "base.h"

enum activity_state {
	ACTIVITY_ON,
	ACTIVITY_OFF,
	ACTIVITY_IDLE,
};

/* How late is too late. */
struct activity_limits {
	/* A timer that is served later than this was due while its vCPU was off. */
	u64 timer_ns;
	/* A wake-up that is answered later than this found a vCPU that was off. */
	u64 wake_ns;
};

/* One vCPU. Written by itself, except woken_ns; read by all. Zeroed at first. */
struct activity {
	/* The last sign of life. */
	u64 alive_ns;
	/* When its next timer expires; 0 where none is known. */
	u64 due_ns;
	/* Idle: when the first wake-up since was sent to it; 0: none was. */
	u64 woken_ns;
	/* Since when it has been on, as far as is known. */
	u64 run_ns;
	/* Mean lengths of a run that an off interval ended, and of an off interval;
	 * 0 where there was none yet. */
	u64 run_mean_ns;
	u64 off_mean_ns;
	/* When its last off interval ended; before there was one, when it was first seen. */
	u64 stirred_ns;
	u32 idle;
	u32 unused;
};

/* An off interval: the vCPU left its pCPU not before earliest_ns and not after
 * latest_ns, and was back at end_ns. end_ns is 0 where there was none. */
struct activity_off {
	u64 earliest_ns;
	u64 latest_ns;
	u64 end_ns;
};

/* The length of an off interval: from the middle of its bounds. */
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

/* A timer that has expired and was not served yet is due now. */
POLICY u64 activity_due_ns(u64 now_ns, u64 due_ns)
{
	return due_ns && due_ns < now_ns ? now_ns : due_ns;
}

/* The vCPU's next timer is another one than at the last sign of life. It is still the same
 * if that one was to be served at once. */
POLICY void activity_set_timer(struct activity *a, u64 due_ns)
{
	if (!a->due_ns || a->due_ns != a->alive_ns)
		a->due_ns = activity_due_ns(a->alive_ns, due_ns);
}

/* The vCPU is on after something that may have held its interrupts back. */
POLICY void activity_postpone(struct activity *a, u64 now_ns, u64 due_ns)
{
	if (a->idle || now_ns < a->alive_ns)
		return;
	a->alive_ns = now_ns;
	a->due_ns = activity_due_ns(now_ns, due_ns);
}

/* A sign of life soon after the last one, with no timer due between: it says no more than
 * that the vCPU is on. Returns 0 where there may be more to report. */
POLICY u32 activity_is_early(struct activity *a, const struct activity_limits *limits, u64 now_ns)
{
	if (a->idle || now_ns < a->alive_ns || now_ns - a->alive_ns >= limits->timer_ns ||
	    now_ns >= a->due_ns)
		return 0;
	a->alive_ns = now_ns;
	return 1;
}

/*
 * The vCPU gives a sign of life while it is not idle. Returns the off interval that
 * lies behind it, if one does. due_ns is when its next timer expires from now on, 0
 * where that is not known. A sign that comes with a timer's interrupt is given before
 * the timer is served, with the time of the timer after it or 0.
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

/* The vCPU halts; its next timer, if it has one, wakes it at due_ns. */
POLICY void activity_idle(struct activity *a, u64 now_ns, u64 due_ns)
{
	a->alive_ns = now_ns;
	a->due_ns = due_ns;
	a->woken_ns = 0;
	a->idle = 1;
}

/* Another vCPU sends a wake-up to this one. */
POLICY void activity_wake(struct activity *a, u64 now_ns)
{
	if (a->idle && !a->woken_ns)
		a->woken_ns = now_ns;
}

/* When an idle vCPU was asked to run: by a wake-up or by its timer, whatever came
 * first; 0 where it was not. */
POLICY u64 activity_asked_ns(const struct activity *a)
{
	if (!a->woken_ns || (a->due_ns && a->due_ns < a->woken_ns))
		return a->due_ns;
	return a->woken_ns;
}

/* The vCPU is no longer idle. Returns the off interval between the wake-up and now,
 * if it is one. */
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

/* What the vCPU does right now, as another one sees it. */
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

/* How long this run will probably last from now on, if it is like the ones before;
 * ~0 where none was ended by an off interval yet. */
POLICY u64 activity_left_ns(const struct activity *a, u64 now_ns)
{
	u64 run_ns = now_ns > a->run_ns ? now_ns - a->run_ns : 0;

	if (!a->run_mean_ns)
		return ~(u64)0;
	return a->run_mean_ns > run_ns ? a->run_mean_ns - run_ns : 0;
}

/* A vCPU that has not been off for so long needs half as many heartbeats, and none after
 * so many halvings: the kernel's own tick then shows when it is off again. Where nobody
 * knows when that tick is due, the heartbeats are alone, and stay as rare as the last
 * halving makes them. */
#define ACTIVITY_PATIENCE_NS 500000000ULL
#define ACTIVITY_HALVINGS 4

/* How long to wait for the next heartbeat, where beat_ns is the shortest time and alone is
 * whether no other timer shows anything; 0: none is needed. */
POLICY u64 activity_beat_ns(const struct activity *a, u64 beat_ns, u32 alone, u64 now_ns)
{
	u64 quiet_ns = now_ns > a->stirred_ns ? now_ns - a->stirred_ns : 0;
	u64 halvings = quiet_ns / ACTIVITY_PATIENCE_NS;

	if (halvings < ACTIVITY_HALVINGS)
		return beat_ns << halvings;
	return alone ? beat_ns << (ACTIVITY_HALVINGS - 1) : 0;
}

#endif /* UNSPIN_POLICY_ACTIVITY_H */

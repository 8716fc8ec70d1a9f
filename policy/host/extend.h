/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One tick more for a thread that would be preempted within a critical section.
 *
 * Follows eCS (Kashyap, Min and Kim, USENIX ATC '18), as its paper describes it: a vCPU that is in
 * a critical section when its slice ends keeps its pCPU until the next tick, once. The published
 * patch grants every other tick instead of one, because it reads its toggle back from the guest.
 *
 * Only ticks are postponed. A thread that wakes up preempts as ever, and the overtime is charged.
 */
#ifndef UNSPIN_POLICY_HOST_EXTEND_H
#define UNSPIN_POLICY_HOST_EXTEND_H

#include "runqueue.h"

/* The tick of pCPU `p` is over. `pending`: it was to schedule before the tick. */
HOST_POLICY void host_extend(struct host *h, u32 p, u32 pending)
{
	struct host_pcpu *pcpu = &h->pcpu[p];
	struct host_thread *t = &h->thread[pcpu->current];

	if (t->extended) {
		t->extended = 0;
		host_kick(h, p);
	} else if (h->config.extend && t->critical && !pending && pcpu->need_resched) {
		t->extended = 1;
		pcpu->need_resched = 0;
		h->extensions++;
	}
}

#endif /* UNSPIN_POLICY_HOST_EXTEND_H */

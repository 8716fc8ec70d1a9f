/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The simulated host's functions with external linkage, and access to their state. */
#include <string.h>

#define HOST_POLICY
#include "host/boost.h"
#include "host/neighbour.h"
#include "host/sched.h"
#include "host/vnae.h"

const u64 host_size = sizeof(struct host);
const u64 boost_facts_size = sizeof(struct boost_facts);

void host_start(struct host *h, u32 pcpus, u32 scheduler, u32 debooster, u32 no_features,
		u32 extend, u64 tick_ns, u64 slice_ns, u64 phase_ns)
{
	struct host_config c;

	/* Hosts are compared byte by byte, and an initializer leaves the padding as it is. */
	memset(&c, 0, sizeof(c));
	c.pcpus = pcpus;
	c.scheduler = scheduler;
	c.debooster = debooster;
	c.no_features = no_features;
	c.extend = extend;
	c.tick_ns = tick_ns;
	c.slice_ns = slice_ns;
	c.phase_ns = phase_ns;
	host_init(h, &c);
}

/* Stores the counts of made, unneeded and refused gifts in `gifts`. */
void host_read_gifts(const struct host *h, u64 *gifts)
{
	gifts[0] = h->gifts.made;
	gifts[1] = h->gifts.unneeded;
	gifts[2] = h->gifts.refused;
}

u64 host_read_extensions(const struct host *h)
{
	return h->extensions;
}

/* Whether the thread's group is out of quota on a pCPU. */
u32 host_is_throttled(const struct host *h, u32 e, u32 p)
{
	return h->rq[host_rq_of(h->thread[e].group, p)].throttled;
}

/* Whether the thread sleeps and still pays for the time beyond its share. */
u32 host_is_delayed(const struct host *h, u32 e)
{
	return h->entity[e].delayed;
}

/* The functions below return a thread's virtual time, and of its run queue V and the weighted
 * sum, counted from virtual time 0. */
u64 host_vruntime(const struct host *h, u32 e)
{
	return h->entity[e].vruntime;
}

u64 host_deadline(const struct host *h, u32 e)
{
	return h->entity[e].deadline;
}

/* Changes a thread's weight under EEVDF, as that of a group's entity changes. */
void host_reweigh(struct host *h, u32 e, u32 weight)
{
	host_eevdf_reweigh(h, &h->rq[h->entity[e].rq], e, weight);
}

u64 host_queue_mean(const struct host *h, u32 e)
{
	return host_mean(h, &h->rq[h->entity[e].rq]);
}

s64 host_queue_sum(const struct host *h, u32 e)
{
	const struct host_rq *q = &h->rq[h->entity[e].rq];

	return host_weighted_sum(h, q) + (s64)(q->min_vruntime * q->weight);
}

u32 host_is_eligible(const struct host *h, u32 e)
{
	return host_eligible(h, &h->rq[h->entity[e].rq], e);
}

/* Carries out the transfer alone, without the yield. */
u64 host_gift(struct host *h, u32 from, u32 to, u64 forfeit)
{
	return host_transfer(h, &h->rq[h->entity[from].rq], from, to, forfeit);
}

void host_give_credit(struct host *h, u32 to)
{
	host_credit(h, &h->rq[h->entity[to].rq], to);
}

/* Asks a neighbour for its wish. `times` holds pairs of from and to, `past` the history; `wish`
 * receives runs, if_on and if_off. */
void host_neighbour_ask(u32 kind, const u64 *on_off_start, const u64 *times, u32 count, u64 *past,
			u64 now, u64 ran_ns, u64 *wish)
{
	struct host_neighbour n = {
		.kind = kind, .times = count, .on_ns = on_off_start[0], .off_ns = on_off_start[1],
		.start_ns = on_off_start[2],
	};
	struct host_neighbour_past p = { past[0], past[1] };
	struct host_neighbour_wish w;
	u32 i;

	for (i = 0; i < count; i++) {
		n.at[i].from = times[2 * i];
		n.at[i].to = times[2 * i + 1];
	}
	w = host_neighbour_next(&n, &p, now, ran_ns);
	past[0] = p.slept_ran_ns;
	past[1] = p.wakes_at;
	wish[0] = w.runs;
	wish[1] = w.if_on;
	wish[2] = w.if_off;
}

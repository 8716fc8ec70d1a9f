/* SPDX-License-Identifier: GPL-2.0-only */
/* What the sensor and the agent share: the records in the maps. */
#ifndef UNSPIN_BPF_SENSE_H
#define UNSPIN_BPF_SENSE_H

#include "activity.h"

struct settings {
	struct activity_limits limits;
	/* Nanoseconds between two heartbeats of a vCPU that is not idle; 0: none. */
	u64 beat_ns;
};

/* One vCPU's entry in the page that everyone may map and read. */
struct vcpu {
	struct activity activity;
	/* Since when it idles; 0 while it does not. */
	u64 idle_since_ns;
	/* Since the start: nanoseconds idle, nanoseconds off, off intervals, heartbeats. */
	u64 idle_ns;
	u64 off_ns;
	u64 offs;
	u64 beats;
	/* Off intervals that the ring buffer had no room for. */
	u64 lost;
	u64 unused[3];
};

/* An off interval, as the ring buffer carries it. */
struct off_event {
	u64 earliest_ns;
	u64 latest_ns;
	u64 end_ns;
	u32 cpu;
	/* 1: the vCPU was idle when it was asked to run. */
	u32 was_idle;
};

#endif /* UNSPIN_BPF_SENSE_H */

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The light sensor: sums of each vCPU's time off, idle and spent spinning. It sits where
 * things happen seldom: at ticks, at the way into idle and out of it, and at the calls
 * that wake an idle vCPU. What it does not have is in sense.bpf.c: single intervals,
 * heartbeats, and the waits with their causes.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "sense.h"
#include "vcpu.h"

char LICENSE[] SEC("license") = "GPL";

/* Set before loading. */
const volatile struct settings settings = {};

static void answered_after(u64 ns)
{
}

static void idle_changed(u32 cpu, bool idle)
{
}

static void found_spinning(u64 now_ns)
{
}

#include "user_spin.h"
#include "ticks.h"
#include "wake.h"

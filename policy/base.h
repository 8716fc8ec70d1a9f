/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What every policy header stands on. They are compiled into BPF programs, into the
 * kernel and into ordinary programs, and hold no code but pure functions: facts in,
 * decision out. No I/O, no clock, no allocation, no globals, bounded loops. Times are
 * nanoseconds of one monotonic clock that all vCPUs share.
 */
#ifndef UNSPIN_POLICY_BASE_H
#define UNSPIN_POLICY_BASE_H

#if defined(__KERNEL__)
#include <linux/types.h>
#elif !defined(__bpf__)
#include <stdint.h>
typedef int64_t s64;
typedef uint64_t u64;
typedef uint32_t u32;
#endif

/* How a policy's functions are declared. Who wants to call them from elsewhere
 * defines it as nothing. */
#ifndef POLICY
#define POLICY static inline __attribute__((always_inline, unused))
#endif

/* A larger step of a policy, with pointers that are never null. BPF's verifier checks it by itself,
 * once; what is inlined it checks again for every state that a caller can be in. */
#if defined(__bpf__)
#define POLICY_STEP __attribute__((noinline))
#define NONNULL __attribute__((btf_decl_tag("arg:nonnull")))
#else
#define POLICY_STEP POLICY
#define NONNULL
#endif

/* A moving mean over about eight values; the first one starts it. */
POLICY u64 policy_mean(u64 mean, u64 value)
{
	return mean ? mean - mean / 8 + value / 8 : value;
}

#endif /* UNSPIN_POLICY_BASE_H */

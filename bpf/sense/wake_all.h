/* SPDX-License-Identifier: GPL-2.0-only */
/* Notes when several idle vCPUs are asked to run at once. */
#ifndef UNSPIN_BPF_WAKE_ALL_H
#define UNSPIN_BPF_WAKE_ALL_H

#include "core/peek.h"
#include "sense/wake.h"

/* NR_CPUS is at most 8192 on x86. */
#define MASK_WORDS 128
#define WORD_BITS 64

/* A function of its own, so that the verifier checks it once and not for each word of a mask. */
__attribute__((noinline)) int wake_each(u64 word, u32 first)
{
	u32 bit;

	for (bit = 0; bit < WORD_BITS && word; bit++, word >>= 1) {
		if (word & 1)
			wake(first + bit);
	}
	return 0;
}

/* Notes it for each vCPU whose bit is set. A mask has a bit for each possible vCPU, and at most
 * MASK_WORDS words. */
static int wake_all(const u64 *mask)
{
	u32 at, first;
	u64 word;

	for (at = 0; at < MASK_WORDS; at++) {
		first = at * WORD_BITS;
		if (!bpf_map_lookup_elem(&vcpus, &first))
			break;
		word = PEEK(mask + at, struct cpumask, bits[0]);
		if (word)
			wake_each(word, first);
	}
	return 0;
}

#endif /* UNSPIN_BPF_WAKE_ALL_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guesses whether user code spins: it does if a PAUSE instruction lies near by. PAUSE is made for
 * loops that wait, and rare in other code. For x86 only, like the tracepoints of the timer
 * interrupt. docs/guest.md lists what this misses, and what it mistakes for spinning.
 */
#ifndef UNSPIN_BPF_USER_SPIN_H
#define UNSPIN_BPF_USER_SPIN_H

/* Half of these bytes lie before the interrupted instruction. In a waiting loop, a PAUSE is seldom
 * farther away. */
#define CODE_BYTES 48

/* Returns false if the code's page is not present: reading it does not fault it in. */
static bool spins_in_user(u64 ip)
{
	u8 code[CODE_BYTES];
	u32 i;

	/* Kernel addresses are negative; 0 is unknown. */
	if ((s64)ip <= 0 ||
	    bpf_probe_read_user(code, sizeof(code), (const void *)(ip - CODE_BYTES / 2)))
		return false;
	for (i = 0; i + 1 < CODE_BYTES; i++) {
		if (code[i] == 0xf3 && code[i + 1] == 0x90)
			return true;
	}
	return false;
}

#endif /* UNSPIN_BPF_USER_SPIN_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spinning in user space, as far as it shows from outside: code with a PAUSE near by. PAUSE is
 * the instruction for loops that wait, and rare in other code. x86 only, as are the
 * tracepoints of the timer's interrupt. docs/guest.md lists what this misses, and what it
 * mistakes for spinning.
 */
#ifndef UNSPIN_BPF_USER_SPIN_H
#define UNSPIN_BPF_USER_SPIN_H

/* Looked at: as many before the interrupted instruction as from it on. From the head of a
 * loop that waits to its PAUSE it is seldom farther. */
#define CODE_BYTES 48

/* A page that is not there is not fetched, and says nothing. */
static bool spins_in_user(u64 ip)
{
	u8 code[CODE_BYTES];
	u32 i;

	/* The kernel's addresses are negative; 0 is one that is not known. */
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

/* SPDX-License-Identifier: GPL-2.0-only */
/* Measures a VMGEXIT, without the #VC that precedes it; part of guest.c. */

/* A slice is shorter than the time slices of other processes on the machine. */
#define EXITS_EACH 16
#define SLICES 150
/* Neither KVM nor unspin-vmm has a device at either address. */
#define NO_PORT 0x2f8ul
#define NO_MEMORY 0xe0000000ul

static const struct kind {
	const char *name;
	u64 code, one, two;
} kinds[] = {
	{ "in", 0x7b, NO_PORT << 16 | 1 << 4 | 1, 0 },
	{ "out", 0x7b, NO_PORT << 16 | 1 << 4, 0 },
	{ "mmio", 0x80000001, NO_MEMORY, 4 },
	/* The control: the kernel always answers it, whoever reads the GHCB for devices. */
	{ "cpuid", 0x72, 0, 0 },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static u64 ticks(void)
{
	u32 low, high;

	asm volatile("lfence; rdtsc" : "=a"(low), "=d"(high));
	return low | (u64)high << 32;
}

/* Whether the answer is all ones, which means that no device answered. */
static int is_right(const struct kind *kind)
{
	if ((u32)get(INFO_1))
		return 0;
	if (kind->code == 0x80000001)
		return *(volatile u32 *)(ghcb + BUFFER) == ~0u;
	if (kind->one & 1)
		return is_valid(RAX) && (u8)get(RAX) == 0xff;
	return 1;
}

/* Measures the ticks of EXITS_EACH exits of a kind, and checks their answers. */
static u64 slice(const struct kind *kind)
{
	u64 begin = ticks();

	for (u32 i = 0; i < EXITS_EACH; i++) {
		*(volatile u64 *)(ghcb + VALID) = 0;
		*(volatile u64 *)(ghcb + VALID + 8) = 0;
		put(CODE, kind->code);
		put(INFO_1, kind->one);
		put(INFO_2, kind->two);
		put(RAX, 0);
		put(RCX, 0);
		put(SCRATCH, SHARED + BUFFER);
		*(volatile u32 *)(ghcb + BUFFER) = 0;
		vmgexit();
		failures += !is_right(kind);
	}
	return ticks() - begin;
}

/* Alternates between kinds. Prints only the fastest slices, because the others were interrupted. */
static void measure(void)
{
	u64 fastest[KINDS];

	clear();
	wrmsr(MSR_GHCB, SHARED);
	for (u32 i = 0; i < SLICES; i++)
		for (u32 j = 0; j < KINDS; j++) {
			u64 ticks = slice(&kinds[j]);

			if (!i || ticks < fastest[j])
				fastest[j] = ticks;
		}
	for (u32 j = 0; j < KINDS; j++) {
		say("exits ");
		say(kinds[j].name);
		say(" ");
		number(fastest[j]);
		say("\n");
	}
	say(failures ? "guest: failed\n" : "guest: passed\n");
	power_off();
}

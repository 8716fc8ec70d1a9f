/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests by the GHCB page, and text by the serial port; part of guest.c. */

static void put(u32 field, u64 value)
{
	*(volatile u64 *)(ghcb + (field & ~7)) = value;
	ghcb[VALID + field / 64] |= 1 << (field / 8 % 8);
}

static u64 get(u32 field)
{
	return *(volatile u64 *)(ghcb + field);
}

static int is_valid(u32 field)
{
	return ghcb[VALID + field / 64] >> (field / 8 % 8) & 1;
}

static void clear(void)
{
	for (u32 i = 0; i < 4096; i++)
		((volatile u8 *)ghcb)[i] = 0;
}

/* Whether the GHCB page has a value. */
static int has(u64 value)
{
	for (u32 at = 0; at < 4096; at += 8)
		if (get(at) == value)
			return 1;
	return 0;
}

/* Makes a VMGEXIT by the GHCB page. Returns INFO_1 of the answer. */
static u64 call(u64 code, u64 one, u64 two)
{
	put(CODE, code);
	put(INFO_1, one);
	put(INFO_2, two);
	wrmsr(MSR_GHCB, SHARED);
	vmgexit();
	return (u32)get(INFO_1);
}

static void out(u8 byte)
{
	clear();
	put(RAX, byte);
	call(0x7b, 0x3f8 << 16 | 1 << 4, 0);
}

static void say(const char *text)
{
	while (*text)
		out(*text++);
}

static void number(u64 value)
{
	for (int shift = 60; shift >= 0; shift -= 4)
		out("0123456789abcdef"[value >> shift & 15]);
}

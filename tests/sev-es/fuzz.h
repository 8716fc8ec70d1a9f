/* SPDX-License-Identifier: GPL-2.0-only */
/* Valid, malformed and random GHCB pages; part of guest.c. */

#ifndef FUZZ_ROUNDS
/* Fewer rounds with an emulated KVM, whose exits take long. */
#define FUZZ_ROUNDS (IS_KVM ? 2000 : 20000)
#endif

static void test_page(void)
{
	clear();
	for (u32 i = 0; i < 7; i++)
		ghcb[BUFFER + i] = "string\n"[i];
	put(SCRATCH, SHARED + BUFFER);
	check_is("OUTS writes a string", call(0x7b, 0x3f8 << 16 | 1 << 4 | 1 << 3 | 1 << 2, 7), 0);
	clear();
	check_is("AP jump table: none in a guest of one vCPU", call(0x80000005, 1, 0), 0);
	check_is("its address", get(INFO_2), 0);
	clear();
	call(0x80000005, 0, 0x83000);
	clear();
	call(0x80000005, 1, 0);
	check_is("AP jump table: the one that was set", get(INFO_2), 0x83000);
	clear();
	check_is("NMI complete", call(0x80000003, 0, 0), 0);
}

static void refused(const char *what, u64 answer, u64 reason)
{
	check(what, answer == 2 && get(INFO_2) == reason);
}

static void test_malformed(void)
{
	clear();
	wrmsr(MSR_GHCB, SHARED);
	vmgexit();
	refused("no valid fields: missing input", (u32)get(INFO_1), 4);
	clear();
	*(u32 *)(ghcb + USAGE) = 1;
	refused("another usage of the page: refused", call(0x72, 0, 0), 2);
	clear();
	refused("CPUID without a leaf: missing input", call(0x72, 0, 0), 4);
	clear();
	refused("MONITOR without an address: missing input", call(0x8a, 0, 0), 4);
	clear();
	refused("an unknown exit: invalid event", call(0x80001234, 0, 0), 6);
	clear();
	put(SCRATCH, SHARED + 0x4000);
	refused("a buffer outside of the page: invalid scratch", call(0x80000001, IO_APIC, 4), 3);
	clear();
	put(SCRATCH, SHARED + BUFFER + 2032 - 2);
	refused("a buffer that ends outside", call(0x80000001, IO_APIC, 4), 3);
	clear();
	put(RCX, 0xc0000080);
	check_is("RDMSR of EFER by the page: an exception", call(0x7c, 0, 0), 1);
#ifndef KVM
	/* Only here: KVM's guest may lack AVX. This guest's own XCR0 is 1. */
	clear();
	put(RAX, 0xd);
	put(RCX, 0);
	put(XCR0, 7);
	call(0x72, 0, 0);
	check_is("CPUID 0xd: the size for the XCR0 in the page", get(RBX), 576 + 256);
	/* Only here: KVM passes this to user space, which has a bus without devices at that
	 * address. */
	clear();
	put(SCRATCH, SHARED + BUFFER);
	refused("MMIO to private memory: invalid input", call(0x80000001, CBIT | 0x1000000, 8), 5);
	clear();
	put(RAX, 0);
	refused("port I/O of 3 bytes: invalid input", call(0x7b, 0x80 << 16 | 3 << 4, 0), 5);
#endif
	clear();
	put(CODE, 0x72);
	wrmsr(MSR_GHCB, CBIT | SHARED);
	vmgexit();
	check_is("a private GHCB gets no answer", get(CODE), 0x72);
}

static u64 any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* Returns a port without a device. KVM ends a guest whose string operation is too long. */
static u64 any_port(void)
{
#ifdef KVM
	return 0xed << 16 | 1 << (4 + any() % 3) | (any() & 1);
#else
	return (any() & 0xffff) | 0xed << 16;
#endif
}

/* Tests exits that neither end nor block the guest, on ports and addresses without a device. */
static void test_fuzz(u64 rounds)
{
	static const u64 codes[] = {
		0x27, 0x37,
#ifndef KVM
		0x6f,
#endif
		0x72, 0x76, 0x7b, 0x7c, 0x81, 0x89, 0x8a, 0x8b, 0x80000001,
		0x80000002, 0x80000003, 0x80000005, 0x80000010, 0x80000013, 0x8000fffd, 0, ~0ul,
	};
	u64 answered = 0;

	for (u64 i = 0; i < rounds; i++) {
		u64 code = codes[any() % (sizeof(codes) / 8)];

		for (u32 at = 0; at < 4096; at += 8)
			*(volatile u64 *)(ghcb + at) = any();
		if (any() & 3)
			*(u32 *)(ghcb + USAGE) = 0;
		put(SCRATCH, any() & 1 ? SHARED + BUFFER + any() % 2100 : any());
		if (code == 0x7c)
			put(RCX, 0xc0010200 + any() % 256);
		call(code, code == 0x7b ? any_port() :
			   (code >> 1) == 0x40000000 ? 0xd0000000 + any() % LARGE : any() % 4,
		     any() & 1 ? any() : any() % 3000);
		answered += (u32)get(INFO_1) <= 2;
		if ((i + 1) % (rounds / 10) == 0)
			say("fuzz: a tenth\n");
	}
	check_is("random GHCBs: all answered", answered, rounds);
}

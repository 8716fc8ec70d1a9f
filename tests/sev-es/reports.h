/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports of conversions between private and shared pages, by KVM_HC_MAP_GPA_RANGE; part of
 * guest.c and plain.c. The VMM must refuse reports that make no sense with KVM's error.
 */

#define MAP_GPA_RANGE 12
#define TO_PRIVATE (1ul << 4)
#define TO_SHARED 0
#define MSR_MIGRATION 0x4b564d08
#define KVM_EINVAL -22ul
#define MEMORY_END (64ul << 20)

#ifndef PLAIN
/* Whether the guest can be migrated before it says so. */
#define MIGRATION_BEGINS 0

/* Returns the hypercall's result. */
static u64 report(u64 gpa, u64 pages, u64 attributes)
{
	clear();
	put(RAX, MAP_GPA_RANGE);
	put(RBX, gpa);
	put(RCX, pages);
	put(RDX, attributes);
	put(CPL, 0);
	return call(0x81, 0, 0) ? -1ul : get(RAX);
}

/* Writes the MSR. Returns whether the hypervisor answers by an exception. */
static int refuses(u64 value)
{
	clear();
	put(RCX, MSR_MIGRATION);
	put(RAX, (u32)value);
	put(RDX, value >> 32);
	return call(0x7c, 1, 0) != 0;
}

static u64 migration(void)
{
	clear();
	put(RCX, MSR_MIGRATION);
	return call(0x7c, 0, 0) ? -1ul : get(RAX) | get(RDX) << 32;
}
#endif

static void test_reports(void)
{
	static const struct { u64 gpa, pages, attributes; const char *what; } wrong[] = {
		{ 0x1001, 1, TO_PRIVATE, "an unaligned address" },
		{ 0x1000, 0, TO_PRIVATE, "no page" },
		{ MEMORY_END, 1, TO_PRIVATE, "a page beyond memory" },
		{ MEMORY_END - 0x1000, 2, TO_PRIVATE, "pages that leave memory" },
		{ 0, 1ul << 52, TO_PRIVATE, "bytes that wrap" },
		{ 0x1000, 1ul << 63, TO_PRIVATE, "a huge count" },
		{ 0, -1ul, TO_PRIVATE, "the largest count" },
		{ -0x1000ul, 1, TO_PRIVATE, "the last page of all" },
		{ -0x1000ul, 2, TO_PRIVATE, "a range that wraps" },
		{ CBIT | 0x1000, 1, TO_PRIVATE, "an address with the C-bit" },
		{ 0x1000, 1, TO_PRIVATE | 1ul << 5, "a reserved bit" },
		{ 0x1000, 1, 1ul << 63, "the highest reserved bit" },
	};
	u32 regs[4];

	next(2, 0, 0);
	cpuid(0x40000001, regs);
	check_is("KVM's features have the hypercall and the MSR", regs[0] >> 16 & 3, 3);
	check_is("the MSR begins as it must", migration(), MIGRATION_BEGINS);
	check("the MSR can be written", !refuses(!MIGRATION_BEGINS) && migration() == !MIGRATION_BEGINS);
	check("the MSR can be written again", !refuses(1) && migration() == 1);
	check("the MSR refuses a reserved bit", refuses(2) && migration() == 1);
	for (u32 i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		check_is(wrong[i].what, report(wrong[i].gpa, wrong[i].pages, wrong[i].attributes),
			 KVM_EINVAL);
	check_is("all memory becomes private", report(0, MEMORY_END >> 12, TO_PRIVATE), 0);
	check_is("2 MiB become shared", report(SHARED, 512, TO_SHARED | 1), 0);
	check_is("a page becomes private", report(SHARED + 0x3000, 1, TO_PRIVATE), 0);
	check_is("the page becomes shared", report(SHARED + 0x3000, 1, TO_SHARED), 0);
	say(failures ? "guest: failed\n" : "guest: passed\n");
	power_off();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * A guest without encryption that reports conversions of pages. scripts/pages.py builds and runs
 * it. It starts at a kernel's 64-bit entry.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

#define PLAIN
#define CBIT (1ul << 47)
#define SHARED 0x1a00000ul
/* A plain guest can be migrated at any time. */
#define MIGRATION_BEGINS 1

extern char gp_entry[];
static u64 idt[2 * 32] __attribute__((aligned(16)));
volatile u64 gps;
static u64 failures;

asm(".section .text.entry, \"ax\"\n"
    ".globl _start\n"
    "_start: lea stack_end(%rip), %rsp\n"
    "	call main\n"
    "1:	hlt\n"
    "	jmp 1b\n"
    ".text\n"
    /* Counts #GP, and skips an instruction of two bytes. */
    "gp_entry: incq gps(%rip)\n"
    "	addq $2, 8(%rsp)\n"
    "	add $8, %rsp\n"
    "	iretq\n"
    ".bss\n"
    ".skip 16384\n"
    "stack_end:\n"
    ".text\n");

static void out(u8 byte)
{
	asm volatile("outb %0, %1" : : "a"(byte), "d"((u16)0x3f8));
}

static void say(const char *text)
{
	while (*text)
		out(*text++);
}

static void check(const char *what, int holds)
{
	say(holds ? "ok   " : "FAIL ");
	say(what);
	say("\n");
	failures += !holds;
}

static void check_is(const char *what, u64 is, u64 wanted)
{
	check(what, is == wanted);
}

/* CPUID is not special here. */
static void next(u64 bytes, u64 one, u64 two)
{
}

static void cpuid(u32 leaf, u32 *regs)
{
	asm volatile("cpuid" : "=a"(regs[0]), "=b"(regs[1]), "=c"(regs[2]), "=d"(regs[3])
		     : "a"(leaf), "c"(0));
}

static u64 report(u64 gpa, u64 pages, u64 attributes)
{
	u64 result;

	asm volatile("vmmcall" : "=a"(result) : "a"(12ul), "b"(gpa), "c"(pages), "d"(attributes)
		     : "memory");
	return result;
}

static int refuses(u64 value)
{
	u64 before = gps;

	asm volatile("wrmsr" : : "c"(0x4b564d08), "a"((u32)value), "d"((u32)(value >> 32))
		     : "memory");
	return gps != before;
}

static u64 migration(void)
{
	u32 low, high;

	asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(0x4b564d08));
	return low | (u64)high << 32;
}

/* The ACPI register that powers off. */
static void power_off(void)
{
	asm volatile("outw %0, %1" : : "a"((u16)(1 << 13)), "d"((u16)0x604));
}

#include "reports.h"

void main(void)
{
	struct { u16 limit; u64 base; } __attribute__((packed)) pointer = { sizeof(idt) - 1, (u64)idt };
	u64 handler = (u64)gp_entry;
	u16 cs;

	asm volatile("mov %%cs, %0" : "=r"(cs));
	idt[2 * 13] = (handler & 0xffff) | (u64)cs << 16 | 0x8e00ul << 32 |
		      (handler >> 16 & 0xffff) << 48;
	idt[2 * 13 + 1] = handler >> 32;
	asm volatile("lidt %0" : : "m"(pointer));
	test_reports();
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * A guest that uses the SEV-ES protocol with the emulated platform of qemu/patches, and judges
 * every answer. scripts/sev-es.py builds and runs it. With KVM defined, the platform is that of
 * kernel/es-emu, and scripts/es-emu.py runs it. exits.h and reports.h have other tasks for it.
 * With CANARIES, it only exits with canaries in its registers.
 *
 * It starts at a kernel's 64-bit entry, with the page tables of `unspin igvm build`: the first
 * 4 GiB are mapped to themselves in pages of 2 MiB, all with the C-bit. It has one shared page of
 * 2 MiB, which contains the GHCB, and one for the I/O APIC.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

#define CBIT (1ul << 47)
#define DIRECTORY 0xb000ul	/* page directory of the first GiB; the next ones follow */
#define LARGE (1ul << 21)
#define SHARED 0x1a00000ul
#define IO_APIC 0xfec00000ul
#define BUFFER 0x800
#ifdef KVM
#define IS_KVM 1
#else
#define IS_KVM 0
#endif

#define MSR_GHCB 0xc0010130
#define MSR_STATUS 0xc0010131
#define MSR_APICBASE 0x1b
#define MSR_MTRR 0x200
#define X2APIC 0x800
#define TIMER 64	/* its vector */

/* Fields of the GHCB page. */
enum {
	CPL = 0xcb, RAX = 0x1f8, RCX = 0x308, RDX = 0x310, RBX = 0x318, RSI = 0x330,
	CODE = 0x390, INFO_1 = 0x398, INFO_2 = 0x3a0, SCRATCH = 0x3a8, XCR0 = 0x3e8,
	VALID = 0x3f0, USAGE = 0xffc,
};

struct regs {
	u64 rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15;
	u64 error, rip, cs, rflags, rsp, ss;
};

/* The value that the hypervisor must never see, and the value that the control shows to the
 * hypervisor. The running script chooses the former's parts; the guest's file has only these. */
#ifndef CANARY_LEFT
#define CANARY_LEFT 0x5ec2e7ca9a21f00dul
#define CANARY_RIGHT 1ul
#endif
static volatile u64 parts[2] = { CANARY_LEFT, CANARY_RIGHT };
#define CANARY (parts[0] ^ parts[1])
#define SHOWN 0x0be9ca9a215e7000ul

extern char vc_entry[];
static u8 *const ghcb = (u8 *)SHARED;
static u64 idt[2 * (TIMER + 1)] __attribute__((aligned(16)));
static volatile u64 vcs;
static volatile u64 last_error;
static volatile u64 last_answer;	/* to the VMGEXIT of the last #VC */
volatile u64 length;	/* of the instruction that raises #VC */
static volatile u64 info_1;	/* operands of its VMGEXIT */
static volatile u64 info_2;
static volatile int by_msr;	/* CPUID by the MSR protocol */
static volatile int stores;	/* the next access outside of RAM is a write */
static u64 seed = 88172645463325252ul;
static u64 failures;
static u64 leaks;	/* answers to a #VC whose GHCB has a canary */

asm(".section .text.entry, \"ax\"\n"
    ".globl _start\n"
    "_start: lea stack_end(%rip), %rsp\n"
    "	call main\n"
    "1:	hlt\n"
    "	jmp 1b\n"
    ".text\n"
    ".globl vc_entry\n"
    "vc_entry:\n"
    "	push %r15; push %r14; push %r13; push %r12; push %r11; push %r10; push %r9; push %r8\n"
    "	push %rbp; push %rdi; push %rsi; push %rdx; push %rcx; push %rbx; push %rax\n"
    "	mov %rsp, %rdi\n"
    "	cld\n"
    "	call vc\n"
    "	pop %rax; pop %rbx; pop %rcx; pop %rdx; pop %rsi; pop %rdi; pop %rbp\n"
    "	pop %r8; pop %r9; pop %r10; pop %r11; pop %r12; pop %r13; pop %r14; pop %r15\n"
    "	add $8, %rsp\n"
    "	iretq\n"
    ".bss\n"
    ".skip 16384\n"
    "stack_end:\n"
    ".text\n");

static u64 rdmsr(u32 msr)
{
	u32 low, high;

	asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
	return low | (u64)high << 32;
}

static void wrmsr(u32 msr, u64 value)
{
	asm volatile("wrmsr" : : "c"(msr), "a"((u32)value), "d"((u32)(value >> 32)));
}

static void vmgexit(void)
{
	asm volatile("rep; vmmcall" : : : "memory");
}

static u64 by_msr_protocol(u64 request)
{
	wrmsr(MSR_GHCB, request);
	vmgexit();
	return rdmsr(MSR_GHCB);
}

#include "page.h"

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
	if (is != wanted) {
		say("     it is ");
		number(is);
		say(", not ");
		number(wanted);
		say("\n");
	}
}

/* The handler of #VC. The hypervisor sees only the registers that it puts into the GHCB. */
void vc(struct regs *r)
{
	u64 code = r->error, info;

	vcs++;
	last_error = code;
	r->rip += length;
	if (by_msr) {
		u64 leaf = r->rax << 32;

		r->rax = by_msr_protocol(leaf | 0ul << 30 | 4) >> 32;
		r->rbx = by_msr_protocol(leaf | 1ul << 30 | 4) >> 32;
		r->rcx = by_msr_protocol(leaf | 2ul << 30 | 4) >> 32;
		r->rdx = by_msr_protocol(leaf | 3ul << 30 | 4) >> 32;
		return;
	}
	clear();
	put(SCRATCH, SHARED + BUFFER);
	if (code == 0x72 || code == 0x81 || code == 0x37 || code == 0x8a || code == 0x8b ||
	    (code == 0x7c && info_1))
		put(RAX, r->rax);
	if (code == 0x7b && !(info_1 & 1))
		put(RAX, (u8)r->rax);
	if (code == 0x72 || code == 0x7c || code == 0x6f || code == 0x8a || code == 0x8b)
		put(RCX, (u32)r->rcx);
	if (code == 0x8a || (code == 0x7c && info_1))
		put(RDX, (u32)r->rdx);
	if (code == 0x81)
		put(CPL, 0);
	if (code == 0x400) {
		code = stores ? 0x80000002 : 0x80000001;
		*(volatile u32 *)(ghcb + BUFFER) = stores ? r->rax : 0;
	}
	info = last_answer = call(code, info_1, info_2);
	leaks += has(CANARY);
	if (info)
		return;
	/* KVM returns four registers after every exit. The rest of this is what instructions return. */
	if (code == 0x72 || code == 0x27 || code == 0x81 || code == 0x6f ||
	    (code == 0x7b && info_1 & 1) || (code == 0x7c && !info_1))
		r->rax = get(RAX);
	if (code == 0x72 || code == 0x6f || (code == 0x7c && !info_1))
		r->rdx = get(RDX);
	if (code == 0x72) {
		r->rbx = get(RBX);
		r->rcx = get(RCX);
	}
	if (code == 0x80000001)
		r->rax = *(volatile u32 *)(ghcb + BUFFER);
}

/* Sets the length of the next instruction, which raises #VC, and the operands of its VMGEXIT. */
static void next(u64 bytes, u64 one, u64 two)
{
	last_error = 0;
	length = bytes;
	info_1 = one;
	info_2 = two;
}

/* Makes the 2 MiB page at an address shared. */
static void share(u64 address)
{
	u64 *entry = (u64 *)DIRECTORY + address / LARGE;
	u64 cr3;

	*entry &= ~CBIT;
	asm volatile("mov %%cr3, %0; mov %0, %%cr3" : "=r"(cr3) : : "memory");
}

#include "canaries.h"

static void test_entry(u64 vcs_early, u32 *early)
{
	u32 regs[4];

	check_is("SEV_STATUS says SEV and SEV-ES", rdmsr(MSR_STATUS), 3);
	check_is("CPUID raised #VC before there was a GHCB", vcs_early, 1);
	check_is("CPUID 0x8000001f by the MSR protocol has SEV and SEV-ES", early[0] & 10, 10);
	check_is("CPUID 0x8000001f by the MSR protocol has the C-bit", early[1] & 63, 47);
	next(2, 0, 0);
	check_is("CPUID keeps the canaries", cpuid(0x8000001f, regs), 0);
	check_is("CPUID raised #VC 0x72", last_error, 0x72);
	check("CPUID by the GHCB page says the same", regs[0] == early[0] && regs[1] == early[1]);
	check_is("SEV information: versions 1 to 2, C-bit 47", by_msr_protocol(2),
		 2ul << 48 | 1ul << 32 | 47ul << 24 | 1);
	/* The features that KVM reports apply to SNP only. */
	check_is("features of the hypervisor", by_msr_protocol(0x80), IS_KVM ? 0x3081 : 0x81);
	check_is("an unknown request stays a request", by_msr_protocol(0x7f2), 0x7f2);
}

static void test_memory(void)
{
	volatile u64 *page = (u64 *)(SHARED + 0x4000);
	u64 *entry = (u64 *)DIRECTORY + SHARED / LARGE;
	u64 cr3, as_private, as_shared;

	*page = 1;
	*entry |= CBIT;
	asm volatile("mov %%cr3, %0; mov %0, %%cr3" : "=r"(cr3) : : "memory");
	as_private = *page;
	*page = CANARY;
	share(SHARED);
	as_shared = *page;
	check_is("private memory is not what was written to shared memory", as_private, 0);
	check_is("shared memory is not what was written to private memory", as_shared, 1);
}

static void test_instructions(void)
{
	u64 value, high;

	next(1, 0x3f8 << 16 | 1 << 4, 0);
	asm volatile("outb %b0, %w1" : : "a"('\n'), "d"(0x3f8));
	check_is("OUT raised #VC 0x7b", last_error, 0x7b);
	next(1, 0x3fd << 16 | 1 << 4 | 1, 0);
	asm volatile("inb %w1, %b0" : "=a"(value) : "d"(0x3fd));
	check("IN raised #VC 0x7b and reads the port", last_error == 0x7b && (value & 0x60) == 0x60);
	next(2, 0, 0);
	asm volatile("rdmsr" : "=a"(value), "=d"(high) : "c"(MSR_APICBASE));
	check("RDMSR raised #VC 0x7c and reads", last_error == 0x7c && value >> 12 == 0xfee00);
	next(2, 1, 0);
	asm volatile("wrmsr" : : "a"(6), "d"(0), "c"(MSR_MTRR));
	check_is("WRMSR raised #VC 0x7c", last_error, 0x7c);
	next(2, 0, 0);
	value = rdmsr(0xc0000080);
	check("RDMSR of EFER raises nothing", !last_error && value & 0x400);
#ifndef KVM
	/* KVM injects #GP instead of #VC. */
	next(2, 0, 0);
	asm volatile("rdpmc" : "=a"(value), "=d"(high) : "c"(0));
	check("RDPMC raised #VC 0x6f, answered by an exception",
	      last_error == 0x6f && get(INFO_1) == 1);
#endif
	next(2, 0, 0);
	asm volatile("wbinvd");
	check_is("WBINVD raised #VC 0x89", last_error, 0x89);
	next(3, 0, 0);
	asm volatile("mov %%dr7, %%rax" : "=a"(value));
	/* KVM does not return DR7, because a guest has to keep its own copy. */
	check("reading DR7 raised #VC 0x27", last_error == 0x27 && (IS_KVM || value == 0x400));
	next(3, 0, 0);
	asm volatile("mov %%rax, %%dr7" : : "a"(0x400));
	check_is("writing DR7 raised #VC 0x37", last_error, 0x37);
	next(3, 0, 0);
	asm volatile("vmmcall" : "=a"(value) : "a"(99));
	check("VMMCALL raised #VC 0x81; no such call", last_error == 0x81 && value == -1000ul);
	next(2, 0, 0);
	asm volatile("rdtsc" : "=a"(value), "=d"(high));
	check_is("RDTSC raises nothing", last_error, 0);
	share(IO_APIC);
	/* mov (%rbx), %eax */
	next(2, IO_APIC, 4);
	asm volatile("mov (%%rbx), %%eax" : "=a"(value) : "b"(IO_APIC));
	check("MMIO raised #VC 0x400 and reads", last_error == 0x400 && !get(INFO_1));
}

#include "fuzz.h"
#include "end.h"
#include "exits.h"
#include "reports.h"

static void gate(u32 vector, const char *handler)
{
	u64 at = (u64)handler;
	u16 cs;

	asm volatile("mov %%cs, %0" : "=r"(cs));
	idt[2 * vector] = (at & 0xffff) | (u64)cs << 16 | 0x8e00ul << 32 | (at >> 16 & 0xffff) << 48;
	idt[2 * vector + 1] = at >> 32;
}

/* Shows a value to the hypervisor: in shared memory, by the GHCB page, and to a device. Whoever
 * searches what the hypervisor sees must find it. */
static void show(void)
{
	*(volatile u64 *)(SHARED + 0x5000) = SHOWN;
	clear();
	put(SCRATCH, SHARED + BUFFER);
	*(volatile u64 *)(ghcb + BUFFER) = SHOWN;
	call(0x80000002, NO_MEMORY, 8);
	clear();
	put(RAX, SHOWN);
	call(0x8000fffd, 0, 0);
	check("the GHCB has what it shows", has(SHOWN));
}

void main(void)
{
	u32 early[4];
	u64 vcs_early, first = rdmsr(MSR_GHCB);
	struct { u16 limit; u64 base; } __attribute__((packed)) pointer = { sizeof(idt) - 1, (u64)idt };

#ifdef TERMINATES
	by_msr_protocol(0x100 | 1 << 12 | 2 << 16);
#endif
	gate(6, ud_entry);
	gate(13, gp_entry);
	gate(29, vc_entry);
	gate(TIMER, timer_entry);
	asm volatile("lidt %0" : : "m"(pointer));
	/* Enables SSE for canaries in its registers. */
	asm volatile("mov %%cr4, %%rax; or $0x600, %%rax; mov %%rax, %%cr4" : : : "rax");
	by_msr = 1;
	next(2, 0, 0);
	cpuid(0x8000001f, early);
	by_msr = 0;
	vcs_early = vcs;
	share(SHARED);
#if defined(EXITS)
	measure();
#elif defined(REPORTS)
	test_reports();
#endif
	test_entry(vcs_early, early);
	check_is("the GHCB MSR begins with the SEV information", first, by_msr_protocol(2));
	test_canaries();
#ifndef CANARIES
	test_memory();
	test_instructions();
	test_page();
	test_malformed();
	test_fuzz(FUZZ_ROUNDS);
#endif
	show();
	say(failures ? "guest: failed\n" : "guest: passed\n");
	if (IS_KVM)
		power_off();
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* Canaries in registers while the guest exits; part of guest.c. */

/* Registers in the order of struct regs. */
enum { AX, BX, CX, DX, REGISTERS = 15 };
#define IS(register) (1u << (register))

/* Registers before and after an instruction. The assembly code below knows the offsets. */
static struct {
	u64 before[REGISTERS], after[REGISTERS], xmm[32];
} held __attribute__((aligned(16)));
volatile u32 timers;	/* interrupts of the timer */
volatile u32 pauses;	/* PAUSEs that are left */
volatile u32 faults;	/* #GP after a VMGEXIT */
volatile u32 lacking;	/* instructions that this CPU lacks */

/* Defines a function that runs instructions with all 15 registers and all 16 XMM registers as in
 * `held`, and writes them back. */
#define KEEPING(name, instructions) \
	extern void name(void); \
	asm(".text\n" #name ":\n" \
	    "	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n" \
	    "	mov $held, %rdi\n" \
	    "	.irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n" \
	    "	movdqa 240 + 16 * \\i(%rdi), %xmm\\i\n" \
	    "	.endr\n" \
	    "	mov (%rdi), %rax; mov 8(%rdi), %rbx; mov 16(%rdi), %rcx; mov 24(%rdi), %rdx\n" \
	    "	mov 32(%rdi), %rsi; mov 48(%rdi), %rbp; mov 56(%rdi), %r8; mov 64(%rdi), %r9\n" \
	    "	mov 72(%rdi), %r10; mov 80(%rdi), %r11; mov 88(%rdi), %r12; mov 96(%rdi), %r13\n" \
	    "	mov 104(%rdi), %r14; mov 112(%rdi), %r15; mov 40(%rdi), %rdi\n" \
	    "	" instructions "\n" \
	    "	push %rdi; mov $held, %rdi\n" \
	    "	mov %rax, 120(%rdi); mov %rbx, 128(%rdi); mov %rcx, 136(%rdi)\n" \
	    "	mov %rdx, 144(%rdi); mov %rsi, 152(%rdi); mov %rbp, 168(%rdi)\n" \
	    "	mov %r8, 176(%rdi); mov %r9, 184(%rdi); mov %r10, 192(%rdi)\n" \
	    "	mov %r11, 200(%rdi); mov %r12, 208(%rdi); mov %r13, 216(%rdi)\n" \
	    "	mov %r14, 224(%rdi); mov %r15, 232(%rdi); popq 160(%rdi)\n" \
	    "	.irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n" \
	    "	movdqa %xmm\\i, 240 + 16 * \\i(%rdi)\n" \
	    "	.endr\n" \
	    "	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n" \
	    "	ret\n")

KEEPING(keeping_cpuid, "cpuid");
KEEPING(keeping_rdmsr, "rdmsr");
KEEPING(keeping_wrmsr, "wrmsr");
KEEPING(keeping_in, "inb %dx, %al");
KEEPING(keeping_out, "outb %al, %dx");
KEEPING(keeping_vmmcall, "vmmcall");
KEEPING(keeping_rdpmc, "rdpmc");
KEEPING(keeping_wbinvd, "wbinvd");
KEEPING(keeping_invd, "invd");
KEEPING(keeping_dr7_read, "mov %dr7, %rax");
KEEPING(keeping_dr7_write, "mov %rax, %dr7");
KEEPING(keeping_monitor, "monitor");
KEEPING(keeping_mwait, "mwait");
KEEPING(keeping_load, "mov (%rbx), %eax");
KEEPING(keeping_store, "mov %eax, (%rbx)");
/* These have no #VC: they exit whatever the registers are. */
KEEPING(keeping_pause, "1: pause; decl pauses; jnz 1b");
KEEPING(keeping_hlt, "sti; hlt; cli");
KEEPING(keeping_interrupt, "sti; 1: cmpl $0, timers; je 1b; cli");

extern char timer_entry[], gp_entry[], ud_entry[];
asm(".text\n"
    "timer_entry: incl timers; iretq\n"
    "gp_entry: incl faults; add $8, %rsp; iretq\n"
    "ud_entry: incl lacking; push %rax; mov length, %rax; add %rax, 8(%rsp); pop %rax; iretq\n");

/* Puts canaries into all registers. */
static void fill(void)
{
	for (u32 i = 0; i < REGISTERS; i++)
		held.before[i] = CANARY;
	for (u32 i = 0; i < 32; i++)
		held.xmm[i] = CANARY;
}

/* Returns 0 if all registers are as before, except for those that an instruction changes. */
static u64 lost(u32 changed)
{
	u64 bits = 0;

	for (u32 i = 0; i < REGISTERS; i++)
		if (!(changed & IS(i)))
			bits |= held.before[i] ^ held.after[i];
	for (u32 i = 0; i < 32; i++)
		bits |= held.xmm[i] ^ CANARY;
	return bits;
}

static u64 cpuid(u32 leaf, u32 *regs)
{
	fill();
	held.before[AX] = leaf;
	held.before[CX] = 0;
	keeping_cpuid();
	for (u32 i = AX; i <= DX; i++)
		regs[i] = held.after[i];
	return lost(IS(AX) | IS(BX) | IS(CX) | IS(DX));
}

/* Runs an instruction whose #VC has a code, or that causes none. `fill` and the operands precede
 * it. */
static void keeps(const char *what, void (*run)(void), u64 code, u32 changed)
{
	run();
	check_is(what, lost(changed) | (last_error ^ code), 0);
	fill();
	next(0, 0, 0);
}

static void by_page(u32 msr, u64 value)
{
	clear();
	put(RCX, msr);
	put(RAX, (u32)value);
	put(RDX, value >> 32);
	call(0x7c, 1, 0);
}

/* Lets the timer interrupt once, after a while. */
static void arm(void)
{
	timers = 0;
	by_page(X2APIC + 0x38, 3000000);
}

static void test_canaries_without_vc(void)
{
	/* x2APIC on; no interrupts from the PIC; a timer that interrupts once. */
	by_page(MSR_APICBASE, 0xfee00d00);
	by_page(X2APIC + 0xf, 0x1ff);
	by_page(X2APIC + 0x35, 0x10000);
	by_page(X2APIC + 0x3e, 0xb);
	by_page(X2APIC + 0x32, TIMER);
	pauses = 256;
	keeps("256 PAUSEs keep the canaries", keeping_pause, 0, 0);
	arm();
	keeps("HLT keeps the canaries", keeping_hlt, 0, 0);
	check_is("the timer's interrupt ended HLT", timers, 1);
	by_page(X2APIC + 0xb, 0);
	arm();
	keeps("an interrupt keeps the canaries", keeping_interrupt, 0, 0);
	check_is("it was the timer's", timers, 1);
	by_page(X2APIC + 0xb, 0);
}

static void test_canaries(void)
{
	u64 *in = held.before;

	fill();
	in[AX] = ' ', in[DX] = 0x3f8;
	next(1, 0x3f8 << 16 | 1 << 4, 0);
	keeps("OUT keeps the canaries", keeping_out, 0x7b, 0);
	in[DX] = 0x3fd;
	next(1, 0x3fd << 16 | 1 << 4 | 1, 0);
	keeps("IN keeps the canaries", keeping_in, 0x7b, IS(AX));
	in[CX] = MSR_APICBASE;
	next(2, 0, 0);
	keeps("RDMSR keeps the canaries", keeping_rdmsr, 0x7c, IS(AX) | IS(DX));
	in[CX] = MSR_MTRR, in[AX] = 6, in[DX] = 0;
	next(2, 1, 0);
	keeps("WRMSR keeps the canaries", keeping_wrmsr, 0x7c, 0);
	in[AX] = 99;
	next(3, 0, 0);
	keeps("VMMCALL keeps the canaries", keeping_vmmcall, 0x81, IS(AX));
	in[CX] = 0;
	next(2, 0, 0);
	keeps("RDPMC keeps the canaries", keeping_rdpmc, 0x6f, IS(AX) | IS(DX));
	check("RDPMC ended in an exception", IS_KVM ? faults == 1 : last_answer == 1);
	next(2, 0, 0);
	keeps("WBINVD keeps the canaries", keeping_wbinvd, 0x89, 0);
	next(2, 0, 0);
	keeps("INVD keeps the canaries", keeping_invd, 0x76, 0);
	next(3, 0, 0);
	keeps("reading DR7 keeps the canaries", keeping_dr7_read, 0x27, IS(AX));
	in[AX] = 0x400;
	next(3, 0, 0);
	keeps("writing DR7 keeps the canaries", keeping_dr7_write, 0x37, 0);
#if !defined(KVM) || defined(CANARIES)
	/* The CPUs of KVM's other L1s have neither. */
	in[AX] = in[CX] = in[DX] = 0;
	next(3, 0, 0);
	keeps("MONITOR keeps the canaries", keeping_monitor, 0x8a, 0);
	in[AX] = in[CX] = 0;
	next(3, 0, 0);
	keeps("MWAIT keeps the canaries", keeping_mwait, 0x8b, 0);
	check_is("this CPU has both", lacking, 0);
#endif
	share(IO_APIC);
	in[BX] = IO_APIC;
	next(2, IO_APIC, 4);
	keeps("a read of device memory keeps the canaries", keeping_load, 0x400, IS(AX));
	in[BX] = IO_APIC, in[AX] = 0;
	next(2, IO_APIC, 4);
	stores = 1;
	keeps("a write of device memory keeps the canaries", keeping_store, 0x400, 0);
	stores = 0;
	test_canaries_without_vc();
	check_is("no GHCB had a canary after an answer", leaks, 0);
}

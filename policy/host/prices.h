/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a guest's exits cost on five kinds of host, in nanoseconds. Data only.
 *
 * A price is what the vCPU loses: exit, handling in the host, entry. The scheduler's
 * decisions, the queueing and whatever the guest itself executes (interrupt handlers, the
 * #VC and #VE handlers' own work excepted, which is in the price) are simulated elsewhere.
 *
 * Each number names its source, or says "assumed" and why. Cycles are turned into time at
 * 2.5 GHz where a source gives no clock. Titles, links and doubts: prices.md.
 *
 *   SKX   Wanpeng Li's vmexit runs of kvm-unit-tests, Skylake server, kvm list, 2018-2020
 *   TUM   artifact of Misono et al., "Confidential VMs Explained", SIGMETRICS 2025,
 *         benchmarks/vmexit/plot.py; EPYC 9334 (Zen 4), plain VM and SEV-SNP
 *   USER  the leg through user space, 1700: KVM_RUN out and back 500 (1152 TSC cycles on an
 *         AMD host, lkml, December 2020), two syscall crossings 200 and QEMU's dispatch
 *         1000 (both assumed)
 */
#ifndef UNSPIN_POLICY_HOST_PRICES_H
#define UNSPIN_POLICY_HOST_PRICES_H

#include "../base.h"

enum host_platform {
	HOST_PRICES_FREE,	/* exits cost nothing: what a policy does, without its costs */
	HOST_PRICES_VMX,	/* Intel, APICv with posted interrupts, no IPI virtualization */
	HOST_PRICES_SVM,	/* AMD Zen 4, AVIC off */
	HOST_PRICES_SEV_ES,	/* AMD Zen 4, encrypted register state; KVM inhibits AVIC */
	HOST_PRICES_TDX,	/* Intel TDX 1.5, guest kernel 6.15 or later */
	HOST_PLATFORMS
};

/* What a guest does that costs time in the host. */
enum host_exit {
	HOST_EXIT_HLT,		/* entry included; the wake-up is wake_ns and idle_ns */
	HOST_EXIT_IPI,		/* the sender's part, one target */
	HOST_EXIT_TIMER,	/* arming the TSC deadline, not its expiry */
	HOST_EXIT_CPUID,
	HOST_EXIT_MSR,		/* an MSR that KVM emulates */
	HOST_EXIT_MMIO,		/* to a device in user space */
	HOST_EXIT_PIO,		/* to a device in user space */
	HOST_EXIT_PAUSE,	/* with one look for a vCPU to boost; the switch is switch_ns */
	HOST_EXIT_HYPERCALL,	/* that KVM handles */
	HOST_EXITS
};

struct host_prices {
	u32 exit_ns[HOST_EXITS];
	/* To wake a halted vCPU, beyond scheduling. The entry itself is in the price of HLT. */
	u32 wake_ns;
	/* What a woken vCPU waits for besides if its pCPU was idle: that one leaves C1. */
	u32 idle_ns;
	/* An interrupt to a running vCPU, from the host's send to the guest's vector. */
	u32 interrupt_ns;
	/* A pCPU changes from one vCPU thread to another. */
	u32 switch_ns;
	/* One PAUSE that does not exit. */
	u32 pause_ns;
};

static const struct host_prices host_prices[HOST_PLATFORMS] = {
	[HOST_PRICES_FREE] = {
		.pause_ns = 40,		/* as hardware's, or spin loops would run too fast */
	},
	[HOST_PRICES_VMX] = {
		.exit_ns = {
			/* assumed: HYPERCALL + 290 to put the vCPU and block its thread */
			[HOST_EXIT_HLT] = 900,
			/* assumed: HYPERCALL + 90 for the descriptor and the ICR. Check: + interrupt_ns
			 * = 1200; SKX ipi, send to acknowledgement: 3293 cycles = 1317 */
			[HOST_EXIT_IPI] = 700,
			/* assumed between HYPERCALL and SKX tscdeadline_immed (arming and delivery),
			 * 2495 cycles = 998 */
			[HOST_EXIT_TIMER] = 800,
			/* Christopherson, kvm list 2024-12-09: 1600+ cycles with mitigations (1018
			 * without, = 407); clock not stated */
			[HOST_EXIT_CPUID] = 640,
			/* assumed as CPUID: on AMD the two differ by 5 % (TUM) */
			[HOST_EXIT_MSR] = 640,
			/* assumed: PIO + 600 to walk the EPT violation and decode the instruction */
			[HOST_EXIT_MMIO] = 2900,
			/* assumed: HYPERCALL + USER */
			[HOST_EXIT_PIO] = 2300,
			/* assumed: HYPERCALL + 390 for kvm_vcpu_on_spin()'s scan */
			[HOST_EXIT_PAUSE] = 1000,
			/* SKX vmcall: 1529 cycles */
			[HOST_EXIT_HYPERCALL] = 610,
		},
		/* assumed: to unblock the vCPU's thread */
		.wake_ns = 400,
		/* C1 exit: intel_idle's skx_cstates; icx: 1000. Check: both + HLT = 3300; SKX
		 * cyclictest in a guest, all included: 4602 */
		.idle_ns = 2000,
		/* assumed: flight and posted-interrupt processing; see IPI's check */
		.interrupt_ns = 500,
		/* Dall et al., ISCA 2016, table 2: VM switch 4812 - hypercall 1300 cycles at
		 * 2.1 GHz (recalled, not re-read); without an IBPB */
		.switch_ns = 1700,
		/* Skylake server: 43 (Kraus 2018); Intel optimization manual: up to 140 cycles */
		.pause_ns = 43,
	},
	[HOST_PRICES_SVM] = {
		.exit_ns = {
			/* assumed: HYPERCALL + 290, as VMX */
			[HOST_EXIT_HLT] = 1550,
			/* assumed: MSR + 110 for delivery. Check: with AVIC the whole IPI takes 1125
			 * (Zen 4 at 2.5 GHz, same CCX; Petkov and VijayAbraham, lkml 2023-10-27) */
			[HOST_EXIT_IPI] = 1400,
			/* assumed: MSR + 160 for the host's timer */
			[HOST_EXIT_TIMER] = 1450,
			/* TUM: 1226 to 1232 */
			[HOST_EXIT_CPUID] = 1230,
			/* TUM: RDMSR 0x1b */
			[HOST_EXIT_MSR] = 1290,
			/* assumed: PIO + 600, as VMX */
			[HOST_EXIT_MMIO] = 3600,
			/* assumed: HYPERCALL + USER (TUM, to a device in the kernel: 1635) */
			[HOST_EXIT_PIO] = 3000,
			/* assumed: HYPERCALL + 390, as VMX */
			[HOST_EXIT_PAUSE] = 1650,
			/* TUM: 1255 */
			[HOST_EXIT_HYPERCALL] = 1255,
		},
		.wake_ns = 400,		/* assumed as VMX */
		.idle_ns = 2000,	/* assumed as VMX; ACPI C1 */
		/* assumed: a physical IPI 500 as VMX, then exit and entry as HYPERCALL's */
		.interrupt_ns = 1750,
		.switch_ns = 1700,	/* assumed as VMX */
		/* Fog's tables: 65 cycles on Zen 2 and later (recalled), at 3.2 GHz */
		.pause_ns = 20,
	},
	/*
	 * Measured under SEV-SNP, which adds RMP checks to SEV-ES. Exits by instruction (NAE)
	 * include #VC and the GHCB. HLT, PAUSE and interrupts exit without them (AE): 2700,
	 * assumed as HYPERCALL less #VC (TUM: 646 where it needs no exit) and 200 for the GHCB.
	 */
	[HOST_PRICES_SEV_ES] = {
		.exit_ns = {
			/* assumed: AE + 300 to block */
			[HOST_EXIT_HLT] = 3000,
			/* assumed: MSR + 110, as SVM */
			[HOST_EXIT_IPI] = 3700,
			/* assumed: MSR + 160, as SVM, rounded */
			[HOST_EXIT_TIMER] = 3750,
			/* TUM: leaf 0xb, 3859. SNP serves most leaves without an exit: 646 */
			[HOST_EXIT_CPUID] = 3860,
			/* TUM: RDMSR 0x1b, 3573 */
			[HOST_EXIT_MSR] = 3570,
			/* assumed: PIO + 600: the guest decodes, in its #VC handler */
			[HOST_EXIT_MMIO] = 5900,
			/* assumed: HYPERCALL + USER (TUM, to a device in the kernel: 3885) */
			[HOST_EXIT_PIO] = 5300,
			/* assumed: AE + 400, as VMX */
			[HOST_EXIT_PAUSE] = 3100,
			/* TUM: 3553, by #VC */
			[HOST_EXIT_HYPERCALL] = 3550,
		},
		.wake_ns = 400,		/* assumed as SVM; the dearer entry is in HLT */
		.idle_ns = 2000,	/* assumed as SVM */
		/* assumed: a physical IPI 500, then an AE */
		.interrupt_ns = 3200,
		.switch_ns = 1700,	/* assumed as SVM: VMRUN loads the state, in the exits */
		.pause_ns = 20,		/* as SVM */
	},
	/*
	 * The least certain column: no table of single exits was found in public text. Two
	 * anchors: TDCALL 5276 cycles (Erebor, EuroSys 2025, recalled, not re-read), at 2.2 GHz;
	 * a CPUID by #VE costs about 10^4 cycles (a research kernel's comment). These are prices
	 * without contention: 32 vCPUs exiting together were seen to take 8000 to 10000 a round
	 * trip (dstack, docs/tdx-guest-scaling.md, 2026, Emerald Rapids).
	 */
	[HOST_PRICES_TDX] = {
		.exit_ns = {
			/* assumed: HYPERCALL + 300 to block; pv_ops halt, no #VE, since 6.15 */
			[HOST_EXIT_HLT] = 2700,
			/* assumed: MSR + 100; the ICR is not virtualized, so #VE */
			[HOST_EXIT_IPI] = 3600,
			/* assumed: MSR + 150 for the host's timer */
			[HOST_EXIT_TIMER] = 3650,
			/* assumed: as MSR; a leaf that the TDX module answers is cheaper */
			[HOST_EXIT_CPUID] = 3500,
			/* assumed: HYPERCALL + 1100 for #VE and TDG.VP.VEINFO.GET */
			[HOST_EXIT_MSR] = 3500,
			/* assumed: PIO + 600: the guest decodes, in its #VE handler */
			[HOST_EXIT_MMIO] = 5800,
			/* assumed: MSR + USER */
			[HOST_EXIT_PIO] = 5200,
			/* PAUSE never exits: the module keeps pause-loop exiting off */
			[HOST_EXIT_PAUSE] = 0,
			/* 5276 cycles at 2.2 GHz, see above */
			[HOST_EXIT_HYPERCALL] = 2400,
		},
		.wake_ns = 400,		/* assumed as VMX; the dearer entry is in HLT */
		.idle_ns = 2000,	/* assumed as VMX */
		.interrupt_ns = 500,	/* assumed as VMX: always posted */
		/* assumed: VMX + 300 for another TD's control structures; moving a vCPU to
		 * another pCPU also needs TDH.VP.FLUSH, which is not priced */
		.switch_ns = 2000,
		.pause_ns = 43,		/* as VMX */
	},
};

/* The most that prices are changed by, in percent. */
#define HOST_PRICE_PERCENT_MAX 1000

/* What the host does, at so many percent of its price; a PAUSE that does not exit is the CPU's. Most
 * prices are assumed: this shows what rests on them. */
POLICY struct host_prices host_prices_scaled(const struct host_prices *prices, u32 percent)
{
	struct host_prices scaled = *prices;
	u32 i;

	for (i = 0; i < HOST_EXITS; i++)
		scaled.exit_ns[i] = scaled.exit_ns[i] * percent / 100;
	scaled.wake_ns = scaled.wake_ns * percent / 100;
	scaled.idle_ns = scaled.idle_ns * percent / 100;
	scaled.interrupt_ns = scaled.interrupt_ns * percent / 100;
	scaled.switch_ns = scaled.switch_ns * percent / 100;
	return scaled;
}

#endif /* UNSPIN_POLICY_HOST_PRICES_H */

//! Which hypervisor, and which of KVM's paravirtual features it offers.

use unspin_model::diagnosis::Hypervisor;

use super::{Facts, words};

/// Hypervisors describe themselves from here on, in steps of 0x100 where they pose as
/// several (KVM with Hyper-V's enlightenments has its own leaves at 0x40000100).
const FIRST_LEAF: u32 = 0x4000_0000;
const LAST_LEAF: u32 = 0x4000_ff00;

/// A paravirtual feature of KVM (CPUID 0x40000001, Documentation/virt/kvm/x86/cpuid.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmFeature {
    /// kvmclock.
    Clocksource = 3,
    /// Steal time, and with it the flag that another vCPU is preempted.
    StealTime = 5,
    /// Halting instead of spinning, and waking by hypercall: PV spinlocks.
    PvUnhalt = 7,
    /// TLB flushes that leave out preempted vCPUs.
    PvTlbFlush = 9,
    /// Many IPIs by one hypercall.
    PvSendIpi = 11,
    /// The guest may turn off the host's polling of halted vCPUs.
    PollControl = 12,
    /// Yielding to a vCPU that an IPI waits for.
    PvSchedYield = 13,
}

impl KvmFeature {
    /// All that are looked at.
    pub const ALL: [KvmFeature; 7] = [
        KvmFeature::Clocksource,
        KvmFeature::StealTime,
        KvmFeature::PvUnhalt,
        KvmFeature::PvTlbFlush,
        KvmFeature::PvSendIpi,
        KvmFeature::PollControl,
        KvmFeature::PvSchedYield,
    ];
}

/// What KVM offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kvm {
    /// Its features, of those that are looked at.
    pub features: Vec<KvmFeature>,
    /// Its promise that vCPUs are never preempted (KVM_HINTS_REALTIME).
    pub realtime: bool,
}

/// The hypervisor, as it calls itself. KVM in the disguise of Hyper-V is KVM.
pub fn hypervisor(facts: &Facts) -> Hypervisor {
    if !facts.is_virtual() {
        return Hypervisor::None;
    }
    if kvm(facts).is_some() {
        return Hypervisor::Kvm;
    }
    let Some(first) = facts.leaf(FIRST_LEAF) else { return Hypervisor::Other(String::new()) };
    match words(&[first.ebx, first.ecx, first.edx]).as_str() {
        "Microsoft Hv" => Hypervisor::HyperV,
        "VMwareVMware" => Hypervisor::Vmware,
        "XenVMMXenVMM" => Hypervisor::Xen,
        "TCGTCGTCGTCG" => Hypervisor::Tcg,
        name => Hypervisor::Other(name.to_owned()),
    }
}

/// What KVM offers; `None` without KVM.
pub fn kvm(facts: &Facts) -> Option<Kvm> {
    let mut bases = (FIRST_LEAF..=LAST_LEAF).step_by(0x100).filter_map(|leaf| facts.leaf(leaf));
    let base = bases.find(|leaf| words(&[leaf.ebx, leaf.ecx, leaf.edx]) == "KVMKVMKVM")?;
    let leaf = facts.leaf(base.leaf + 1).copied().unwrap_or_default();
    let has = |feature: &KvmFeature| leaf.eax & 1 << *feature as u32 != 0;
    Some(Kvm {
        features: KvmFeature::ALL.into_iter().filter(has).collect(),
        realtime: leaf.edx & 1 != 0,
    })
}

//! Identifies the hypervisor, and the paravirtual features that KVM offers.

use unspin_model::diagnosis::Hypervisor;

use super::{Facts, words};

/// The first CPUID leaf in which hypervisors describe themselves. Those that pose as several use
/// more leaves, in steps of 0x100: KVM with Hyper-V's enlightenments has its own at 0x40000100.
const FIRST_LEAF: u32 = 0x4000_0000;
const LAST_LEAF: u32 = 0x4000_ff00;

/// A paravirtual feature of KVM (CPUID 0x40000001, Documentation/virt/kvm/x86/cpuid.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvmFeature {
    /// The kvmclock clock source.
    Clocksource = 3,
    /// Steal time, and with it the flag that reveals whether another vCPU is preempted.
    StealTime = 5,
    /// PV spinlocks: waiters halt instead of spinning, and are woken by a hypercall.
    PvUnhalt = 7,
    /// TLB flushes that leave out preempted vCPUs.
    PvTlbFlush = 9,
    /// IPIs to many vCPUs by one hypercall.
    PvSendIpi = 11,
    /// The guest may turn off the host's polling of halted vCPUs.
    PollControl = 12,
    /// Yielding to a vCPU that an IPI waits for.
    PvSchedYield = 13,
}

impl KvmFeature {
    /// All features that unspin looks at.
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

/// The paravirtual features that KVM offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kvm {
    /// The offered features, of those in [`KvmFeature::ALL`].
    pub features: Vec<KvmFeature>,
    /// Whether KVM promises that vCPUs are never preempted (KVM_HINTS_REALTIME).
    pub realtime: bool,
}

/// Returns the hypervisor, by the name that it reports. KVM that poses as Hyper-V is KVM.
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

/// Returns the features that KVM offers; `None` without KVM.
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

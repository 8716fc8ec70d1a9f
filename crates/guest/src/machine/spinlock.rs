//! Finds out which spinlock the kernel chose, and whether the host already helps as much as a limit
//! on vCPUs would.

use unspin_model::diagnosis::{Hypervisor, Spinlock};

use super::{Facts, Kvm, KvmFeature, hypervisor, kvm};

const OPTION: &str = "CONFIG_PARAVIRT_SPINLOCKS";

/// Returns the spinlock that the kernel chose at boot: kvm_spinlock_init() and
/// native_pv_lock_init() of arch/x86 look only at these facts.
pub fn spinlock(facts: &Facts) -> Spinlock {
    match (hypervisor(facts), kvm(facts)) {
        (Hypervisor::None, _) => Spinlock::NativeQueue,
        (Hypervisor::Kvm, Some(kvm)) => spinlock_under_kvm(facts, &kvm),
        (Hypervisor::Tcg | Hypervisor::Vmware, _) => Spinlock::TestAndSet,
        _ => Spinlock::Unknown,
    }
}

fn spinlock_under_kvm(facts: &Facts, kvm: &Kvm) -> Spinlock {
    // With nopv, the kernel does not look for KVM.
    let option = facts.config.get(OPTION);
    if facts.booted_with("nopv") || !facts.config.is_empty() && option.is_none() {
        return Spinlock::TestAndSet;
    }
    // Until commit 960550503965 (Linux 6.18, and older stable kernels), a kernel that the host does
    // not help looks no further, and keeps the test-and-set lock. Its log shows whether it did.
    if facts.spinlocks_say.as_ref().is_some_and(|line| line.contains("no host support")) {
        return Spinlock::TestAndSet;
    }
    if kvm.realtime || facts.cpus_at_boot() == 1 || facts.booted_with("nopvspin") {
        return Spinlock::NativeQueue;
    }
    match kvm.features.contains(&KvmFeature::PvUnhalt) {
        true => Spinlock::ParavirtualQueue,
        false => Spinlock::TestAndSet,
    }
}

/// Returns whether the host reports which vCPUs were preempted, and the kernel uses that.
pub fn has_steal_time(facts: &Facts, kvm: &Kvm) -> bool {
    kvm.features.contains(&KvmFeature::StealTime) && !facts.booted_with("nopv")
}

/// Returns whether waiters for spinlocks halt, and waiters for mutexes and semaphores sleep while
/// the owner's vCPU is off. With both, a limit on vCPUs seldom gains (`vt-helped`); PV spinlocks
/// alone leave the second kind of spinning. Returns `false` if the kernel's configuration is
/// unknown.
pub fn host_helps(facts: &Facts) -> bool {
    facts.config.contains_key(OPTION)
        && spinlock(facts) == Spinlock::ParavirtualQueue
        && kvm(facts).is_some_and(|kvm| has_steal_time(facts, &kvm))
}

//! The hypervisor's help against spinning.

use unspin_model::diagnosis::{Confidential, Help, Hypervisor, Spinlock, State};

use crate::machine::{
    Facts, Kvm, KvmFeature, confidential, has_steal_time, hypervisor, kvm, spinlock,
};

/// Returns all kinds of help, available or not. Empty if the machine is not virtual.
pub(super) fn all(facts: &Facts) -> Vec<Help> {
    if hypervisor(facts) == Hypervisor::None {
        return Vec::new();
    }
    let kvm = kvm(facts);
    vec![
        spinlocks(facts),
        steal_time(facts, kvm.as_ref()),
        preempted_flag(kvm.as_ref()),
        tlb_flush(facts, kvm.as_ref()),
        yield_after_ipi(facts, kvm.as_ref()),
        mask_ipi(kvm.as_ref()),
        pause_exits(confidential(facts)),
        halts(confidential(facts)),
    ]
}

fn spinlocks(facts: &Facts) -> Help {
    let (state, means) = match spinlock(facts) {
        Spinlock::ParavirtualQueue => (
            State::Present,
            "a waiter that has read the lock 32,768 times halts, and is woken when its turn comes",
        ),
        Spinlock::NativeQueue => {
            let means = "waiters spin in a queue; one whose vCPU is off holds up all behind it";
            return help("PV spinlocks", State::Absent, &format!("{means}{}", instead(facts)));
        }
        Spinlock::TestAndSet => (
            State::Absent,
            "waiters spin until the holder's vCPU is back on, and overtake each other",
        ),
        Spinlock::Unknown => (State::Unknown, "CPUID does not identify this hypervisor"),
    };
    help("PV spinlocks", state, means)
}

/// Returns how to make the kernel choose another spinlock than its native queue.
fn instead(facts: &Facts) -> String {
    let Some(kvm) = kvm(facts).filter(|_| facts.cpus_at_boot() > 1) else { return String::new() };
    let nopvspin = facts.booted_with("nopvspin").then_some("boot without `nopvspin`");
    let hint = kvm.realtime.then_some("ask the provider to drop KVM's realtime hint");
    let steps: Vec<_> = nopvspin.into_iter().chain(hint).collect();
    let lock = match kvm.features.contains(&KvmFeature::PvUnhalt) {
        true => "PV spinlocks, whose waiters halt",
        false => "test-and-set spinlocks, which pass over a waiter that is off",
    };
    match steps.is_empty() {
        true => String::new(),
        false => {
            format!(". If vCPUs are off, {}: the kernel then takes {lock}", steps.join(" and "))
        }
    }
}

fn steal_time(facts: &Facts, kvm: Option<&Kvm>) -> Help {
    let state = match kvm {
        Some(kvm) if has_steal_time(facts, kvm) => State::Present,
        Some(_) => State::Absent,
        None if facts.steal_ticks.is_some_and(|ticks| ticks > 0) => State::Present,
        None => State::Unknown,
    };
    let means = match state {
        State::Present => "the kernel learns afterwards how long a vCPU was off",
        State::Absent => "the kernel counts time off as time at work; top shows no steal",
        State::Unknown => "the kernel counts none; that can also mean that there was none",
    };
    help("steal time", state, means)
}

fn preempted_flag(kvm: Option<&Kvm>) -> Help {
    let state =
        kvm.map_or(State::Unknown, |kvm| present(kvm.features.contains(&KvmFeature::StealTime)));
    let means = match state {
        State::Present => {
            "mutexes stop spinning on an owner that is off; idle vCPUs that are off are not chosen"
        }
        _ => "vcpu_is_preempted() is always false: mutexes spin on owners that are off",
    };
    help("preempted flag", state, means)
}

/// Returns the state of a feature that depends on steal time. The conditions are those of
/// pv_tlb_flush_supported() and pv_sched_yield_supported() in arch/x86/kernel/kvm.c.
fn needs_steal_time(facts: &Facts, kvm: Option<&Kvm>, feature: KvmFeature) -> State {
    kvm.map_or(State::Unknown, |kvm| {
        let offered = [feature, KvmFeature::StealTime].iter().all(|f| kvm.features.contains(f));
        present(offered && !kvm.realtime && !facts.has_mwait() && facts.cpus_at_boot() > 1)
    })
}

fn tlb_flush(facts: &Facts, kvm: Option<&Kvm>) -> Help {
    let state = needs_steal_time(facts, kvm, KvmFeature::PvTlbFlush);
    let means = match state {
        State::Present => "a TLB shootdown does not wait for vCPUs that are off",
        _ => "a TLB shootdown waits until each vCPU that is off comes back",
    };
    help("PV TLB flush", state, means)
}

fn yield_after_ipi(facts: &Facts, kvm: Option<&Kvm>) -> Help {
    let state = needs_steal_time(facts, kvm, KvmFeature::PvSchedYield);
    let means = match state {
        State::Present => "a vCPU that waits for an IPI gives its pCPU to a target that is off",
        _ => "a vCPU that waits for an IPI spins until its targets are on",
    };
    help("PV sched yield", state, means)
}

fn mask_ipi(kvm: Option<&Kvm>) -> Help {
    let state =
        kvm.map_or(State::Unknown, |kvm| present(kvm.features.contains(&KvmFeature::PvSendIpi)));
    let means = match state {
        State::Present => "one exit sends an IPI to many vCPUs",
        _ => "each target of an IPI can cost an exit",
    };
    help("PV IPI", state, means)
}

fn pause_exits(kind: Confidential) -> Help {
    let (state, means) = match kind {
        Confidential::Tdx => (
            State::Absent,
            "the TDX module turns pause-loop exiting off: the host cannot see a guest spin",
        ),
        Confidential::SevEs | Confidential::SevSnp => (
            State::Unknown,
            "the host may count PAUSEs, but cannot see whether user or kernel spins",
        ),
        _ => (State::Unknown, "the host's choice: kvm_intel.ple_gap, kvm_amd.pause_filter_count"),
    };
    help("pause exits", state, means)
}

fn halts(kind: Confidential) -> Help {
    let (state, means) = match kind {
        Confidential::Tdx => (
            State::Absent,
            "each halt and each wake-up is a TD exit: sleeping instead of spinning costs much",
        ),
        Confidential::SevEs | Confidential::SevSnp => (
            State::Unknown,
            "each halt is an exit that swaps the encrypted state: more expensive than in a plain VM",
        ),
        _ => (State::Unknown, "each halt is an exit, unless the host allows halts without one"),
    };
    help("cheap halts", state, means)
}

fn present(is: bool) -> State {
    if is { State::Present } else { State::Absent }
}

fn help(name: &str, state: State, means: &str) -> Help {
    Help { name: name.into(), state, means: means.into() }
}

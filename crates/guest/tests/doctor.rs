//! Machines, from what was read of them.

use std::path::Path;

use proptest::prelude::*;
use unspin_guest::doctor::diagnose;
use unspin_guest::machine::Facts;
use unspin_model::diagnosis::{Confidential, Diagnosis, Hypervisor, Spinlock, State};

fn facts(name: &str) -> Facts {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machines/{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn state(diagnosis: &Diagnosis, name: &str) -> State {
    diagnosis.help.iter().find(|help| help.name == name).unwrap_or_else(|| panic!("{name}")).state
}

fn missing(diagnosis: &Diagnosis, name: &str) -> String {
    let ability = diagnosis.abilities.iter().find(|ability| ability.name == name).unwrap();
    assert_eq!(ability.possible, ability.missing.is_empty());
    ability.missing.join("; ")
}

#[test]
fn each_machine_is_known_for_what_it_is() {
    use Confidential::{Plain, Sev, SevEs, SevSnp, SevUnknown, Tdx};
    use Hypervisor::{HyperV, Kvm, Vmware};
    use Spinlock::{NativeQueue, ParavirtualQueue, TestAndSet, Unknown};
    for (name, kind, hypervisor, spinlock) in [
        ("tdx", Tdx, Kvm, ParavirtualQueue),
        ("tdx-hyper-v", Tdx, HyperV, Unknown),
        ("snp", SevSnp, Kvm, ParavirtualQueue),
        ("sev-es", SevEs, Kvm, ParavirtualQueue),
        ("sev", Sev, Kvm, ParavirtualQueue),
        ("sev-unknown", SevUnknown, Kvm, ParavirtualQueue),
        ("kvm", Plain, Kvm, ParavirtualQueue),
        ("kvm-as-hyper-v", Plain, Kvm, ParavirtualQueue),
        ("kvm-realtime", Plain, Kvm, NativeQueue),
        ("hyper-v", Plain, HyperV, Unknown),
        ("vmware", Plain, Vmware, TestAndSet),
        ("bare-metal", Plain, Hypervisor::None, NativeQueue),
    ] {
        let machine = diagnose(&facts(name)).machine;
        assert_eq!((machine.confidential, &machine.hypervisor), (kind, &hypervisor), "{name}");
        assert_eq!(machine.spinlock, spinlock, "{name}");
    }
}

#[test]
fn a_tdx_guest_has_pv_spinlocks_and_no_steal_time() {
    let tdx = diagnose(&facts("tdx"));
    assert_eq!(state(&tdx, "PV spinlocks"), State::Present);
    // PV TLB flush and PV sched yield are offered, and of no use without steal time.
    for absent in ["steal time", "preempted flag", "PV TLB flush", "PV sched yield", "pause exits"]
    {
        assert_eq!(state(&tdx, absent), State::Absent, "{absent}");
    }
    assert_eq!(state(&tdx, "PV IPI"), State::Present);
}

#[test]
fn a_plain_kvm_guest_has_all_help() {
    let kvm = diagnose(&facts("kvm"));
    for present in
        ["PV spinlocks", "steal time", "preempted flag", "PV TLB flush", "PV sched yield", "PV IPI"]
    {
        assert_eq!(state(&kvm, present), State::Present, "{present}");
    }
    assert_eq!(kvm.machine.steal_s, Some(1_500.0));
}

#[test]
fn the_kernels_choice_of_spinlock_follows_its_order() {
    let with = |change: fn(&mut Facts)| {
        let mut facts = facts("kvm");
        change(&mut facts);
        diagnose(&facts).machine.spinlock
    };
    let no_unhalt = |facts: &mut Facts| facts.cpuid.last_mut().unwrap().eax &= !(1 << 7);
    assert_eq!(with(|f| f.command_line.push_str(" nopvspin")), Spinlock::NativeQueue);
    assert_eq!(with(|f| f.cpus = 1), Spinlock::NativeQueue);
    assert_eq!(with(no_unhalt), Spinlock::TestAndSet);
    assert_eq!(
        with(|f| {
            f.cpuid.last_mut().unwrap().eax &= !(1 << 7);
            f.command_line.push_str(" nopvspin");
        }),
        Spinlock::NativeQueue,
        "the abandoned guest"
    );
    let not_built = |facts: &mut Facts| {
        facts.config.clear();
        facts.config.insert("CONFIG_HZ".into(), "250".into());
    };
    assert_eq!(with(not_built), Spinlock::TestAndSet);
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let old = diagnose(&facts("kvm-as-hyper-v"));
    assert!(missing(&old, "schedule around it").contains("6.12"));
    assert_eq!(missing(&old, "see who spins on which lock"), "");
    let user = diagnose(&facts("sev-unknown"));
    assert!(missing(&user, "see when vCPUs are off").contains("sudo"));
    let taken = diagnose(&facts("bare-metal"));
    assert!(missing(&taken, "schedule around it").contains("enabled"));
}

#[test]
fn facts_come_back_as_they_were_written() {
    let here = Facts::probe();
    let text = serde_json::to_string(&here).unwrap();
    assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), here);
    assert!(here.cpus > 0 && !here.kernel.is_empty() && !here.cpuid.is_empty(), "{text}");
}

proptest! {
    /// Whatever CPUID says, there is an answer.
    #[test]
    fn any_registers_are_judged(
        leaves in prop::collection::vec(any::<[u32; 5]>(), 0..8),
        known in 0..6_usize,
    ) {
        let mut facts = facts("snp");
        let numbers = [0x0, 0x1, 0x21, 0x4000_0000, 0x4000_0001, 0x8000_001f];
        facts.cpuid.retain(|leaf| leaf.leaf != numbers[known]);
        for [leaf, eax, ebx, ecx, edx] in leaves {
            let leaf = if leaf % 2 == 0 { numbers[known] } else { leaf };
            facts.cpuid.push(unspin_guest::machine::Leaf { leaf, eax, ebx, ecx, edx });
        }
        let found = diagnose(&facts);
        prop_assert_eq!(found.help.is_empty(), found.machine.hypervisor == Hypervisor::None);
    }
}

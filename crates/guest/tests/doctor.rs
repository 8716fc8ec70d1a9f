//! Diagnoses of machines, from recorded facts.

use std::path::Path;

use proptest::prelude::*;
use unspin_guest::doctor::diagnose;
use unspin_guest::machine::{Facts, Trial, Trials, host_helps};
use unspin_model::diagnosis::{Confidential, Diagnosis, Hypervisor, Ready, Spinlock, State};

fn facts(name: &str) -> Facts {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machines/{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A guest whose host does not help against all spinning.
fn unhelped(name: &str) -> Facts {
    Facts { command_line: "nopvspin".into(), ..facts(name) }
}

fn kvm() -> Facts {
    unhelped("kvm")
}

fn state(diagnosis: &Diagnosis, name: &str) -> State {
    diagnosis.help.iter().find(|help| help.name == name).unwrap_or_else(|| panic!("{name}")).state
}

fn why(diagnosis: &Diagnosis, verb: &str) -> String {
    let verb =
        diagnosis.verbs.iter().find(|it| it.verb == verb).unwrap_or_else(|| panic!("{verb}"));
    assert_eq!(verb.ready == Ready::Yes, verb.why.is_empty(), "{verb:?}");
    verb.why.join("; ")
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
    // PV TLB flush and PV sched yield are offered, but useless without steal time.
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
    assert_eq!(kvm.machine.steal_share, None, "nobody read how much time there was");
    let facts = Facts { cpu_ticks: Some(15_000_000), ..facts("kvm") };
    assert_eq!(diagnose(&facts).machine.steal_share, Some(0.01));
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
    assert_eq!(
        with(|f| {
            f.cpuid.last_mut().unwrap().eax &= !(1 << 7);
            f.command_line.push_str(" nopvspin");
            f.spinlocks_say = Some("kvm-guest: PV spinlocks disabled, no host support".into());
        }),
        Spinlock::TestAndSet,
        "the same guest with a kernel that asks the host first"
    );
    let not_built = |facts: &mut Facts| {
        facts.config.clear();
        facts.config.insert("CONFIG_HZ".into(), "250".into());
    };
    assert_eq!(with(not_built), Spinlock::TestAndSet);
}

/// The kernel chooses at boot, by the vCPUs that may come (num_possible_cpus() of kvm.c).
#[test]
fn vcpus_that_are_offline_count() {
    let with = |possible_cpus| Facts { cpus: 1, possible_cpus, ..facts("kvm") };
    for (possible, spinlock, help) in
        [(1, Spinlock::NativeQueue, State::Absent), (4, Spinlock::ParavirtualQueue, State::Present)]
    {
        let found = diagnose(&with(possible));
        assert_eq!((found.machine.spinlock, found.machine.cpus), (spinlock, 1));
        assert_eq!(state(&found, "PV TLB flush"), help);
        assert_eq!(host_helps(&with(possible)), possible > 1);
    }
}

#[test]
fn the_host_helps_by_pv_spinlocks_and_steal_time_together() {
    let helps = |name: &str, change: fn(&mut Facts)| {
        let mut facts = facts(name);
        change(&mut facts);
        host_helps(&facts)
    };
    assert!(helps("kvm", |_| ()));
    assert!(!helps("kvm", |facts| facts.command_line.push_str(" nopvspin")));
    assert!(!helps("kvm", |facts| facts.command_line.push_str(" nopv")));
    assert!(helps("kvm", |facts| facts.command_line.push_str(" no-steal-acc")), "accounting only");
    assert!(!helps("kvm", |facts| facts.config.clear()), "not known");
    assert!(!helps("tdx", |_| ()), "no steal time: waiters of mutexes spin on");
    assert!(!helps("bare-metal", |_| ()));
    let why = why(&diagnose(&facts("kvm")), "run");
    assert!(why.starts_with("acts only with --actuator: "), "{why}");
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let old = diagnose(&unhelped("kvm-as-hyper-v"));
    assert!(why(&old, "run").contains("6.12"));
    assert_eq!(why(&old, "record"), "");
    assert!(old.kernel_advice.is_some());
    let user = diagnose(&facts("sev-unknown"));
    assert!(why(&user, "watch").contains("sudo"));
    let taken = diagnose(&facts("bare-metal"));
    assert!(why(&taken, "run").contains("enabled"));
    assert_eq!(taken.kernel_advice, None);
}

#[test]
fn advice_names_fewer_vcpus_than_there_are() {
    for (cpus, advised) in
        [(1, None), (2, Some("-c 0 ")), (4, Some("-c 0,1 ")), (9, Some("-c 0-3 "))]
    {
        let facts = Facts { cpus, sched_ext: None, ..unhelped("kvm-as-hyper-v") };
        let advice = diagnose(&facts).kernel_advice.expect("no sched_ext").without;
        let taskset = advice.iter().find(|text| text.contains("taskset"));
        match (taskset, advised) {
            (Some(text), Some(list)) => assert!(text.contains(list), "{cpus}: {text}"),
            (found, advised) => assert_eq!((found.is_some(), advised), (false, None), "{cpus}"),
        }
        assert!(advice.iter().all(|text| !text.contains("above")), "{advice:?}");
    }
}

#[test]
fn a_new_kernel_without_sched_ext_is_not_called_old() {
    let of = |kernel: &str| {
        let facts = Facts { kernel: kernel.into(), sched_ext: None, ..facts("kvm") };
        why(&diagnose(&facts), "run")
    };
    for new in ["6.12.1-cloud", "6.18.44-fc", "7.0"] {
        let why = of(new);
        let words = format!("Linux {new} is new enough, but built without CONFIG_SCHED_CLASS_EXT");
        assert!(why.contains(&words), "{why}");
    }
    for old in ["6.11.9", "5.19.0-2", "unknown"] {
        assert!(of(old).contains("Linux 6.12 or newer"), "{old}");
    }
}

#[test]
fn what_was_tried_counts_more_than_what_files_say() {
    let missing = ["fentry/smp_call_function_many_cond", "fexit/smp_call_function_many_cond"];
    let failed = |why: &str| Trial { failed: Some(why.into()), ..Trial::default() };
    let refused = Some("the kernel forbids it".to_owned());
    let trials = Trials {
        sensor: Trial { failed: None, missing: missing.map(str::to_owned).into(), refused },
        light: failed("it lacks CONFIG_KALLSYMS_ALL, so its ticks show nothing"),
        scheduler: failed("the verifier refused it"),
        ..Trials::default()
    };
    let tried = diagnose(&Facts { trials: Some(trials), ..facts("kvm") });
    for verb in ["watch", "record"] {
        let why = why(&tried, verb);
        assert!(why.contains("waits for IPIs") && why.contains("forbids it"), "{why}");
        assert_eq!(why.matches("smp_call_function_many_cond").count(), 1, "{why}");
    }
    assert!(why(&tried, "watch --listen").contains("--causes"));
    let refused = why(&tried, "run");
    assert!(
        refused.contains("cpuset") && refused.ends_with("the verifier refused it"),
        "{refused}"
    );
    assert_eq!(why(&tried, "report") + &why(&tried, "trace"), "");
    let other = Trials { light: failed("the verifier refused it"), ..Trials::default() };
    let tried = diagnose(&Facts { trials: Some(other), ..facts("kvm") });
    assert_eq!(why(&tried, "watch --listen"), "the verifier refused it");
    let none = Trials { sensor: failed("no BTF"), ..Trials::default() };
    let tried = diagnose(&Facts { trials: Some(none), ..kvm() });
    assert_eq!(why(&tried, "watch"), "no BTF");
    assert_eq!(why(&tried, "run"), "");
}

/// Both ways to run depend on spins: if none can be counted, `run` exits with 77.
#[test]
fn where_spins_cannot_be_counted_nothing_runs() {
    let spins = Trial { failed: Some("no programs at functions".into()), ..Trial::default() };
    let trials = Some(Trials { spins, ..Trials::default() });
    for cpuset in [true, false] {
        let trials = trials.clone();
        let sched_ext = Some("disabled".into());
        let found = diagnose(&Facts { cpuset, sched_ext, trials, ..kvm() });
        assert_eq!(why(&found, "run"), "no programs at functions");
        assert_eq!(why(&found, "watch --listen"), "");
    }
    let older = r#"{"sensor": {"failed": null}, "light": {"failed": null},
        "scheduler": {"failed": null}}"#;
    let trials = Some(serde_json::from_str(older).expect("facts that lack this trial"));
    assert_eq!(why(&diagnose(&Facts { cpuset: true, trials, ..kvm() }), "run"), "");
}

/// Either way is enough, and then no advice on kernels is due.
#[test]
fn cpusets_or_sched_ext_are_enough_to_run() {
    let of = |cpuset, sched_ext: Option<&str>| {
        let sched_ext = sched_ext.map(str::to_owned);
        let found = diagnose(&Facts { cpuset, sched_ext, ..kvm() });
        (why(&found, "run").is_empty(), found.kernel_advice.is_some())
    };
    assert_eq!(of(true, None), (true, false));
    assert_eq!(of(true, Some("enabled")), (true, false));
    assert_eq!(of(false, Some("disabled")), (true, false));
    assert_eq!(of(false, None), (false, true));
}

#[test]
fn one_vcpu_leaves_nothing_to_limit() {
    let of = |cpus| why(&diagnose(&Facts { cpus, cpuset: true, ..kvm() }), "run");
    assert_eq!([of(1), of(2)], ["it does nothing until a second vCPU is online", ""]);
}

/// The kernel chooses its FIFO spinlock on a hypervisor for two reasons, which can be mended.
#[test]
fn a_native_spinlock_on_a_hypervisor_has_a_remedy() {
    let means = |facts: Facts| {
        let help = diagnose(&facts).help;
        help.into_iter().find(|help| help.name == "PV spinlocks").expect("it is listed").means
    };
    let abandoned = || {
        let mut facts = kvm();
        facts.cpuid.last_mut().unwrap().eax &= !(1 << 7);
        facts
    };
    let pv = means(kvm());
    assert!(pv.ends_with("`nopvspin`: the kernel then takes PV spinlocks, whose waiters halt"));
    let overtaken = means(abandoned());
    assert!(overtaken.contains("`nopvspin`: the kernel then takes test-and-set"), "{overtaken}");
    let hint = means(facts("kvm-realtime"));
    assert!(hint.contains("drop KVM's realtime hint") && !hint.contains("nopvspin"), "{hint}");
    for other in [facts("kvm"), facts("vmware"), Facts { cpus: 1, ..kvm() }] {
        let means = means(other);
        assert!(!means.contains("then takes"), "{means}");
    }
}

/// If the host helps, `run` would do nothing, so no kernel is recommended for it.
#[test]
fn a_helped_guest_needs_no_other_kernel() {
    let old = Facts { cpuset: false, sched_ext: None, ..facts("kvm") };
    let found = diagnose(&old);
    assert!(why(&found, "run").starts_with("it would do nothing: this host offers"));
    assert_eq!(found.kernel_advice, None);
}

/// If cpusets cannot be used, the reason is given; in a container nothing else helps.
#[test]
fn a_container_is_no_place_to_run() {
    let facts = Facts {
        cpuset: false,
        cpuset_lacks: Some("a container's part of the cgroups".into()),
        sched_ext: Some("disabled".into()),
        ..kvm()
    };
    assert_eq!(why(&diagnose(&facts), "run"), "");
    let facts = Facts { container: true, ..facts };
    assert_eq!(why(&diagnose(&facts), "run"), "a container's part of the cgroups");
    let advice = |facts: Facts| diagnose(&Facts { sched_ext: None, ..facts }).kernel_advice;
    assert!(advice(Facts { container: false, ..facts.clone() }).is_some());
    assert_eq!(advice(facts), None, "its image has no kernel");
}

/// Neither cpusets nor, whatever the kernel, sched_ext.
#[test]
fn isolated_vcpus_are_no_place_to_run_either() {
    let with = |isolcpus: &str| {
        let command_line = format!("nopvspin isolcpus={isolcpus}");
        let (cpuset_lacks, sched_ext) = (Some("isolcpus= keeps 2-3 free".into()), None);
        Facts { cpuset: false, cpuset_lacks, sched_ext, command_line, ..kvm() }
    };
    for isolcpus in ["2-3", "domain,2-3", "nohz,domain,2-3"] {
        let found = diagnose(&with(isolcpus));
        assert_eq!(why(&found, "run"), "isolcpus= keeps 2-3 free", "{isolcpus}");
        assert_eq!(found.kernel_advice, None, "{isolcpus}");
        let disabled = Facts { sched_ext: Some("disabled".into()), ..with(isolcpus) };
        assert_eq!(why(&diagnose(&disabled), "run"), "isolcpus= keeps 2-3 free", "{isolcpus}");
    }
    assert!(diagnose(&with("managed_irq,2-3")).kernel_advice.is_some());
}

#[test]
fn the_lab_needs_programs_and_says_which_package_has_them() {
    let with = |found: &[&str]| {
        let lab = Some(found.iter().map(|name| (*name).to_owned()).collect());
        let os_release = Facts::parse_os_release("ID=debian\n");
        why(&diagnose(&Facts { lab, os_release, ..facts("kvm") }), "lab")
    };
    assert!(with(&[]).contains("sudo apt install qemu-system-x86 busybox-static"));
    assert!(with(&["qemu-system-x86_64", "busybox"]).contains("emulated"));
    assert_eq!(with(&["qemu-system-x86_64", "busybox", "/dev/kvm"]), "");
}

/// For each distribution, the commands that lead to a kernel with sched_ext.
#[test]
fn each_distribution_has_its_own_way_to_sched_ext() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/os-release");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    let mut all = String::new();
    for file in files {
        let os_release = Facts::parse_os_release(&std::fs::read_to_string(&file).unwrap());
        let kernel =
            if file.ends_with("debian-13") { "6.12.48+deb13-cloud-amd64" } else { "6.8.0" };
        let kernel = kernel.to_owned();
        let found = diagnose(&Facts { os_release, kernel, sched_ext: None, ..kvm() });
        let advice = found.kernel_advice.unwrap();
        assert!(!advice.without.is_empty());
        all += &format!("{}: {}\n", advice.distribution, advice.known);
        all += &advice.commands.iter().map(|it| format!("    {it}\n")).collect::<String>();
    }
    insta::assert_snapshot!(all);
}

#[test]
fn facts_come_back_as_they_were_written() {
    let here = Facts::probe();
    let text = serde_json::to_string(&here).unwrap();
    assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), here);
    assert!(here.cpus > 0 && !here.kernel.is_empty() && !here.cpuid.is_empty(), "{text}");
}

proptest! {
    /// Any CPUID results in a diagnosis.
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

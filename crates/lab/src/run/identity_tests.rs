use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use unspin_model::{Accel, FailureKind};
use unspin_sources::kernel::Kernel;

use super::super::{Event, Progress, prepare};
use super::*;
use crate::experiment::{Pcpus, Scheduler};
use crate::image::Own;

/// An experiment with its own program and its own kernel. Tests can change both.
pub(in crate::run) struct Bench(tempfile::TempDir);

impl Bench {
    pub(in crate::run) fn new() -> Bench {
        let bench = Bench(tempfile::tempdir_in("/var/tmp").unwrap());
        bench.write("program", "#!/bin/sh\necho result 1\n");
        bench.write("bzImage", "a kernel");
        bench.write("init", "an init");
        bench.write("unspin", "help: unspin");
        bench.workload("n", "until_stopped = true", r"result (\d+)");
        bench.workload("w", "", r"result (\d+)");
        bench
    }

    pub(in crate::run) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn workload(&self, name: &str, more: &str, regex: &str) {
        let text = format!(
            r#"
name = "{name}"
title = "w"
stresses = "nothing"
programs = []
files = ["{}"]
command = ["sh", "program"]
time_limit_s = 10
{more}
metric = {{ name = "m", unit = "s", better = "lower" }}
read = {{ regex = '{regex}' }}
"#,
            self.path("program").display()
        );
        self.write(&format!("{name}.toml"), &text);
    }

    pub(in crate::run) fn experiment(&self, more: &str, topology: &str) -> Experiment {
        let text = format!(
            "name = \"x\"\ntitle = \"x\"\nabout = \"x\"\nrepeats = 2\nkernels = [\"k\"]\n\
             schedulers = [\"stock\", \"hold:1\"]\nworkloads = [\"w.toml\"]\n{more}\n\
             [[topology]]\nname = \"t\"\nvcpus = 2\npcpus = 1\n{topology}\n"
        );
        Experiment::parse(&self.path("x.toml"), &text).unwrap()
    }

    pub(in crate::run) fn kernel(&self, id: &str) -> Kernel {
        Kernel {
            spec: "k".into(),
            id: id.into(),
            release: "6.12.0".into(),
            image: self.path("bzImage"),
            config: None,
            modules: None,
            source: String::new(),
        }
    }

    fn prepared(&self, experiment: &Experiment, id: &str, accel: Accel) -> Prepared {
        let mut prepared = Prepared::of_kernel(self.kernel(id), accel, self.own());
        for scheduler in &experiment.schedulers {
            if let Scheduler::Command(command) = scheduler {
                let installed = prepare::install(command, &mut Silent).unwrap();
                prepared.schedulers.insert(command.name.clone(), installed);
            }
        }
        prepared
    }

    pub(in crate::run) fn plan(&self, experiment: &Experiment, id: &str, accel: Accel) -> Plan {
        let prepared = self.prepared(experiment, id, accel);
        Plan::new(&forced(experiment, accel), &prepared).unwrap()
    }

    fn own(&self) -> Own {
        Own { init: self.path("init"), unspin: self.path("unspin"), commit: String::new() }
    }

    fn base(&self) -> Plan {
        self.plan(&self.experiment("", ""), "k-1", Accel::Tcg)
    }
}

fn forced(experiment: &Experiment, accel: Accel) -> Experiment {
    let mut experiment = experiment.clone();
    experiment.force_accel(accel).unwrap();
    experiment
}

struct Silent;

impl Progress for Silent {
    fn event(&mut self, _: Event) {}
}

fn identities(plan: &Plan) -> BTreeSet<&Identity> {
    plan.names.values().map(|names| &names.identity).collect()
}

/// Asserts that the plans have no run identity in common and that their settings differ at `path`.
fn all_differ(a: &Plan, b: &Plan, path: &str) {
    assert!(identities(a).is_disjoint(&identities(b)), "{path}");
    let own = a.settings.values().next().unwrap();
    let other = b.settings.values().find(|other| other.cell == own.cell).unwrap();
    assert!(own.differences(other).contains(&path.to_owned()), "{:?}", own.differences(other));
}

#[test]
fn a_plan_names_each_run_once_and_again_the_same() {
    let bench = Bench::new();
    let plan = bench.base();
    assert_eq!((plan.names.len(), identities(&plan).len(), plan.settings.len()), (4, 4, 2));
    assert_eq!(bench.base().names, plan.names);
    assert_eq!(bench.base().identity().unwrap(), plan.identity().unwrap());
    let settings = plan.names.values().map(|names| &names.setting);
    assert!(settings.clone().all(|name| plan.settings[name].setting().unwrap() == *name));
}

#[test]
fn a_selection_leaves_other_runs_named_but_not_to_be_carried_out() {
    let bench = Bench::new();
    let whole = bench.plan(&bench.experiment("", ""), "k-1", Accel::Tcg);
    let numbers = |plan: &Plan| -> BTreeSet<u64> {
        plan.boots.iter().flat_map(|boot| boot.runs.iter().map(|run| run.run)).collect()
    };
    for (runs, expected) in [
        (Selection::All, vec![0, 1, 2, 3]),
        (Selection::Range(1, 2), vec![1, 2]),
        (Selection::Nothing, vec![]),
    ] {
        let mut plan = whole.clone();
        plan.select(runs).unwrap();
        assert_eq!(numbers(&plan), expected.into_iter().collect(), "{runs}");
        assert!(plan.boots.iter().all(|boot| !boot.runs.is_empty()), "{runs}");
        assert_eq!((plan.names, plan.settings), (whole.names.clone(), whole.settings.clone()));
    }
    let beyond = whole.clone().select(Selection::Range(3, 4)).unwrap_err();
    assert!(beyond.to_string().contains("run 4 is not planned"), "{beyond}");
}

#[test]
fn words_order_and_further_repeats_change_nothing() {
    let bench = Bench::new();
    let plan = bench.base();
    let same = bench.experiment("seed = 9", "");
    let same = Experiment { title: "y".into(), repeats: 1, ..same };
    let fewer = bench.plan(&same, "k-1", Accel::Tcg);
    assert!(identities(&fewer).is_subset(&identities(&plan)));
}

#[test]
fn kernel_accelerator_programs_and_cell_change_every_run() {
    let bench = Bench::new();
    let plan = bench.base();
    let experiment = bench.experiment("", "");
    all_differ(&plan, &bench.plan(&experiment, "k-2", Accel::Tcg), "kernels.subject");
    all_differ(&plan, &bench.plan(&experiment, "k-1", Accel::Kvm), "accel");
    for (more, topology, path) in [
        ("time_limit_s = 5", "", "run.job"),
        ("boot_params = [\"quiet\"]", "", "machines.vms"),
        ("truth = \"off\"", "", "run.truth"),
        ("fresh_boots = true", "", "fresh_boots"),
        ("", "memory_mib = 512", "machines.vms"),
        ("", "spinlock = \"native\"", "machines.vms"),
        ("", "fairness = \"per-vm\"", "machines.fairness"),
        ("", "[[topology.neighbour]]\nvcpus = 1\nworkload = \"n.toml\"", "run.neighbours"),
    ] {
        let changed = bench.experiment(more, topology);
        let changed = bench.plan(&changed, "k-1", Accel::Tcg);
        let own = plan.settings.values().next().unwrap();
        let other = changed.settings.values().find(|o| o.cell.scheduler == own.cell.scheduler);
        assert!(identities(&plan).is_disjoint(&identities(&changed)), "{path}");
        assert!(own.differences(other.unwrap()).contains(&path.to_owned()), "{path}");
    }
    bench.write("program", "#!/bin/sh\necho result 2\n");
    let program = format!("programs.{}", bench.path("program").display());
    all_differ(&plan, &bench.base(), &program);
    let plan = bench.base();
    bench.write("bzImage", "another kernel of the same release");
    all_differ(&plan, &bench.base(), "kernels.subject");
    let plan = bench.base();
    bench.workload("w", "", r"result +(\d+)");
    all_differ(&plan, &bench.base(), "reading.subject");
}

#[test]
fn virtual_time_knows_seeds_and_prices_and_no_machine() {
    let bench = Bench::new();
    let experiment = bench.experiment("seed = 1", "");
    let plan = bench.plan(&experiment, "k-1", Accel::Vt);
    assert!(plan.names.values().all(|names| names.deterministic));
    assert!(plan.boots.iter().all(|boot| boot.runs.len() == 1));
    let setting = plan.settings.values().next().unwrap();
    assert!(setting.host.is_none() && setting.virtual_time.is_some());
    let seed = bench.plan(&bench.experiment("seed = 2", ""), "k-1", Accel::Vt);
    assert!(identities(&plan).is_disjoint(&identities(&seed)));
    let mut prepared = Prepared::of_kernel(bench.kernel("k-1"), Accel::Vt, bench.own());
    prepared.virtual_time.prices = "other".into();
    let priced = Plan::new(&forced(&experiment, Accel::Vt), &prepared).unwrap();
    all_differ(&plan, &priced, "virtual_time.prices");
    let quantum = bench.experiment("seed = 1\nvt = { quantum_ns = 1000 }", "");
    all_differ(&plan, &bench.plan(&quantum, "k-1", Accel::Vt), "machines.virtual_host");
    prepared.virtual_time.prices.clear();
    assert!(
        Plan::new(&forced(&experiment, Accel::Vt), &prepared).is_err(),
        "prices that are not known"
    );
    assert!(bench.base().settings.values().all(|setting| setting.host.is_some()));
}

#[test]
fn a_qemu_of_ones_own_counts_with_its_content() {
    let bench = Bench::new();
    let name = |own: Option<&str>| {
        let own = own.map(|content| {
            bench.write("qemu", content);
            bench.path("qemu")
        });
        qemu("7.2".into(), own.as_deref(), &mut FileDigests::default()).unwrap()
    };
    assert_eq!(name(None), "7.2");
    assert!(name(Some("a build")).starts_with("7.2 "));
    assert_ne!(name(Some("a build")), name(Some("another build")));
}

#[test]
fn the_command_lines_constants_decide_a_run_and_paths_do_not() {
    let bench = Bench::new();
    for (accel, constant) in [(Accel::Vt, "lpj=4000000"), (Accel::Tcg, "oops=panic")] {
        let experiment = forced(&bench.experiment("", ""), accel);
        let prepared = Prepared::of_kernel(bench.kernel("k-1"), accel, bench.own());
        let boot = &plan(&experiment)[0];
        let mut machines = specs::boot(&experiment, &prepared, boot).unwrap();
        let job = specs::run(&experiment, &prepared, boot, &boot.runs[0]);
        machines.vms.iter_mut().for_each(forget_paths);
        let line = arguments(&machines, &job).join(" ");
        assert!(line.contains(constant), "{line}");
        assert!(!line.contains(bench.path("").to_str().unwrap()), "{line}");
    }
}

/// Returns the experiment with a scheduler named `run`, which is `unspin run`.
fn with_unspin(mut experiment: Experiment) -> Experiment {
    let command = toml::from_str("name = \"run\"\nargv = [\"unspin\", \"run\"]").unwrap();
    experiment.schedulers.push(Scheduler::Command(command));
    experiment
}

/// Returns the schedulers whose runs all have a different identity in the second plan.
fn changed<'a>(before: &'a Plan, after: &Plan) -> BTreeSet<&'a str> {
    let runs = before.boots.iter().flat_map(|boot| &boot.runs);
    let other = |run: &&PlannedRun| before.names[&run.run] != after.names[&run.run];
    let changed: Vec<&str> = runs.filter(other).map(|r| r.cell.scheduler.as_str()).collect();
    let whole = |name: &&str| changed.iter().filter(|other| *other == name).count() == 2;
    assert!(changed.iter().all(whole), "both repeats: {changed:?}");
    changed.into_iter().collect()
}

#[test]
fn unspin_itself_decides_only_the_runs_that_have_it_in_their_guest() {
    for accel in [Accel::Vt, Accel::Tcg] {
        let bench = Bench::new();
        let experiment = with_unspin(bench.experiment("", ""));
        let plan = || bench.plan(&experiment, "k-1", accel);
        let before = plan();
        assert!(changed(&before, &plan()).is_empty(), "{accel:?}");
        bench.write("unspin", "another help text");
        let after = plan();
        assert_eq!(changed(&before, &after), ["run"].into(), "{accel:?}");
        bench.write("init", "another init");
        assert_eq!(changed(&after, &plan()), ["hold:1", "run", "stock"].into(), "{accel:?}");
    }
}

#[test]
fn a_workload_that_runs_unspin_has_it_in_its_guest() {
    let bench = Bench::new();
    let workload = fs::read_to_string(bench.path("w.toml")).unwrap();
    bench.write("w.toml", &workload.replace("programs = []", "programs = [\"unspin\"]"));
    let before = bench.base();
    bench.write("unspin", "another help text");
    assert_eq!(changed(&before, &bench.base()), ["hold:1", "stock"].into());
}

#[test]
fn in_virtual_time_a_cell_boots_an_image_of_its_own_parts() {
    let bench = Bench::new();
    let experiment = forced(&with_unspin(bench.experiment("", "")), Accel::Vt);
    let plan = bench.plan(&experiment, "k-1", Accel::Vt);
    let prepared = bench.prepared(&experiment, "k-1", Accel::Vt);
    let image = |scheduler: &str| {
        let boot = plan.boots.iter().find(|boot| boot.runs[0].cell.scheduler == scheduler);
        prepared.write_cell_initramfs(&experiment, boot.unwrap()).unwrap();
        fs::read(prepared.cell_initramfs(&experiment, boot.unwrap())).unwrap()
    };
    let holds = |image: &[u8], text: &str| image.windows(text.len()).any(|w| w == text.as_bytes());
    let [stock, hold, run] = ["stock", "hold:1", "run"].map(image);
    assert_eq!(stock, hold, "the same parts");
    assert!(holds(&stock, "an init") && !holds(&stock, "help: unspin"));
    assert!(holds(&run, "an init") && holds(&run, "help: unspin"));
}

#[test]
fn two_versions_of_a_scheduler_do_not_pass_for_one_program() {
    let bench = Bench::new();
    let mut experiment = forced(&bench.experiment("", ""), Accel::Vt);
    for version in ["old", "new"] {
        fs::create_dir(bench.path(version)).unwrap();
        bench.write(&format!("{version}/scx_x"), version);
        let program = bench.path(version).join("scx_x");
        let command = format!("name = \"{version}\"\nargv = [{program:?}]");
        experiment.schedulers.push(Scheduler::Command(toml::from_str(&command).unwrap()));
    }
    let plan = bench.plan(&experiment, "k-1", Accel::Vt);
    let prepared = bench.prepared(&experiment, "k-1", Accel::Vt);
    let boot = |scheduler: &str| {
        let mut boots = plan.boots.iter();
        boots.find(|boot| boot.runs[0].cell.scheduler == scheduler).unwrap()
    };
    let boots = [boot("old"), boot("new")];
    let program = |boot: &PlannedBoot| {
        let setting = &plan.settings[&plan.names[&boot.runs[0].run].setting];
        setting.programs["/usr/local/bin/scx_x"].clone()
    };
    let image = |boot: &PlannedBoot| prepared.cell_initramfs(&experiment, boot);
    assert_ne!(program(boots[0]), program(boots[1]));
    assert_ne!(image(boots[0]), image(boots[1]));
    // In real time, all runs of a kernel boot the same image.
    let check = |boots: &[&PlannedBoot]| {
        let boots = boots.iter().copied();
        parts::each_has_its_place(&parts::of_boots(&experiment, &prepared.schedulers, boots))
    };
    check(&boots[..1]).unwrap();
    let refused = check(&boots).unwrap_err().to_string();
    assert!(refused.contains("new/scx_x") && refused.contains("old/scx_x"), "{refused}");
}

#[test]
fn pcpus_that_this_machine_does_not_have_are_unavailable() {
    let bench = Bench::new();
    let mut experiment = bench.experiment("", "");
    *experiment.topologies[0].pcpus.get_mut() = Pcpus::List(vec![1_000]);
    let prepared = bench.prepared(&experiment, "k-1", Accel::Tcg);
    let error = Plan::new(&forced(&experiment, Accel::Tcg), &prepared).unwrap_err();
    let LabError::Host(failure) = error else { panic!("{error}") };
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert!(failure.detail.contains("1000"), "{failure}");
}

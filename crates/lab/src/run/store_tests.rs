use unspin_model::{Accel, Better, FailureKind, Label, Metric, Outcome, Source};

use super::super::folder::load;
use super::super::identity::tests::Bench;
use super::*;

/// A bench with an output folder.
pub(in crate::run) struct Folder {
    pub(in crate::run) bench: Bench,
    pub(in crate::run) experiment: Experiment,
    pub(in crate::run) plan: Plan,
}

impl Folder {
    pub(in crate::run) fn new(accel: Accel) -> Folder {
        let bench = Bench::new();
        let experiment = bench.experiment("", "");
        let plan = bench.plan(&experiment, "k-1", accel);
        Folder { bench, experiment, plan }
    }

    fn out(&self) -> PathBuf {
        self.bench.path("out")
    }

    fn runs(&self) -> PathBuf {
        self.out().join("runs.jsonl")
    }

    fn open(&self, plan: &Plan) -> Store {
        Store::open(&self.out(), &self.experiment, plan, "").unwrap()
    }

    /// A folder in which every run of the plan is done.
    fn filled(accel: Accel) -> Folder {
        let folder = Folder::new(accel);
        let mut store = folder.open(&folder.plan);
        for run in folder.plan.names.keys() {
            store.append(&record(&folder.plan, *run, Outcome::Done { value: 1.0 })).unwrap();
        }
        folder
    }
}

pub(in crate::run) fn record(plan: &Plan, run: u64, outcome: Outcome) -> RunRecord {
    let names = &plan.names[&run];
    RunRecord {
        run,
        block: 0,
        boot: 0,
        position: 0,
        attempt: 1,
        cell: plan.settings[&names.setting].cell.clone(),
        metric: Metric { name: "m".into(), unit: "s".into(), better: Better::Lower },
        outcome,
        co_metrics: BTreeMap::new(),
        latencies: BTreeMap::new(),
        neighbours: Vec::new(),
        truth: None,
        kvm: BTreeMap::new(),
        elapsed_s: 1.0,
        boot_s: 1.0,
        lab_cpu_share: 0.0,
        spinlock: String::new(),
        digest: None,
        started: "2026-01-01T00:00:00Z".into(),
        label: Label {
            source: Source::Lab,
            accel: Some(Accel::Tcg),
            nested: false,
            kernel: "6.12.0".into(),
            host: String::new(),
            prices: None,
            cvm: None,
        },
        identity: Some(names.identity.clone()),
        setting: Some(names.setting.clone()),
    }
}

const DONE: Outcome = Outcome::Done { value: 1.0 };

fn failed() -> Outcome {
    Outcome::Failed { kind: FailureKind::GuestHang, detail: String::new() }
}

#[test]
fn a_folder_is_resumed_and_failed_runs_are_open() {
    let folder = Folder::new(Accel::Tcg);
    let mut store = folder.open(&folder.plan);
    let loaded = load(&folder.out()).unwrap();
    assert_eq!((loaded.records.len(), loaded.cells.len()), (0, 2), "cells are planned before");
    store.append(&record(&folder.plan, 0, Outcome::Done { value: 1.0 })).unwrap();
    store.append(&record(&folder.plan, 1, Outcome::DidNotFinish { limit_s: 9.0 })).unwrap();
    store.append(&record(&folder.plan, 2, failed())).unwrap();
    store.end(5.0, false).unwrap();
    let second = Store::open(&folder.out(), &folder.experiment, &folder.plan, "").map(drop);
    assert!(second.unwrap_err().to_string().contains("another run or sweep writes there"));
    drop(store);
    let store = folder.open(&folder.plan);
    let done: Vec<bool> = folder.plan.names.keys().map(|run| store.is_done(*run)).collect();
    assert_eq!((done, store.done()), (vec![true, true, false, false], 2));
    let loaded = load(&folder.out()).unwrap();
    assert_eq!((loaded.records.len(), loaded.planned, loaded.elapsed_s), (3, 4, 5.0));
    assert!(loaded.left_out.is_empty());
}

#[test]
fn results_in_virtual_time_that_differ_are_refused() {
    let folder = Folder::new(Accel::Vt);
    let mut store = folder.open(&folder.plan);
    let mut append = |value: f64, accel: Accel| {
        let mut again = record(&folder.plan, 0, Outcome::Done { value });
        again.label.accel = Some(accel);
        store.append(&again).unwrap();
    };
    let loaded = || load(&folder.out()).map(|loaded| loaded.records.len());
    append(1.0, Accel::Vt);
    append(1.0, Accel::Vt);
    assert_eq!(loaded().unwrap(), 2, "the same result twice says nothing new");
    append(2.0, Accel::Tcg);
    append(3.0, Accel::Tcg);
    assert_eq!(loaded().unwrap(), 4, "each run in real time is another measurement");
    append(4.0, Accel::Vt);
    let error = loaded().unwrap_err().to_string();
    let says = error.contains("runs.jsonl:5: the run of line 1 has another result here (value ")
        && error.contains("remove one of the two lines");
    assert!(says, "{error}");
}

#[test]
fn a_changed_kernel_accelerator_or_program_starts_over_and_says_why() {
    let folder = Folder::filled(Accel::Tcg);
    let (bench, experiment) = (&folder.bench, &folder.experiment);
    let kernel = bench.plan(experiment, "k-2", Accel::Tcg);
    let accel = bench.plan(experiment, "k-1", Accel::Kvm);
    std::fs::write(bench.path("program"), "another").unwrap();
    let program = bench.plan(experiment, "k-1", Accel::Tcg);
    let before = std::fs::read(folder.runs()).unwrap();
    for (plan, why) in [
        (kernel, "another kernels.subject, programs.guest".to_owned()),
        (accel, "another accel, machines.arguments, machines.vms".to_owned()),
        (program, format!("another programs.{}", bench.path("program").display())),
    ] {
        let store = folder.open(&plan);
        assert_eq!(store.done(), 0, "{why}");
        drop(store);
        let loaded = load(&folder.out()).unwrap();
        assert!(loaded.records.is_empty() && loaded.elapsed_s == 0.0);
        assert_eq!(loaded.left_out, BTreeMap::from([(why, 4)]));
        assert_eq!(std::fs::read(folder.runs()).unwrap(), before, "nothing is lost");
    }
    assert_eq!(folder.open(&folder.plan).done(), 4, "the old plan finds its runs again");
}

#[test]
fn a_folder_names_the_program_that_measured_last() {
    let folder = Folder::new(Accel::Vt);
    let (first, second) = (record(&folder.plan, 0, DONE), record(&folder.plan, 1, DONE));
    let opened = |commit| Store::open(&folder.out(), &folder.experiment, &folder.plan, commit);
    let named = || load(&folder.out()).unwrap().machine.commit;
    opened("c1").unwrap().append(&first).unwrap();
    assert_eq!(named(), "c1");
    let mut store = opened("c2").unwrap();
    assert_eq!(named(), "c1", "it has measured nothing yet");
    store.append(&second).unwrap();
    assert_eq!(named(), "c2");
}

#[test]
fn a_run_is_found_under_another_number() {
    let folder = Folder::filled(Accel::Tcg);
    let renumbered = folder.plan.names.iter().map(|(run, names)| (run + 100, names.clone()));
    let plan = Plan { names: renumbered.collect(), ..folder.plan.clone() };
    assert_eq!(folder.open(&plan).done(), 4);
    let runs: Vec<u64> = load(&folder.out()).unwrap().records.iter().map(|r| r.run).collect();
    assert_eq!(runs, [100, 101, 102, 103]);
}

#[test]
fn lines_without_an_identity_are_reported_but_not_resumed() {
    let folder = Folder::filled(Accel::Tcg);
    let old = std::fs::read_to_string(folder.runs()).unwrap();
    let strip = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().retain(|key, _| key != "identity" && key != "setting");
        value.to_string() + "\n"
    };
    std::fs::write(folder.runs(), old.lines().map(strip).collect::<String>()).unwrap();
    let meta = folder.out().join("experiment.json");
    let mut value: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&meta).unwrap()).unwrap();
    value.as_object_mut().unwrap().remove("plan");
    std::fs::write(&meta, value.to_string()).unwrap();
    assert_eq!(load(&folder.out()).unwrap().records.len(), 4);
    assert_eq!(folder.open(&folder.plan).done(), 0);
    let loaded = load(&folder.out()).unwrap();
    let why = "recorded before runs had an identity".to_owned();
    assert_eq!((loaded.records.len(), loaded.left_out), (0, BTreeMap::from([(why, 4)])));
}

#[test]
fn only_an_incomplete_last_line_is_set_aside() {
    let folder = Folder::filled(Accel::Tcg);
    let whole = std::fs::read(folder.runs()).unwrap();
    // The cut is within a character of two bytes.
    let torn = [&whole[..], b"{\"run\": \"\xc3"].concat();
    std::fs::write(folder.runs(), &torn).unwrap();
    assert_eq!(load(&folder.out()).unwrap().records.len(), 4, "reading changes nothing");
    assert_eq!(std::fs::read(folder.runs()).unwrap(), torn);
    let store = folder.open(&folder.plan);
    assert_eq!(store.torn(), Some((10, folder.out().join("runs.jsonl.torn"))), "it says so");
    drop(store);
    let mut store = folder.open(&folder.plan);
    assert_eq!(store.torn(), None, "once");
    assert_eq!(std::fs::read(folder.runs()).unwrap(), whole);
    let aside = std::fs::read(folder.out().join("runs.jsonl.torn")).unwrap();
    assert_eq!(aside, b"{\"run\": \"\xc3\n");
    store.append(&record(&folder.plan, 0, failed())).unwrap();
    assert_eq!(load(&folder.out()).unwrap().records.len(), 5);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_and_stays_as_it_is() {
    let folder = Folder::filled(Accel::Tcg);
    let whole = std::fs::read_to_string(folder.runs()).unwrap();
    let open = || Store::open(&folder.out(), &folder.experiment, &folder.plan, "").map(drop);
    let damaged = whole.replacen("\"outcome\"", "\"outcom", 1) + "\u{fffd}";
    std::fs::write(folder.runs(), &damaged).unwrap();
    for error in [open().unwrap_err(), load(&folder.out()).map(drop).unwrap_err()] {
        assert!(error.to_string().contains("runs.jsonl:1: "), "{error}");
    }
    assert_eq!(std::fs::read_to_string(folder.runs()).unwrap(), damaged);
    // Root reads everything, so an unreadable file is a folder here.
    std::fs::remove_file(folder.runs()).unwrap();
    assert!(load(&folder.out()).unwrap_err().to_string().contains("runs.jsonl"));
    std::fs::create_dir(folder.runs()).unwrap();
    for error in [open().unwrap_err(), load(&folder.out()).map(drop).unwrap_err()] {
        assert!(error.to_string().contains("runs.jsonl"), "{error}");
    }
}

#[test]
fn results_in_virtual_time_are_taken_over_from_other_folders() {
    let (folder, other) = (Folder::new(Accel::Vt), Folder::filled(Accel::Vt));
    // The same program at the same place, as on another machine with the same files.
    let names = other.plan.names.clone();
    let plan = Plan { names, settings: other.plan.settings.clone(), ..folder.plan.clone() };
    let mut store = folder.open(&plan);
    let boot = store.next_boot();
    let own = record(&plan, 0, Outcome::Done { value: 2.0 });
    store.append(&RunRecord { boot, ..own }).unwrap();
    store.reuse(&other.out(), &plan).unwrap();
    assert_eq!(store.done(), 4);
    let records = load(&folder.out()).unwrap().records;
    let boots: Vec<u32> = records.iter().map(|record| record.boot).collect();
    assert_eq!((records.len(), boots), (4, vec![0, 1, 2, 3]));
    let copy = Folder::new(Accel::Vt);
    let mut taken = Store::open(&copy.out(), &copy.experiment, &plan, "ours").unwrap();
    taken.reuse(&other.out(), &plan).unwrap();
    taken.end(0.0, true).unwrap();
    assert_eq!(load(&copy.out()).unwrap().machine.commit, "", "that of who measured");
    let real = Folder::filled(Accel::Tcg);
    let copy = Folder::new(Accel::Tcg);
    let same = Plan { names: real.plan.names.clone(), ..copy.plan.clone() };
    let mut in_real_time = copy.open(&same);
    in_real_time.reuse(&real.out(), &same).unwrap();
    assert_eq!(in_real_time.done(), 0, "real time is measured");
    let missing = store.reuse(&folder.bench.path("none"), &plan).unwrap_err();
    assert!(missing.to_string().contains("none: not a folder with results"), "{missing}");
}

#[test]
fn selected_runs_with_a_result_are_not_carried_out_twice() {
    let refuses = |folder: &Folder, plan: &Plan| {
        let refused = refuse_results(&folder.out(), &folder.experiment.name, plan);
        refused.map_err(|error| error.to_string()).err()
    };
    let folder = Folder::new(Accel::Vt);
    assert_eq!(refuses(&folder, &folder.plan), None, "a new folder");
    let mut store = folder.open(&folder.plan);
    store.append(&record(&folder.plan, 1, failed())).unwrap();
    assert_eq!(refuses(&folder, &folder.plan), None, "it has failed");
    store.append(&record(&folder.plan, 0, DONE)).unwrap();
    let text = refuses(&folder, &folder.plan).unwrap();
    assert!(text.contains("name another folder with `--out`"), "{text}");
    let mut others = folder.plan.clone();
    others.select(super::super::Selection::Range(1, 3)).unwrap();
    assert_eq!(refuses(&folder, &others), None, "it is not among them");
    let real = Folder::filled(Accel::Tcg);
    assert_eq!(refuses(&real, &real.plan), None, "real time is measured once");
}

#[test]
fn a_fresh_folder_is_new_for_each_complete_check() {
    let folder = Folder::new(Accel::Tcg);
    let options = super::super::Options {
        out: folder.bench.path("check"),
        fresh: true,
        ..Default::default()
    };
    let next = || options.folder(&folder.experiment, &folder.plan).unwrap();
    let first = next();
    let mut store = Store::open(&first, &folder.experiment, &folder.plan, "").unwrap();
    store.end(1.0, false).unwrap();
    assert_eq!(next(), first, "an interrupted check is resumed");
    store.end(1.0, true).unwrap();
    assert_ne!(next(), first);
    let changed = folder.bench.plan(&folder.experiment, "k-2", Accel::Tcg);
    let of_changed = options.folder(&folder.experiment, &changed).unwrap();
    assert!(of_changed != first && of_changed != next());
}

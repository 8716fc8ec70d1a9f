//! Runs in virtual time: repeated bytes, the truth, and refused settings.

use std::process::{Command, Output};

use libtest_mimic::Failed;

use crate::bench::{self, Bench, Missing, UNSPIN, check, cvm_kernel, experiment, guest};

/// Checks for a guest and the QEMU with virtual pCPUs.
pub fn vt_guest() -> Missing {
    let named = std::env::var_os("UNSPIN_VT_QEMU").is_some();
    let show = || Command::new(&*UNSPIN).args(["lab", "qemu", "show"]).output();
    let is_built =
        || show().is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("(current)"));
    guest().or_else(|| {
        (!named && !is_built()).then(|| "needs the lab's QEMU: run `unspin lab qemu build`".into())
    })
}

/// Checks for the same and root.
pub fn vt_guest_and_root() -> Missing {
    vt_guest().or_else(bench::root)
}

/// Checks for the same and a C compiler.
pub fn vt_guest_and_compiler() -> Missing {
    let has_compiler = || Command::new("cc").arg("--version").output().is_ok();
    vt_guest().or_else(|| (!has_compiler()).then(|| "needs a C compiler: apt install gcc".into()))
}

fn twice(bench: &Bench) -> Output {
    bench.lab_run_with(&["--accel", "vt", "--twice"]).output().expect("start unspin")
}

/// Checks that two runs of a cell yield the same bytes, and that the truth adds up exactly.
pub fn same_bytes_twice() -> Result<(), Failed> {
    let neighbour = "[[topology.neighbour]]\nvcpus = 2\nmodel = \"greedy\"\n";
    let text = experiment(&["burn.toml"], "accel = \"vt\"\nkeep_recordings = true", neighbour);
    let burn = "timeout 0.5 sh -c 'while :; do :; done'; echo result 1";
    let bench = Bench::new(&text).workload("burn", burn, "");
    let output = twice(&bench);
    check(output.status.success(), "two runs with the same bytes", &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["label"]["accel"], "vt");
    assert_eq!(record["digest"].as_str().map(str::len), Some(64), "{record}");
    let truth = &record["truth"];
    let of = |key: &str| truth[key].as_f64().unwrap_or_default();
    let sum = of("on_s") + of("off_s") + of("idle_s");
    assert!((sum - 2.0 * of("window_s")).abs() < 1e-6, "on + off + idle = {sum}: {truth}");
    assert!(of("off_s") > 0.1, "the neighbour took some of it: {truth}");
    assert!(record["neighbours"][0]["on_s"].as_f64() > Some(0.5), "{record}");
    let digest = record["digest"].clone();
    std::fs::remove_dir_all(bench.path("out"))?;
    check(bench.run().status.success(), "a third run", &output)?;
    assert_eq!(bench.results()[0]["digest"], digest, "in another process");
    Ok(())
}

/// Checks that the injector takes a pCPU for exact times, and that a vCPU pinned to it is off as
/// long.
pub fn injected_times_are_exact() -> Result<(), Failed> {
    let injector = "pinned = true\n\
        injector = { pcpu = 1, lengths_us = [1000, 5000], gap_us = 10000, count = 10 }";
    let burn =
        "for i in 1 2; do timeout 0.4 sh -c 'while :; do :; done' & done; wait; echo result 1";
    let bench = Bench::new(&experiment(&["burn.toml"], "", injector)).workload("burn", burn, "");
    let output = bench.run();
    check(output.status.success(), "the run", &output)?;
    let found = &bench.results()[0]["truth"]["injected"];
    assert_eq!((&found["injected"], &found["missing"]), (&10.into(), &0.into()), "{found}");
    let pairs = found["pairs_us"].as_array().cloned().unwrap_or_default();
    assert!(pairs.len() >= 5, "most met a vCPU that was on: {found}");
    for pair in &pairs {
        let us: Vec<f64> = (0..3).filter_map(|i| pair[i].as_f64()).collect();
        assert!(us[0] == 1000.0 || us[0] == 5000.0, "a length that was asked for: {pair}");
        assert!((us[2] - us[0]).abs() <= 0.5, "off for as long, but for a quantum: {pair}");
    }
    Ok(())
}

/// Checks from inside a guest that clocks never go back, and that those of two vCPUs differ by at
/// most a quantum, even if vCPUs are off.
pub fn clocks_agree() -> Result<(), Failed> {
    const QUANTUM_NS: f64 = 500.0;
    let neighbour = "[[topology.neighbour]]\nvcpus = 2\nmodel = \"greedy\"\n";
    let text =
        experiment(&["clocks.toml"], "", neighbour).replacen("\nvcpus = 2", "\nvcpus = 4", 1);
    let bench = Bench::new(&text);
    let program = bench.path("clocks").display().to_string();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lab/guest/clocks.c");
    let output =
        Command::new("cc").args(["-O2", "-Wall", "-pthread", "-o", &program, source]).output()?;
    check(output.status.success(), "the program", &output)?;
    let figure = |name: &str| {
        format!("[[co_metric]]\nname = \"{name}\"\nread = {{ regex = '{name} (\\d+)' }}\n")
    };
    let figures = ["handovers", "back", "tsc_ns", "clock_ns"].map(figure).concat();
    let bench = bench.workload("clocks", "clocks", &figures).with_programs("clocks", &[&program]);
    let output = bench.run();
    check(output.status.success(), "the run", &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["value"], 4.0, "all vCPUs read: {record}");
    assert!(record["truth"]["off_s"].as_f64() > Some(0.01), "some were off: {record}");
    let of = |name: &str| record["co_metrics"][name].as_f64().unwrap_or(f64::NAN);
    assert!(of("handovers") > 1_000.0, "they read what others had read: {record}");
    assert_eq!(of("back"), 0.0, "{record}");
    assert!(of("tsc_ns") <= QUANTUM_NS && of("clock_ns") <= QUANTUM_NS, "{record}");
    Ok(())
}

/// Checks that the lab's QEMU refuses invalid options, and names them.
pub fn wrong_options() -> Result<(), Failed> {
    let show = Command::new(&*UNSPIN).args(["lab", "qemu", "show", "--json"]).output()?;
    let shown: serde_json::Value = serde_json::from_slice(&show.stdout)?;
    let named = std::env::var("UNSPIN_VT_QEMU").ok();
    let builds = shown["builds"].as_array().cloned().unwrap_or_default();
    let current = builds.iter().find(|build| build["current"] == true);
    let built = current.and_then(|build| build["program"].as_str()).map(str::to_owned);
    let qemu = named.or(built).expect("the lab's QEMU");
    let host = "virtual-host,id=host,pcpus=2";
    for (option, expected) in [
        ("virtual-host,id=host,pcpus=0", "pcpus=0: 1 to 96"),
        ("virtual-host,id=host,pcpus=97", "pcpus=97: 1 to 96"),
        (&*format!("{host},quantum=0"), "quantum=0: 1 to"),
        (&*format!("{host},prices=cheap"), "prices=cheap: not one of"),
        (&*format!("{host},scheduler=rr"), "scheduler=rr: not one of"),
        (&*format!("{host},unknown=1"), "'unknown'"),
        (&*format!("{host},record=/no/such/file"), "/no/such/file"),
    ] {
        // `timeout` ends a QEMU that accepts the option and runs.
        let output = Command::new("timeout")
            .args(["120", &qemu, "-machine", "q35", "-accel", "tcg,thread=single"])
            .args(["-icount", "shift=0,sleep=off", "-nodefaults", "-display", "none"])
            .args(["-object", option])
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let refused = output.status.code() == Some(1) && stderr.contains(expected);
        check(refused, &format!("`{option}` is refused by name"), &output)?;
    }
    Ok(())
}

/// Checks that the guest takes over the pCPUs of sleeping neighbours at once. The lab also checks
/// the record: time goes on for each vCPU, and no pCPU idles while a vCPU waits.
pub fn neighbours_sleep() -> Result<(), Failed> {
    let neighbours = "[[topology.neighbour]]\nvcpus = 2\nmodel = \"periodic\"\n\
        work_us = 3000\nsleep_us = 5000\n\
        [[topology.neighbour]]\nvcpus = 2\nmodel = \"burst\"\nwork_us = 20000\nsleep_us = 20000\n";
    let more = "accel = \"vt\"\nvt = { instructions = 1, regime = \"ple\" }";
    let text = experiment(&["hackbench-pipe-threads"], more, neighbours);
    let bench = Bench::new(&text.replace("vcpus = 2\npcpus", "vcpus = 4\npcpus"));
    let output = bench.run();
    check(output.status.success(), "the run", &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["outcome"], "done", "{record}");
    Ok(())
}

/// Checks that the kernel gives its count to a host that asks, and that the host sees which
/// preemptions hit critical sections.
pub fn critical_sections_are_counted() -> Result<(), Failed> {
    let neighbour = "[[topology.neighbour]]\nvcpus = 4\nmodel = \"greedy\"\n";
    let asks = "accel = \"vt\"\nvt = { critical = \"count\" }";
    let bench = Bench::new(&experiment(&["hackbench-pipe-threads"], asks, neighbour));
    let output = bench.run();
    check(output.status.success(), "the run", &output)?;
    let record = &bench.results()[0];
    let of = |name: &str| record["co_metrics"][name].as_f64().unwrap_or(-1.0);
    let (all, hit_percent) = (of("preemptions"), of("critical_preemption_percent"));
    assert!(all > 10.0, "the neighbour preempts it: {record}");
    assert!(hit_percent > 0.0 && hit_percent < 100.0, "some, not all: {record}");
    Ok(())
}

/// Checks that a PV spinlock's waiters halt if no PAUSE exits end their loops. The vCPU that kicks
/// a waiter yields to it: KVM yields at a kick, and the host records the outcome.
pub fn kicked_vcpus_are_yielded_to() -> Result<(), Failed> {
    let more = "accel = \"vt\"\nvt = { regime = \"tdx-like\" }";
    let text = experiment(&["hackbench-pipe-threads"], more, "");
    let bench = Bench::new(&text.replace("vcpus = 2\npcpus", "vcpus = 4\npcpus"));
    let output = bench.run();
    check(output.status.success(), "the run", &output)?;
    let record = &bench.results()[0];
    let of = |name: &str| record["kvm"][name].as_u64().unwrap_or(0);
    assert!(of("yield:yielded") > 10, "kicked vCPUs wait for their pCPUs: {record}");
    assert!(of("yield:yielded") < of("exit:hypercall"), "not at every hypercall: {record}");
    Ok(())
}

/// Checks that the recorder sees the first waiter of a native queued spinlock, and that its holder
/// was off. This waiter spins outside of the queue, where the kernel has no tracepoint.
pub fn first_waiters_are_seen() -> Result<(), Failed> {
    let record = "seconds = 2\n[[command]]\nname = \"record\"\nsession = \"/tmp/s\"\n\
        argv = [\"unspin\", \"record\", \"--out\", \"/tmp/s\", \"--beat\", \"500\"]";
    let injector = "pinned = true\n\
        injector = { pcpu = 1, lengths_us = [5000], gap_us = 40000, count = 100 }";
    let text = experiment(&["hold-spinlock"], record, injector).replace("\"stock\"", "\"record\"");
    let bench = Bench::new(&text);
    let output = bench.run();
    check(output.status.success(), "the run", &output)?;
    let sensed = &bench.results()[0]["truth"]["sensed"];
    let causes = sensed["causes"].as_array().cloned().unwrap_or_default();
    let right = causes.iter().find(|c| c["real"] == "holder-off" && c["told"] == "holder-off");
    let waits = right.and_then(|cause| cause["waits"].as_u64());
    assert!(waits > Some(5), "waits for a holder that was off: {sensed}");
    Ok(())
}

/// Checks a guest that detects SEV-ES. Two runs yield the same bytes, and the label names the
/// platform.
pub fn confidential_guest() -> Result<(), Failed> {
    let cvm = "accel = \"vt\"\nvt = { cvm = \"sev-es-emulated\" }";
    let active = "Memory Encryption Features active: AMD SEV SEV-ES";
    let look = format!("dmesg | grep -q '{active}' && echo result 1");
    let text = experiment(&["look.toml"], cvm, "");
    let bench = Bench::new(&text).workload("look", &look, "");
    let output = twice(&bench);
    check(output.status.success(), "two runs with the same bytes", &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["label"]["cvm"], "emulated SEV-ES", "{record}");
    assert_eq!(record["label"]["prices"], "sev-es", "{record}");
    Ok(())
}

/// Checks for the requirements of a guest that answers reflected pause loops.
pub fn vt_answering_guest() -> Missing {
    vt_guest().or_else(cvm_kernel)
}

/// Checks that a spinlock's waiter names the vCPU to which its holder is pinned. Two runs yield the
/// same bytes.
pub fn reflected_pause_loops_name_the_holder() -> Result<(), Failed> {
    let asks = "accel = \"vt\"\nseconds = 1\n\
        vt = { cvm = \"sev-es-emulated\", regime = \"ple\", vnae = \"both\" }";
    let injector = "pinned = true\n\
        injector = { pcpu = 1, lengths_us = [3000, 5000], gap_us = 40000, count = 400 }";
    let text = experiment(&["hold-spinlock"], asks, injector)
        .replace("debian-cloud", "lab-cvm")
        .replace("vcpus = 2\npcpus = 2", "vcpus = 4\npcpus = 4");
    let bench = Bench::new(&text);
    let output = twice(&bench);
    check(output.status.success(), "two runs with the same bytes", &output)?;
    let record = &bench.results()[0];
    let of = |name: &str| record["kvm"][name].as_f64().unwrap_or(0.0);
    let waiters = ["0", "1", "2", "3", "nobody"].map(|name| of(&format!("holder:0:{name}")));
    let all: f64 = waiters.iter().sum();
    assert!(all >= 50.0, "vCPU 0 spins while the holder's vCPU is away: {record:#}");
    assert!(waiters[1] >= 0.95 * all, "it names vCPU 1: {waiters:?}");
    assert!(of("reflections") >= all, "each answer has its reflection: {record:#}");
    Ok(())
}

/// Checks that a real neighbour is refused, with the alternative.
pub fn real_neighbours_are_refused() -> Result<(), Failed> {
    let neighbour = "[[topology.neighbour]]\nvcpus = 2\nworkload = \"greedy\"\n";
    let bench = Bench::new(&experiment(&["stress-ng-rename"], "", neighbour));
    let output = bench.run();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let says = stderr.contains("x.toml:") && stderr.contains("model = \"greedy\"");
    check(output.status.code() == Some(2) && says, "it says what to write", &output)
}

//! Every shipped workload parses, and reads the real output of its program.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_file_is_compiled_in_under_its_own_name() {
    let files: BTreeSet<String> = fs::read_dir(repository().join("workloads"))
        .unwrap()
        .filter_map(|entry| {
            Some(entry.unwrap().file_name().to_str()?.strip_suffix(".toml")?.into())
        })
        .collect();
    let names: BTreeSet<String> = builtin_names().map(String::from).collect();
    assert_eq!(names, files);
    for name in builtin_names() {
        assert_eq!(builtin(name).unwrap().name, name);
    }
    assert!(builtin("nonesuch").is_none());
}

#[test]
fn programs_are_packaged_or_our_own() {
    for workload in builtin_names().filter_map(builtin) {
        let own = ["unspin", "spinbench", "holdbench", "microbench", "phasebench"];
        let foreign = workload.programs.iter().any(|program| !own.contains(&program.as_str()));
        assert_eq!(foreign, !workload.packages.is_empty(), "{}", workload.name);
        let argv = workload.argv(4);
        let known = workload.programs.contains(&argv[0]) || ["sh", "sleep"].contains(&&*argv[0]);
        assert!(known, "{}: `{}` is not in the guest", workload.name, argv[0]);
    }
}

/// Captured output of each program and the value in it. The programs are Debian 12's; some did a
/// different amount of work than the shipped command.
/// Workloads that are timed from outside have no output to read.
const GOLDEN: &[(&str, f64)] = &[
    ("changing", 20945.2),
    ("cyclictest", 539.0),
    ("cyclictest-batch", 1108.0),
    ("dbench", 741.925),
    ("fio", 210941.274054),
    ("fio-lasting", 210941.274054),
    ("greedy", 256558.8644040127),
    ("greedy-at-times", 4938722.833475941),
    ("half-loaded", 1208.31),
    ("hackbench-lasting", 1.339),
    ("hackbench-pipe-processes", 0.231),
    ("hackbench-pipe-threads", 0.269),
    ("hackbench-socket-processes", 0.561),
    ("hackbench-socket-threads", 0.370),
    ("hold-futex", 43.01441917335044),
    ("hold-ipi", 779.9207345666725),
    ("hold-mutex", 39.53908689367827),
    ("hold-preempted", 190.4619910434872),
    ("hold-spinlock", 674.438697646721),
    ("iperf3", 15.383421419063342),
    ("microbench", 2223.3),
    ("phases", 260378.0575115692),
    ("redis", 79681.28),
    ("spinbench-mcs", 1401.8171565909342),
    ("spinbench-none", 5145438.170958426),
    ("spinbench-pthread-mutex", 320376.8773179817),
    ("spinbench-pthread-spin", 135611.1831034628),
    ("spinbench-tas", 131324.89791121436),
    ("spinbench-ticket", 1553.5278533219946),
    ("spinbench-sections", 4178.15295610422),
    ("stress-ng-dentry", 21503.14),
    ("stress-ng-flock", 1084642.46),
    ("stress-ng-futex", 58265.04),
    ("stress-ng-lockofd", 1709073.18),
    ("stress-ng-madvise", 38.62),
    ("stress-ng-mmapfork", 0.52),
    ("stress-ng-mutex", 476149.36),
    ("stress-ng-rename", 77099.34),
    ("stress-ng-switch", 235419.09),
    ("stress-ng-tlb-shootdown", 2662.99),
    ("sysbench-cpu", 4143.15),
    ("sysbench-cpu-lasting", 4143.15),
    ("sysbench-mutex", 0.1155),
    ("sysbench-threads", 0.6789),
    ("vips-traced", 0.0901773),
];

fn golden(name: &str) -> String {
    let file = repository().join(format!("crates/lab/src/workload/golden/{name}.txt"));
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn real_output_is_read_with_every_co_metric() {
    for &(name, value) in GOLDEN {
        let reading = builtin(name).unwrap().read(&golden(name), 9.0).unwrap();
        assert!((reading.value / value - 1.0).abs() < 1e-9, "{name}: {}", reading.value);
        assert!(reading.missing.is_empty(), "{name}: {:?}", reading.missing);
    }
}

#[test]
fn workloads_without_golden_output_are_timed() {
    for name in builtin_names().filter(|name| GOLDEN.iter().all(|(golden, _)| golden != name)) {
        assert_eq!(builtin(name).unwrap().read("", 1.5).unwrap().value, 1.5, "{name}");
    }
}

#[test]
fn the_output_of_a_program_that_failed_is_no_result() {
    for &(name, _) in GOLDEN {
        let workload = builtin(name).unwrap();
        for output in
            ["", "Killed\n", "error: 12 of 34 failed, time 5\n", "{\"error\": \"refused\"}\n"]
        {
            assert!(workload.read(output, 1.0).is_err(), "{name} read a number from {output:?}");
        }
    }
}

#[test]
fn columns_of_co_metrics_are_the_right_ones() {
    let rename =
        builtin("stress-ng-rename").unwrap().read(&golden("stress-ng-rename"), 9.0).unwrap();
    assert_eq!(rename.co_metrics["user_s"], 0.17);
    assert_eq!(rename.co_metrics["system_s"], 2.49);
    let fio = builtin("fio").unwrap().read(&golden("fio"), 9.0).unwrap();
    assert!((fio.co_metrics["latency_p99_us"] - 6.56).abs() < 1e-9);
    let cpu = builtin("sysbench-cpu").unwrap().read(&golden("sysbench-cpu"), 9.0).unwrap();
    assert_eq!(cpu.co_metrics["latency_p95_ms"], 8.28);
    assert_eq!(cpu.co_metrics["latency_max_ms"], 128.27);
}

#[test]
fn a_traced_run_has_its_latencies() {
    let reading = builtin("vips-traced").unwrap().read(&golden("vips-traced"), 9.0).unwrap();
    let count = |name: &str| reading.latencies[name].iter().map(|length| length.1).sum::<u64>();
    assert_eq!((count("wake_to_run_us"), count("spin_us")), (317, 35));
}

/// The prefix of stress-ng's lines and its last columns depend on the version: `info` up to 0.14,
/// `metrc` since then. Older versions and --metrics-brief print fewer columns.
#[test]
fn stress_ng_is_read_in_other_versions_too() {
    let workload = builtin("stress-ng-rename").unwrap();
    for prefix in
        ["stress-ng: info:  [42]", "stress-ng: metrc: [42]", "11:22:33.44 stress-ng: metrc: [42]"]
    {
        for rest in ["", "        22.66          2672"] {
            let line = format!(
                "{prefix} rename    151416      1.00      0.12      1.70    151156.19     83369.21{rest}\n"
            );
            assert_eq!(workload.read(&line, 1.0).unwrap().value, 151_156.19, "{line}");
        }
    }
}

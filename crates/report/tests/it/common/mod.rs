//! A made-up summary with everything that a real one can have: ten workloads, three topologies,
//! three schedulers, neighbours, runs that did not finish.

// Not every test needs all of this module.
#![allow(dead_code)]

use std::collections::BTreeMap;

use unspin_model::metric::Better;
use unspin_model::summary::{
    CarryOver, CellSummary, Comparison, ComparisonKind, Estimate, ExperimentInfo, Machine, Summary,
    TruthError, TruthErrorAt, Verdict,
};
use unspin_model::{Accel, Cell, FailureKind, Label, Metric, Source};

/// A generator of figures that are the same each time.
struct Noise(u64);

impl Noise {
    /// Returns a factor around 1 with about the given spread.
    fn factor(&mut self, spread: f64) -> f64 {
        let sum: f64 = (0..4).map(|_| self.unit()).sum();
        (1.0 + spread * (sum - 2.0)).max(0.05)
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }
}

/// Name, title, metric, unit, direction, value at 1:1, speed at 2:1 and 4:1 relative to that value,
/// gain of the oracle at 2:1 and 4:1.
type Shape =
    (&'static str, &'static str, &'static str, &'static str, Better, f64, [f64; 2], [f64; 2]);

const H: Better = Better::Higher;
const L: Better = Better::Lower;
const SHAPES: [Shape; 10] = [
    (
        "rename",
        "stress-ng rename, 8 workers: directory locks",
        "renames",
        "ops/s",
        H,
        57_065.0,
        [0.40, 0.21],
        [2.24, 3.9],
    ),
    (
        "dentry",
        "stress-ng dentry: the dentry cache",
        "dentries",
        "ops/s",
        H,
        15_300.0,
        [0.95, 0.8],
        [1.01, 1.04],
    ),
    (
        "madvise",
        "stress-ng madvise: mmap_lock and TLB shootdowns",
        "calls",
        "ops/s",
        H,
        9.6,
        [0.63, 0.4],
        [1.54, 2.1],
    ),
    (
        "lockofd",
        "stress-ng lockofd: file locks",
        "locks",
        "ops/s",
        H,
        598_000.0,
        [0.86, 0.7],
        [1.17, 1.3],
    ),
    (
        "hackbench",
        "hackbench over pipes with threads",
        "time",
        "s",
        L,
        0.28,
        [0.3, 0.05],
        [1.9, 12.0],
    ),
    (
        "dbench",
        "dbench, 8 clients on tmpfs",
        "throughput",
        "MB/s",
        H,
        312.0,
        [0.77, 0.52],
        [1.25, 1.6],
    ),
    (
        "sysbench-cpu",
        "sysbench cpu: prime numbers, no locks at all",
        "events",
        "events/s",
        H,
        1820.0,
        [0.99, 0.98],
        [0.51, 0.52],
    ),
    ("pbzip2", "pbzip2 of 64 MiB", "time", "s", L, 6.1, [0.96, 0.93], [0.72, 0.7]),
    (
        "spin-ticket",
        "spinbench: a ticket lock in user space",
        "locks",
        "ops/s",
        H,
        578_000.0,
        [0.02, 0.0034],
        [44.0, 250.0],
    ),
    ("vips", "vips: image pipeline", "time", "s", L, 4.4, [0.94, 0.9], [1.0, 0.99]),
];

pub const TOPOLOGIES: [&str; 3] = ["1:1", "2:1", "4:1"];
const SCHEDULERS: [&str; 3] = ["stock", "hold:2", "scx_bpfland"];
const N: u32 = 10;

fn cell(topology: &str, scheduler: &str, workload: &str) -> Cell {
    Cell {
        topology: topology.into(),
        kernel: "debian-cloud".into(),
        boot_params: String::new(),
        scheduler: scheduler.into(),
        workload: workload.into(),
    }
}

fn speed(shape: &Shape, topology: usize, scheduler: usize) -> f64 {
    let loss = if topology == 0 { 1.0 } else { shape.6[topology - 1] };
    let gain = if topology == 0 { 1.0 } else { shape.7[topology - 1] };
    loss * [1.0, gain, 1.0 + 0.06 * (topology as f64 - 0.7)][scheduler]
}

fn values(
    shape: &Shape,
    topology: usize,
    scheduler: usize,
    noise: &mut Noise,
) -> Vec<(u32, Option<f64>)> {
    let (_, _, _, _, better, base, ..) = *shape;
    let speed = speed(shape, topology, scheduler);
    let dies = shape.0 == "hackbench" && topology == 2;
    let unfinished = if dies { [6, 0, 3][scheduler] } else { 0 };
    (0..N)
        .map(|block| {
            let factor = noise.factor(0.04 + 0.04 * topology as f64);
            let value = match better {
                Better::Higher => base * speed * factor,
                Better::Lower => base / (speed * factor),
            };
            (block, (block >= unfinished).then_some(value))
        })
        .collect()
}

fn median(values: &[(u32, Option<f64>)], better: Better) -> Option<Estimate> {
    let worst = if better == L { f64::INFINITY } else { 0.0 };
    let mut sorted: Vec<f64> = values.iter().map(|(_, v)| v.unwrap_or(worst)).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = (sorted[4] + sorted[5]) / 2.0;
    middle.is_finite().then(|| Estimate { value: middle, lo: sorted[2], hi: sorted[7] })
}

fn cell_summary(
    shape: &Shape,
    topology: usize,
    scheduler: usize,
    noise: &mut Noise,
) -> CellSummary {
    let (name, _, metric, unit, better, ..) = *shape;
    let values = values(shape, topology, scheduler, noise);
    let off = [0.01, 0.49, 0.72][topology] * [1.0, 0.08, 1.0][scheduler];
    CellSummary {
        cell: cell(TOPOLOGIES[topology], SCHEDULERS[scheduler], name),
        labels: Vec::new(),
        metric: Metric { name: metric.into(), unit: unit.into(), better },
        n: N,
        unfinished: values.iter().filter(|(_, v)| v.is_none()).count() as u32,
        failed: u32::from(name == "dbench" && topology == 2),
        median: median(&values, better),
        values,
        co_metrics: BTreeMap::from([
            ("p99_latency_us".into(), 120.0 * noise.factor(0.5)),
            ("user_s".into(), 3.2),
        ]),
        co_values: BTreeMap::new(),
        latencies: BTreeMap::new(),
        off_share: Some(off * noise.factor(0.02)),
        kvm_per_s: if topology == 2 {
            BTreeMap::from([
                ("directed_yield_attempted".into(), 4210.0),
                ("directed_yield_successful".into(), 1733.0),
                ("exit:pause".into(), 18_211.0),
                ("exit:hlt".into(), 931.0),
            ])
        } else {
            BTreeMap::new()
        },
        neighbours: BTreeMap::new(),
        fairness: (topology == 2).then_some(0.94),
        sensed: None,
        sensed_runs: Vec::new(),
    }
}

fn verdict(ratio: &Option<Estimate>) -> Verdict {
    match ratio {
        None => Verdict::Better,
        Some(r) if r.lo > 1.0 && r.value > 1.05 => Verdict::Better,
        Some(r) if r.hi < 1.0 && r.value < 0.95 => Verdict::Worse,
        Some(_) => Verdict::NoDifferenceShown,
    }
}

fn comparison(kind: ComparisonKind, subject: &CellSummary, baseline: &CellSummary) -> Comparison {
    let speed = |c: &CellSummary| c.metric.speed(c.median.map(|m| m.value));
    let value = speed(subject) / speed(baseline);
    let width = 0.05 + 0.1 * (1.0 - value.min(1.0 / value)).abs();
    let estimate = Estimate { value, lo: value * (1.0 - width), hi: value * (1.0 + width) };
    let ratio = (speed(baseline) > 0.0).then_some(estimate);
    let verdict = verdict(&ratio);
    let p = if verdict == Verdict::NoDifferenceShown { 0.31 } else { 0.00001 };
    let neighbours = match (kind, subject.cell.topology.as_str()) {
        (ComparisonKind::Topology, _) | (_, "1:1" | "2:1") => BTreeMap::new(),
        _ => BTreeMap::from([("greedy".into(), 0.93), ("quiet".into(), 1.04)]),
    };
    Comparison {
        kind,
        subject: subject.cell.clone(),
        baseline: baseline.cell.clone(),
        ratio,
        subject_finished: speed(subject) > 0.0,
        p,
        p_adjusted: (p * 70.0).min(1.0),
        verdict,
        neighbours,
        choice: None,
    }
}

fn comparisons(cells: &[CellSummary]) -> Vec<Comparison> {
    let find = |topology: &str, scheduler: &str, workload: &str| {
        cells.iter().find(|c| c.cell == cell(topology, scheduler, workload)).unwrap()
    };
    let mut out = Vec::new();
    for (name, ..) in SHAPES {
        for topology in TOPOLOGIES {
            let stock = find(topology, "stock", name);
            for scheduler in &SCHEDULERS[1..] {
                out.push(comparison(
                    ComparisonKind::Scheduler,
                    find(topology, scheduler, name),
                    stock,
                ));
            }
            if topology != "1:1" {
                out.push(comparison(ComparisonKind::Topology, stock, find("1:1", "stock", name)));
            }
            let hold = find(topology, "hold:2", name);
            let best = if name == "sysbench-cpu" || name == "pbzip2" { stock } else { hold };
            let mut oracle = comparison(ComparisonKind::Oracle, best, stock);
            oracle.choice = Some(best.cell.scheduler.clone());
            oracle.subject.scheduler = "oracle".into();
            out.push(oracle);
        }
    }
    out
}

/// Returns the summary.
pub fn summary() -> Summary {
    let mut noise = Noise(7);
    let mut cells = Vec::new();
    for topology in 0..TOPOLOGIES.len() {
        for scheduler in 0..SCHEDULERS.len() {
            cells.extend(SHAPES.iter().map(|s| cell_summary(s, topology, scheduler, &mut noise)));
        }
    }
    Summary {
        format: 1,
        experiment: experiment(),
        machine: machine(),
        labels: vec![label()],
        planned: 900,
        done: 899,
        elapsed_s: 4_920.0,
        comparisons: comparisons(&cells),
        cells,
        failures: BTreeMap::from([(FailureKind::Int3Oops, 3), (FailureKind::GuestHang, 1)]),
        retries: 3,
        carry_over: SHAPES.iter().enumerate().map(|(i, s)| carry_over(s.0, i)).collect(),
        boot_s: BTreeMap::from([
            ("1:1".into(), Estimate { value: 4.12, lo: 4.05, hi: 4.31 }),
            ("2:1".into(), Estimate { value: 5.21, lo: 5.1, hi: 5.4 }),
            ("4:1".into(), Estimate { value: 7.7, lo: 7.4, hi: 8.3 }),
        ]),
        boots: BTreeMap::from(["1:1", "2:1", "4:1"].map(|name| (name.to_owned(), u64::from(N)))),
        lab_cpu_share: Some(Estimate { value: 0.004, lo: 0.0031, hi: 0.0072 }),
        truth: Some(truth()),
    }
}

/// Returns the same with only two workloads: one with unfinished runs, one without.
pub fn few() -> Summary {
    let mut summary = summary();
    let kept = |cell: &Cell| cell.workload == "rename" || cell.workload == "hackbench";
    summary.cells.retain(|c| kept(&c.cell));
    summary.comparisons.retain(|c| kept(&c.subject));
    summary
}

fn experiment() -> ExperimentInfo {
    ExperimentInfo {
        name: "overcommit-curve".into(),
        title: "What overcommit costs a stock guest".into(),
        about: "A guest with as many vCPUs as pCPUs against the same work at 2:1 and 4:1: how much does stock lose, and how much of it would the best static choice get back?".into(),
        repeats: N,
        seed: 1,
        baseline_scheduler: "stock".into(),
        baseline_topology: Some("1:1".into()),
        workloads: SHAPES.iter().map(|s| (s.0.to_string(), s.1.to_string())).collect(),
        smallest_effect: 0.05,
    }
}

fn machine() -> Machine {
    Machine {
        cpu: "Intel(R) Xeon(R) Processor @ 2.60GHz".into(),
        cpus: 2,
        memory_mib: 23_987,
        kernel: "6.1.0-37-amd64".into(),
        distribution: "Debian GNU/Linux 12 (bookworm)".into(),
        qemu: "7.2.17".into(),
        unspin: "0.1.0".into(),
        commit: "c215c68".into(),
    }
}

fn label() -> Label {
    Label {
        source: Source::Lab,
        accel: Some(Accel::Tcg),
        nested: false,
        kernel: "6.18.5+deb12-cloud-amd64".into(),
        host: "Intel(R) Xeon(R) Processor @ 2.60GHz, 6.1.0-37-amd64".into(),
        prices: None,
        cvm: None,
    }
}

fn carry_over(workload: &str, index: usize) -> CarryOver {
    let rank_correlation = [0.04, -0.11, 0.02, 0.19, -0.07, 0.01, 0.08, -0.02, 0.12, -0.05][index];
    CarryOver {
        workload: workload.into(),
        rank_correlation,
        p: 0.9 - 4.0 * f64::abs(rank_correlation),
        n: 90,
    }
}

fn truth() -> TruthError {
    let at = |length_ms, median_us, max_us, beyond| TruthErrorAt {
        length_ms,
        n: 200,
        median_us,
        max_us,
        beyond,
    };
    TruthError {
        injected: 800,
        missing: 0,
        by_length: vec![
            at(0.5, 6.2, 41.0, 0.0),
            at(1.0, 6.8, 55.0, 0.0),
            at(3.0, 7.1, 88.0, 0.0),
            at(10.0, 9.3, 130.0, 0.0),
        ],
    }
}

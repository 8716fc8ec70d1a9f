//! Synthetic experiments of known content.

mod cells;
mod checks;
mod comparisons;
mod latencies;
mod measured;
mod oracle;

use unspin_model::summary::{Comparison, ComparisonKind, ExperimentInfo, Machine};
use unspin_model::{
    Accel, Better, Cell, Claim, ClaimSpec, FailureKind, Label, Metric, Outcome, RunRecord, Source,
    Summary,
};

use crate::evaluate::{NotMeasured, Origin, evaluate};

fn info() -> ExperimentInfo {
    ExperimentInfo {
        name: "synthetic".into(),
        seed: 7,
        baseline_scheduler: "stock".into(),
        smallest_effect: 0.03,
        ..ExperimentInfo::default()
    }
}

fn summary_of(records: &[RunRecord]) -> Summary {
    super::summarize(info(), Machine::default(), records.len() as u64, 1.0, records)
}

/// What the runs give of specs, where no more cells were planned than have runs.
fn evaluated(specs: &[ClaimSpec], summary: &Summary) -> (Vec<Claim>, Vec<NotMeasured>) {
    let planned = summary.cells.iter().map(|cell| cell.cell.clone()).collect();
    evaluate(specs, summary, &planned, &Origin::default()).unwrap()
}

fn claims_of(specs: &[ClaimSpec], summary: &Summary) -> Vec<Claim> {
    evaluated(specs, summary).0
}

fn cell(scheduler: &str) -> Cell {
    Cell {
        topology: "2:1".into(),
        kernel: "lab".into(),
        boot_params: String::new(),
        scheduler: scheduler.into(),
        workload: "rename".into(),
    }
}

fn metric(better: Better) -> Metric {
    Metric { name: "m".into(), unit: "u".into(), better }
}

fn label() -> Label {
    let (kernel, host) = ("6.12".into(), "host".into());
    Label {
        source: Source::Lab,
        accel: Some(Accel::Tcg),
        nested: false,
        kernel,
        host,
        prices: None,
        cvm: None,
    }
}

/// Returns the run of a cell in a block, first attempt; `None` did not finish. Run numbers combine
/// block and cell, so that they differ.
fn run(cell: Cell, better: Better, block: u32, value: Option<f64>) -> RunRecord {
    let of_cell: u64 = cell.to_string().bytes().fold(0, |h, b| (h * 31 + u64::from(b)) % 1_000_003);
    let outcome = match value {
        Some(value) => Outcome::Done { value },
        None => Outcome::DidNotFinish { limit_s: 90.0 },
    };
    RunRecord {
        run: u64::from(block) * 1_000_003 + of_cell,
        block,
        boot: block,
        position: 0,
        attempt: 1,
        cell,
        metric: metric(better),
        outcome,
        co_metrics: Default::default(),
        latencies: Default::default(),
        neighbours: Vec::new(),
        truth: None,
        kvm: Default::default(),
        elapsed_s: 2.0,
        boot_s: 5.0,
        lab_cpu_share: 0.01,
        spinlock: String::new(),
        digest: None,
        started: String::new(),
        label: label(),
        identity: None,
        setting: None,
    }
}

/// Returns a cell's runs in blocks 0, 1, 2, ...; 0 did not finish.
fn runs(cell: Cell, better: Better, values: &[f64]) -> Vec<RunRecord> {
    let value = |value: f64| (value > 0.0).then_some(value);
    values.iter().zip(0..).map(|(&v, block)| run(cell.clone(), better, block, value(v))).collect()
}

fn failed(mut record: RunRecord, kind: FailureKind) -> RunRecord {
    record.outcome = Outcome::Failed { kind, detail: String::new() };
    record
}

fn of_kind(summary: &Summary, kind: ComparisonKind) -> Vec<&Comparison> {
    summary.comparisons.iter().filter(|c| c.kind == kind).collect()
}

/// Returns ten values around `centre`, within 2 %.
fn around(centre: f64) -> [f64; 10] {
    [0.98, 1.01, 1.0, 0.99, 1.02, 1.005, 0.995, 1.015, 0.985, 1.0].map(|f| f * centre)
}

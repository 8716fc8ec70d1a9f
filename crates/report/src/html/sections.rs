//! The page's sections on results: the oracle, the neighbours, each workload.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use unspin_model::summary::{CellSummary, Comparison, Summary};

use super::context::{Figure, Ratio};
use super::plots;
use crate::view::{self, Place, Workload};
use crate::{format, rows};

/// The oracle of a workload in a place.
#[derive(Serialize)]
pub struct OracleRow {
    pub workload: String,
    pub id: String,
    pub place: String,
    pub baseline: String,
    pub choice: String,
    pub ratio: Ratio,
}

/// Gain of the subject, with the ratios of its neighbours.
#[derive(Serialize)]
pub struct NeighbourRow {
    pub workload: String,
    pub place: String,
    pub subject: String,
    pub ratio: Ratio,
    pub neighbours: Vec<NeighbourRatio>,
}

/// Ratio of a neighbour.
#[derive(Serialize)]
pub struct NeighbourRatio {
    pub vm: String,
    pub ratio: String,
    pub loses: bool,
}

/// All results of a workload.
#[derive(Serialize)]
pub struct WorkloadSection {
    pub id: String,
    pub name: String,
    pub about: String,
    pub metric: String,
    pub unit: String,
    pub svg: String,
    pub latencies: Vec<Figure>,
    pub cells: Vec<CellRow>,
    pub has_off_share: bool,
    pub has_fairness: bool,
    pub comparisons: Vec<ComparisonRow>,
    pub co_metrics: Matrix,
    pub kvm: Matrix,
}

/// Figures of a cell.
#[derive(Serialize)]
pub struct CellRow {
    pub place: String,
    pub scheduler: String,
    pub n: u32,
    pub median: String,
    pub interval: String,
    pub note: String,
    pub off_share: String,
    pub fairness: String,
}

/// Figures of a comparison.
#[derive(Serialize)]
pub struct ComparisonRow {
    pub place: String,
    pub subject: String,
    pub against: String,
    pub ratio: Ratio,
}

/// Figures by name: a row for each name, a column for each cell.
#[derive(Serialize)]
pub struct Matrix {
    pub columns: Vec<String>,
    pub rows: Vec<(String, Vec<String>)>,
}

/// Returns the id of a workload's section. The workload's name could be any text, so the id is a
/// number.
fn id(index: usize) -> String {
    format!("w{}", index + 1)
}

pub fn oracle(summary: &Summary, workloads: &[Workload<'_>]) -> Vec<OracleRow> {
    let mut out = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        for place in &workload.places {
            let baseline = place.cell(&summary.experiment.baseline_scheduler);
            out.extend(place.oracle().map(|comparison| OracleRow {
                workload: workload.name.into(),
                id: id(index),
                place: place.name.clone(),
                baseline: baseline.map(|c| median(c, &workload.metric.unit)).unwrap_or_default(),
                choice: comparison.choice.clone().unwrap_or_default(),
                ratio: Ratio::of(comparison),
            }));
        }
    }
    out
}

fn median(cell: &CellSummary, unit: &str) -> String {
    match &cell.median {
        Some(median) => format!("{} {unit}", format::number(median.value)),
        None => "did not finish".into(),
    }
}

pub fn neighbours(workloads: &[Workload<'_>]) -> Vec<NeighbourRow> {
    let places = workloads.iter().flat_map(|workload| &workload.places);
    let judged = |place: &Place<'_>| {
        let all = place.oracle().into_iter().chain(place.schedulers());
        all.filter(|c| !c.neighbours.is_empty())
            .map(|c| neighbour_row(place, c))
            .collect::<Vec<_>>()
    };
    places.flat_map(judged).collect()
}

fn neighbour_row(place: &Place<'_>, comparison: &Comparison) -> NeighbourRow {
    NeighbourRow {
        workload: comparison.subject.workload.clone(),
        place: place.name.clone(),
        subject: view::subject(comparison),
        ratio: Ratio::of(comparison),
        neighbours: comparison.neighbours.iter().map(|(vm, r)| neighbour_ratio(vm, *r)).collect(),
    }
}

fn neighbour_ratio(vm: &str, ratio: f64) -> NeighbourRatio {
    let text = format!("{}x", format::ratio_number(ratio));
    NeighbourRatio { vm: vm.into(), ratio: text, loses: ratio < 1.0 }
}

pub fn workloads(summary: &Summary, workloads: &[Workload<'_>]) -> Vec<WorkloadSection> {
    workloads.iter().enumerate().map(|(index, w)| workload(summary, index, w)).collect()
}

fn workload(summary: &Summary, index: usize, workload: &Workload<'_>) -> WorkloadSection {
    let cells: Vec<_> = flat(workload, |place| place.cells.clone());
    let about = summary.experiment.workloads.get(workload.name).cloned().unwrap_or_default();
    WorkloadSection {
        id: id(index),
        name: workload.name.into(),
        about,
        metric: view::metric_text(workload.metric),
        unit: workload.metric.unit.clone(),
        svg: plots::distributions(summary, workload),
        latencies: plots::latencies(workload),
        cells: cells.iter().map(|(place, cell)| cell_row(place, cell)).collect(),
        has_off_share: cells.iter().any(|(_, c)| c.off_share.is_some()),
        has_fairness: cells.iter().any(|(_, c)| c.fairness.is_some()),
        comparisons: flat(workload, |place| {
            view::KINDS.iter().flat_map(|kind| place.of_kind(*kind)).collect()
        })
        .into_iter()
        .map(|(place, comparison)| comparison_row(place, comparison))
        .collect(),
        co_metrics: matrix(&cells, |cell| &cell.co_metrics),
        kvm: matrix(&cells, |cell| &cell.kvm_per_s),
    }
}

/// Collects the rows of each place of a workload.
fn flat<'a, T>(
    workload: &'a Workload<'_>,
    of: impl Fn(&'a Place<'_>) -> Vec<T>,
) -> Vec<(&'a Place<'a>, T)> {
    workload.places.iter().flat_map(|p| of(p).into_iter().map(move |item| (p, item))).collect()
}

fn cell_row(place: &Place<'_>, cell: &CellSummary) -> CellRow {
    let (median, interval) = match &cell.median {
        Some(median) => (format::number(median.value), format::interval(median, format::number)),
        None => ("did not finish".into(), String::new()),
    };
    CellRow {
        place: place.name.clone(),
        scheduler: cell.cell.scheduler.clone(),
        n: cell.n,
        median: if cell.n == 0 { "no runs".into() } else { median },
        interval,
        note: rows::note(cell),
        off_share: cell.off_share.map(format::percent).unwrap_or_default(),
        fairness: cell.fairness.map(|index| format!("{index:.2}")).unwrap_or_default(),
    }
}

fn comparison_row(place: &Place<'_>, comparison: &Comparison) -> ComparisonRow {
    ComparisonRow {
        place: place.name.clone(),
        subject: view::subject(comparison),
        against: view::against(comparison),
        ratio: Ratio::of(comparison),
    }
}

fn matrix(
    cells: &[(&Place<'_>, &CellSummary)],
    figures: impl Fn(&CellSummary) -> &BTreeMap<String, f64>,
) -> Matrix {
    let with: Vec<_> = cells.iter().filter(|(_, cell)| !figures(cell).is_empty()).collect();
    let names: BTreeSet<&String> = with.iter().flat_map(|(_, c)| figures(c).keys()).collect();
    let row = |name: &String| {
        let figure = |cell| figures(cell).get(name).copied().map(format::number);
        (name.clone(), with.iter().map(|(_, cell)| figure(cell).unwrap_or_default()).collect())
    };
    Matrix {
        columns: with.iter().map(|(p, c)| format!("{} {}", p.name, c.cell.scheduler)).collect(),
        rows: names.into_iter().map(row).collect(),
    }
}

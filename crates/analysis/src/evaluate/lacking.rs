//! Claims that the runs give no figure for.

use std::collections::{BTreeMap, BTreeSet};

use unspin_model::summary::CellSummary;
use unspin_model::{Better, Cell, ClaimSpec, Metric, Summary};

use super::{Figure, is_about, names};

/// A claim that the runs give no figure for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("claim `{id}` is not measured: {why}")]
pub struct NotMeasured {
    /// The claim's id. It keeps the placeholders that no cell fills in.
    pub id: String,
    /// What is missing, and in which cell.
    pub why: String,
}

impl NotMeasured {
    /// One of a spec's figures, which has no value.
    pub(super) fn figure(spec: &ClaimSpec, figure: &Figure) -> NotMeasured {
        let why = match figure.lacking.as_str() {
            "" => "none of the runs that it is about gives the figure",
            why => why,
        };
        NotMeasured { id: figure.fill(&spec.id), why: why.to_owned() }
    }

    /// A spec without any figure.
    pub(super) fn spec(spec: &ClaimSpec, summary: &Summary) -> NotMeasured {
        let why = match summary.cells.iter().any(|cell| is_about(spec, cell)) {
            true => "no cell that it is about gives the figure, or has what to compare it with",
            false => "no planned run of the folder is about it",
        };
        NotMeasured { id: spec.id.clone(), why: why.to_owned() }
    }
}

/// The summary with all planned cells, those without a record included: a claim about one of
/// them would otherwise be left out without a word.
pub(super) fn with_planned(summary: &Summary, planned: &BTreeSet<Cell>) -> Summary {
    let mut all = summary.clone();
    let unrecorded = |cell: &&Cell| summary.cells.iter().all(|one| one.cell != **cell);
    all.cells.extend(planned.iter().filter(unrecorded).map(without_runs));
    all.cells.sort_by(|one, other| one.cell.cmp(&other.cell));
    all
}

fn without_runs(cell: &Cell) -> CellSummary {
    CellSummary {
        cell: cell.clone(),
        labels: Vec::new(),
        metric: Metric { name: String::new(), unit: String::new(), better: Better::Higher },
        n: 0,
        unfinished: 0,
        failed: 0,
        median: None,
        values: Vec::new(),
        co_metrics: BTreeMap::new(),
        co_values: BTreeMap::new(),
        latencies: BTreeMap::new(),
        off_share: None,
        kvm_per_s: BTreeMap::new(),
        neighbours: BTreeMap::new(),
        fairness: None,
        sensed: None,
        sensed_runs: Vec::new(),
    }
}

/// The figure of a cell without results, which has no value. `None` where there are results:
/// its workload may have no such figure.
pub(super) fn without_result(cell: &CellSummary) -> Option<Figure> {
    let figure = || Figure {
        replace: names(&cell.cell),
        lacking: format!("no run of `{}` has a result", cell.cell),
        ..Figure::of_all(None, 0, "")
    };
    (cell.n == 0).then(figure)
}

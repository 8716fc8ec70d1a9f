//! A summary in the order in which people read it: workload, then place (topology and kernel), then
//! guest scheduler.

use unspin_model::Metric;
use unspin_model::metric::Better;
use unspin_model::summary::{CellSummary, Comparison, ComparisonKind, Summary};
use unspin_model::{Cell, Label};

/// A workload with all its results.
pub struct Workload<'a> {
    /// Name of the workload.
    pub name: &'a str,
    /// Metric of the workload.
    pub metric: &'a Metric,
    /// Places where the workload ran, in the order of the summary's cells.
    pub places: Vec<Place<'a>>,
}

/// A topology with a kernel and its boot parameters.
pub struct Place<'a> {
    /// Name of the place, including the kernel if the experiment has several.
    pub name: String,
    /// Name of the topology.
    pub topology: &'a str,
    /// Cells of the place, in the order of the summary.
    pub cells: Vec<&'a CellSummary>,
    /// Comparisons whose subject ran in the place.
    pub comparisons: Vec<&'a Comparison>,
}

/// Returns the summary's workloads in the order of its cells.
pub fn workloads(summary: &Summary) -> Vec<Workload<'_>> {
    let several = several_kernels(summary);
    let mut out: Vec<Workload> = Vec::new();
    for cell in &summary.cells {
        let at = out.iter().position(|w| w.name == cell.cell.workload).unwrap_or_else(|| {
            out.push(Workload { name: &cell.cell.workload, metric: &cell.metric, places: vec![] });
            out.len() - 1
        });
        add_cell(&mut out[at].places, summary, cell, several);
    }
    let baseline = summary.experiment.baseline_topology.as_deref();
    for workload in &mut out {
        // The baseline comes first; the sort keeps the rest in order.
        workload.places.sort_by_key(|place| Some(place.topology) != baseline);
        for place in &mut workload.places {
            let scheduler = &summary.experiment.baseline_scheduler;
            place.cells.sort_by_key(|cell| cell.cell.scheduler != *scheduler);
        }
    }
    out
}

fn add_cell<'a>(
    places: &mut Vec<Place<'a>>,
    summary: &'a Summary,
    cell: &'a CellSummary,
    several: bool,
) {
    let same = |place: &&mut Place| same_place(&place.cells[0].cell, &cell.cell);
    match places.iter_mut().find(same) {
        Some(place) => place.cells.push(cell),
        None => places.push(Place {
            name: place_name(&cell.cell, several),
            topology: &cell.cell.topology,
            cells: vec![cell],
            comparisons: summary
                .comparisons
                .iter()
                .filter(|c| c.subject.workload == cell.cell.workload)
                .filter(|c| same_place(&c.subject, &cell.cell))
                .collect(),
        }),
    }
}

fn same_place(a: &Cell, b: &Cell) -> bool {
    a.topology == b.topology && a.kernel == b.kernel && a.boot_params == b.boot_params
}

/// Returns whether the cells differ in kernel or boot parameters.
pub fn several_kernels(summary: &Summary) -> bool {
    let kernel = |c: &CellSummary| (c.cell.kernel.clone(), c.cell.boot_params.clone());
    summary.cells.windows(2).any(|pair| kernel(&pair[0]) != kernel(&pair[1]))
}

/// Returns the place's name: the topology, and the kernel if places differ in it.
pub fn place_name(cell: &Cell, several_kernels: bool) -> String {
    let mut name = cell.topology.clone();
    if several_kernels {
        name += &format!(" {}", kernel_name(cell));
    }
    name
}

/// Returns the kernel with its boot parameters.
pub fn kernel_name(cell: &Cell) -> String {
    match cell.boot_params.as_str() {
        "" => cell.kernel.clone(),
        params => format!("{} [{params}]", cell.kernel),
    }
}

impl<'a> Place<'a> {
    /// Returns the cell of one guest scheduler.
    pub fn cell(&self, scheduler: &str) -> Option<&'a CellSummary> {
        self.cells.iter().copied().find(|c| c.cell.scheduler == scheduler)
    }

    /// Returns the comparisons of one kind.
    pub fn of_kind(&self, kind: ComparisonKind) -> impl Iterator<Item = &'a Comparison> {
        self.comparisons.iter().copied().filter(move |c| c.kind == kind)
    }

    /// Returns the oracle's comparison.
    pub fn oracle(&self) -> Option<&'a Comparison> {
        self.of_kind(ComparisonKind::Oracle).next()
    }

    /// Returns the comparisons of schedulers with the baseline. If the oracle picks from several
    /// static choices, it represents them.
    pub fn schedulers(&self) -> Vec<&'a Comparison> {
        let static_choice = |c: &&Comparison| c.subject.scheduler.starts_with("hold:");
        let all = || self.of_kind(ComparisonKind::Scheduler);
        let stands_for_them = self.oracle().is_some() && all().filter(static_choice).count() > 1;
        all().filter(|c| !(stands_for_them && static_choice(c))).collect()
    }
}

/// Kinds of comparisons in the order of reports: losses first.
pub const KINDS: [ComparisonKind; 4] = [
    ComparisonKind::Topology,
    ComparisonKind::Oracle,
    ComparisonKind::Scheduler,
    ComparisonKind::Kernel,
];

/// Returns the comparisons of a kind with the names of their places. Leaves out several static
/// choices if there is an oracle, which represents them.
pub fn told<'a>(
    workloads: &'a [Workload<'_>],
    kind: ComparisonKind,
) -> impl Iterator<Item = (&'a str, &'a Comparison)> {
    workloads.iter().flat_map(|w| &w.places).flat_map(move |place| {
        let comparisons = match kind {
            ComparisonKind::Scheduler => place.schedulers(),
            kind => place.of_kind(kind).collect(),
        };
        comparisons.into_iter().map(|comparison| (place.name.as_str(), comparison))
    })
}

/// Returns the baseline of a comparison's ratio: a scheduler, a topology or a kernel.
pub fn against(comparison: &Comparison) -> String {
    match comparison.kind {
        ComparisonKind::Scheduler | ComparisonKind::Oracle => comparison.baseline.scheduler.clone(),
        ComparisonKind::Topology => comparison.baseline.topology.clone(),
        ComparisonKind::Kernel => kernel_name(&comparison.baseline),
    }
}

/// Returns the judged side of a comparison: `oracle hold:2`, a scheduler, a kernel.
pub fn subject(comparison: &Comparison) -> String {
    match (comparison.kind, &comparison.choice) {
        (ComparisonKind::Oracle, Some(choice)) => format!("oracle {choice}"),
        (ComparisonKind::Oracle, None) => "oracle".into(),
        (ComparisonKind::Kernel, _) => kernel_name(&comparison.subject),
        _ => comparison.subject.scheduler.clone(),
    }
}

/// Returns the metric with unit and direction: `renames, ops/s, more is better`.
pub fn metric_text(metric: &Metric) -> String {
    let direction = match metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    match metric.unit.as_str() {
        "" => format!("{}, {direction}", metric.name),
        unit => format!("{}, {unit}, {direction}", metric.name),
    }
}

/// Returns the ratio with its interval, or the side that did not finish.
pub fn ratio_text(comparison: &Comparison) -> String {
    unfinished(comparison)
        .unwrap_or_else(|| comparison.ratio.as_ref().map(crate::format::ratio).unwrap_or_default())
}

/// Returns the side whose median run did not finish; `None` if both did.
pub fn unfinished(comparison: &Comparison) -> Option<String> {
    match &comparison.ratio {
        None if comparison.subject_finished => {
            Some(format!("{} did not finish", against(comparison)))
        }
        None => Some("neither finished".into()),
        Some(ratio) if ratio.value == 0.0 => Some("did not finish".into()),
        Some(_) => None,
    }
}

/// Returns all labels in one line, each once: those of two machines are the same in virtual time.
pub fn labels_text(labels: &[Label]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in labels.iter().map(Label::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.is_empty() { "no label".into() } else { texts.join("; ") }
}

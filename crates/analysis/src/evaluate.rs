//! From a summary to claims: the specs of `claims/EXPERIMENT.toml` choose figures, and the summary
//! holds them.

use std::collections::BTreeSet;

use unspin_model::summary::{CellSummary, ComparisonKind, Estimate};
use unspin_model::{Cell, Claim, ClaimSource, ClaimSpec, Summary};
use unspin_stats::{
    Bootstrap, Interval, Rule, Run, false_positives, ratio_of_figures, ratio_of_speeds,
};

mod agents;
mod label;
mod lacking;
mod latency;
mod overall;
mod ratios;
mod sensed;
mod shares;
mod spread;
mod truth;

pub use lacking::NotMeasured;

use lacking::without_result;
use overall::Pair;
use sensed::Checks;

/// Minimum number of blocks for the interval of a ratio. The range of all of n draws contains the
/// median with a probability of 1 - 2^(1-n): 94 % for five, 88 % for four.
const BLOCKS_MIN: u64 = 5;
/// Number of random splits in the A/A check of each cell.
const AA_SPLITS: u64 = 200;

/// Properties of a claim apart from its figure.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// File of the experiment, relative to the checkout.
    pub experiment: String,
    /// Command that measures the figure again from a fresh clone.
    pub command: String,
    /// Date of the measurement, YYYY-MM-DD.
    pub date: String,
}

/// A figure, with the values of the placeholders in its id.
struct Figure {
    /// Infinite if the figure has no bound; `None` if it was not measured.
    estimate: Option<Estimate>,
    n: u64,
    unit: &'static str,
    replace: Vec<(&'static str, String)>,
    /// Why the figure was not measured, if known.
    lacking: String,
}

impl Figure {
    fn of_all(estimate: Option<Estimate>, n: u64, unit: &'static str) -> Figure {
        Figure { estimate, n, unit, replace: Vec::new(), lacking: String::new() }
    }

    /// Returns the figure of a ratio from `n` blocks.
    fn of_blocks(ratio: Option<Estimate>, n: u64) -> Figure {
        let alone = |ratio: Estimate| without_interval(ratio.value);
        let ratio = if n < BLOCKS_MIN { ratio.map(alone) } else { ratio };
        Figure::of_all(ratio, n, "x")
    }

    /// Fills the placeholders in a claim's id or text.
    fn fill(&self, text: &str) -> String {
        let filled = self.replace.iter();
        filled.fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

/// Reasons why specs give no claims.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    /// A target is not valid.
    #[error("claim `{0}`: {1}")]
    Target(String, String),
    /// Two figures have the same id.
    #[error("two claims are named `{0}`; distinguish them by a placeholder such as {{workload}}")]
    Twice(String),
}

/// The claims that the summary supports, in the order of the specs, and those that it has no
/// figure for. `planned` are the experiment's cells, whether they have runs or not.
///
/// # Errors
/// [`EvaluateError`] for specs that [`ClaimSpec::check`] refuses, or that give an id twice.
pub fn evaluate(
    specs: &[ClaimSpec],
    summary: &Summary,
    planned: &BTreeSet<Cell>,
    origin: &Origin,
) -> Result<(Vec<Claim>, Vec<NotMeasured>), EvaluateError> {
    let summary = &lacking::with_planned(summary, planned);
    let mut claims: Vec<Claim> = Vec::new();
    let mut not_measured = Vec::new();
    for spec in specs {
        let all = figures(spec, summary);
        if all.is_empty() {
            not_measured.push(NotMeasured::spec(spec, summary));
        }
        for figure in all {
            let Some(found) = figure.estimate.filter(|found| !found.value.is_nan()) else {
                not_measured.push(NotMeasured::figure(spec, &figure));
                continue;
            };
            let claim = claim(spec, &figure, found, summary, origin)?;
            if claims.iter().any(|other| other.id == claim.id) {
                return Err(EvaluateError::Twice(claim.id));
            }
            claims.push(claim);
        }
    }
    Ok((claims, not_measured))
}

fn claim(
    spec: &ClaimSpec,
    figure: &Figure,
    found: Estimate,
    summary: &Summary,
    origin: &Origin,
) -> Result<Claim, EvaluateError> {
    let bounded = |value: f64| Some(value).filter(|value| value.is_finite());
    let mut claim = Claim {
        id: figure.fill(&spec.id),
        what: figure.fill(&spec.what),
        value: bounded(found.value),
        lo: bounded(found.lo),
        hi: bounded(found.hi),
        unbounded_below: found.value == f64::NEG_INFINITY,
        n: figure.n,
        unit: figure.unit.to_owned(),
        target: spec.target.clone(),
        holds: None,
        reason: spec.reason.clone(),
        label: label::of(spec, figure, summary),
        experiment: origin.experiment.clone(),
        command: origin.command.clone(),
        date: origin.date.clone(),
        commit: summary.machine.commit.clone(),
        not_derived: String::new(),
    };
    claim.judge().map_err(|error| EvaluateError::Target(claim.id.clone(), error))?;
    Ok(claim)
}

fn figures(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    match spec.from {
        ClaimSource::TopologyRatio => ratios::of_kind(spec, summary, ComparisonKind::Topology),
        ClaimSource::OracleRatio => ratios::of_kind(spec, summary, ComparisonKind::Oracle),
        ClaimSource::SchedulerRatio => ratios::of_kind(spec, summary, ComparisonKind::Scheduler),
        ClaimSource::TopologyLoss => {
            let mut losses = ratios::of_kind(spec, summary, ComparisonKind::Topology);
            for figure in &mut losses {
                figure.estimate = figure.estimate.map(loss_percent);
                figure.unit = "%";
            }
            losses
        }
        ClaimSource::SpeedRatio => each(spec, summary),
        ClaimSource::FigureCut => cuts(spec, summary),
        ClaimSource::FigureMedian => medians(spec, summary),
        ClaimSource::FigureShare => vec![shares::of_figure(spec, summary)],
        ClaimSource::LatencyQuantile => latency::quantiles(spec, summary),
        ClaimSource::LatencyRatio => latency::ratios(spec, summary),
        ClaimSource::LatencyTail => latency::tails(spec, summary),
        ClaimSource::Spread => spread::of_cells(spec, summary),
        ClaimSource::SpeedGeomean => overall(spec, summary, geomean).into_iter().collect(),
        ClaimSource::SpeedLeast => overall(spec, summary, least).into_iter().collect(),
        ClaimSource::SpeedLeastByChance => least_by_chance(spec, summary).into_iter().collect(),
        ClaimSource::BootS => boots(spec, summary),
        ClaimSource::ElapsedS => vec![exactly(summary.elapsed_s, summary.done, "s")],
        ClaimSource::LabCpu => {
            let percent = summary.lab_cpu_share.map(|share| scaled(share, 100.0));
            vec![Figure::of_all(percent, summary.done, "%")]
        }
        ClaimSource::TruthErrorUs => summary.truth.iter().filter_map(truth::error).collect(),
        ClaimSource::TruthBeyond => summary.truth.iter().map(truth::beyond).collect(),
        ClaimSource::FinishedShare => vec![shares::finished(spec, summary)],
        ClaimSource::SenseRecall => {
            let checks = Checks::of(spec, summary);
            checks.iter().flat_map(|checks| checks.recalls(spec.length.as_deref())).collect()
        }
        ClaimSource::SensePrecision => sensed(spec, summary, Checks::precision),
        ClaimSource::SenseRemote => sensed(spec, summary, Checks::remote),
        ClaimSource::SenseCauses => sensed(spec, summary, Checks::causes),
        ClaimSource::SenseMiscounted => sensed(spec, summary, Checks::miscounted),
        ClaimSource::SenseKept => sensed(spec, summary, Checks::kept),
        ClaimSource::AgentMemory => agents::memory(spec, summary).into_iter().collect(),
        ClaimSource::AgentTimers => agents::timers(spec, summary).into_iter().collect(),
        ClaimSource::AaFalsePositive => aa(summary).into_iter().collect(),
    }
}

/// Returns one figure of all cells of a scheduler compared with those of another one.
fn overall(spec: &ClaimSpec, summary: &Summary, figure: fn(&[f64]) -> f64) -> Option<Figure> {
    let pairs = overall::speeds(spec, summary);
    let sides: Vec<_> = pairs.iter().map(Pair::sides).collect();
    let found = || Bootstrap::seeded(summary.experiment.seed).of_ratios(&sides, figure);
    overall::of_all(&pairs, summary, |pair| pair.runs(), found)
}

/// Returns the smallest figure of all cells with which a scheduler is compared, each compared with
/// itself.
fn least_by_chance(spec: &ClaimSpec, summary: &Summary) -> Option<Figure> {
    let pairs = overall::speeds(spec, summary);
    let rivals: Vec<_> = pairs.iter().map(|pair| &pair.rival[..]).collect();
    let found = || Bootstrap::seeded(summary.experiment.seed).by_chance(&rivals, least);
    overall::of_all(&pairs, summary, |pair| pair.rival.len() as u64, found)
}

/// Returns the ratio of each cell of a scheduler to that of another one.
fn each(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let of = |pair: &Pair| ratio(pair, summary, Bootstrap::blocked_ratio, ratio_of_speeds);
    overall::speeds(spec, summary).iter().map(of).collect()
}

/// Returns by how much a figure is less in each of a scheduler's cells than in those of another
/// one.
fn cuts(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let cut = |pair: &Pair| {
        let with_interval = Bootstrap::blocked_ratio_of_figures;
        let ratio = ratio(pair, summary, with_interval, ratio_of_figures);
        Figure { estimate: ratio.estimate.map(loss_percent), unit: "%", ..ratio }
    };
    overall::figures(spec, summary).iter().map(cut).collect()
}

/// Returns the ratio of a pair, with its interval unless the rival's median is 0.
fn ratio(
    pair: &Pair,
    summary: &Summary,
    with_interval: fn(&Bootstrap, &[Run], &[Run]) -> Option<Interval>,
    alone: fn(&[Run], &[Run]) -> Option<f64>,
) -> Figure {
    let (subject, rival) = pair.sides();
    let found = with_interval(&Bootstrap::seeded(summary.experiment.seed), subject, rival);
    let found = found.map(estimate).or_else(|| alone(subject, rival).map(without_interval));
    let lacking = pair.lacking().unwrap_or_default();
    Figure { replace: names(pair.cell), lacking, ..Figure::of_blocks(found, pair.runs()) }
}

/// Returns whether a cell has all names that a spec gives.
fn is_about(spec: &ClaimSpec, summary: &CellSummary) -> bool {
    let is = |asked: &Option<String>, name: &String| asked.as_ref().is_none_or(|a| a == name);
    let cell = &summary.cell;
    is(&spec.topology, &cell.topology)
        && is(&spec.scheduler, &cell.scheduler)
        && is(&spec.workload, &cell.workload)
}

/// Returns the median of a co-metric in each cell that has it.
fn medians(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let wanted = |cell: &&CellSummary| is_about(spec, cell);
    let name = spec.figure.as_deref().unwrap_or_default();
    let bootstrap = Bootstrap::seeded(summary.experiment.seed);
    let median = |cell: &CellSummary| {
        let Some(of_runs) = cell.co_values.get(name) else { return without_result(cell) };
        let values: Vec<f64> = of_runs.iter().map(|(_, value)| *value).collect();
        let n = values.len() as u64;
        let median = bootstrap.median_of_figures(&values).map(estimate);
        let alone = |median: Estimate| without_interval(median.value);
        let median = if n < BLOCKS_MIN { median.map(alone) } else { median };
        let figure = Figure::of_all(median, n, unit_of(name));
        Some(Figure { replace: names(&cell.cell), ..figure })
    };
    summary.cells.iter().filter(wanted).filter_map(median).collect()
}

/// Returns the unit that a co-metric's name ends in.
fn unit_of(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("percent") => "%",
        end => ["ns", "us", "ms", "s"].into_iter().find(|unit| Some(*unit) == end).unwrap_or(""),
    }
}

/// Returns the placeholders of an id with their values.
fn names(cell: &Cell) -> Vec<(&'static str, String)> {
    vec![
        ("{workload}", cell.workload.clone()),
        ("{topology}", cell.topology.clone()),
        ("{scheduler}", cell.scheduler.clone()),
    ]
}

fn geomean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

fn least(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns a ratio as the share lost; the ends of the interval change places.
fn loss_percent(ratio: Estimate) -> Estimate {
    let loss = |ratio: f64| 100.0 * (1.0 - ratio);
    Estimate { value: loss(ratio.value), lo: loss(ratio.hi), hi: loss(ratio.lo) }
}

fn boots(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let wanted = |name: &&String| spec.topology.as_ref().is_none_or(|topology| topology == *name);
    let of_cells = summary.cells.iter().map(|cell| &cell.cell.topology);
    let topologies: BTreeSet<&String> = of_cells.collect();
    let figure = |topology: &String| {
        let boot_s = summary.boot_s.get(topology).copied();
        let n = summary.boots.get(topology).copied().unwrap_or(0);
        Figure {
            replace: vec![("{topology}", topology.clone())],
            lacking: format!("no run of `{topology}` has a result"),
            ..Figure::of_all(boot_s, n, "s")
        }
    };
    topologies.into_iter().filter(wanted).map(figure).collect()
}

/// Returns a figure from the findings of guests; nothing if no guest recorded.
fn sensed<'a>(
    spec: &ClaimSpec,
    summary: &'a Summary,
    figure: impl Fn(&Checks<'a>) -> Figure,
) -> Vec<Figure> {
    Checks::of(spec, summary).iter().map(figure).collect()
}

fn aa(summary: &Summary) -> Option<Figure> {
    let rule = Rule { smallest_effect: summary.experiment.smallest_effect, ..Rule::default() };
    let mut different = 0;
    let mut splits = 0;
    for (index, cell) in summary.cells.iter().enumerate() {
        let speeds: Vec<f64> = cell.values.iter().map(|(_, v)| cell.metric.speed(*v)).collect();
        let found = false_positives(&speeds, AA_SPLITS, &rule, index as u64)?;
        different += found.different;
        splits += found.splits;
    }
    (splits > 0).then(|| shares::share(different, splits))
}

fn estimate(Interval { value, lo, hi }: Interval) -> Estimate {
    Estimate { value, lo, hi }
}

/// Returns a figure without an interval, because it covers all runs together.
fn exactly(value: f64, n: u64, unit: &'static str) -> Figure {
    Figure::of_all(Some(without_interval(value)), n, unit)
}

fn without_interval(value: f64) -> Estimate {
    Estimate { value, lo: f64::NEG_INFINITY, hi: f64::INFINITY }
}

fn scaled(estimate: Estimate, by: f64) -> Estimate {
    Estimate { value: by * estimate.value, lo: by * estimate.lo, hi: by * estimate.hi }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_what_is_missing_to_one() {
        let loss = loss_percent(Estimate { value: 0.4, lo: 0.3, hi: 0.5 });
        assert!((loss.value - 60.0).abs() < 1e-9);
        assert!((loss.lo - 50.0).abs() < 1e-9 && (loss.hi - 70.0).abs() < 1e-9);
    }
}

//! Claims out of a summary: the specs of `claims/EXPERIMENT.toml` say which figures it
//! supports, the summary holds them.

use unspin_model::summary::{CellSummary, Comparison, ComparisonKind, Estimate, TruthError};
use unspin_model::{AGENT_MEMORY, Cell, Claim, ClaimSource, ClaimSpec, Summary, TIMER_INTERRUPTS};
use unspin_stats::{Bootstrap, Interval, Rule, Run, false_positives};

mod label;
mod latency;
mod overall;
mod sensed;
mod shares;
mod spread;

use overall::Pair;
use sensed::Checks;

/// Ratios of fewer blocks have no interval. The range of all of n draws holds the median with a
/// probability of 1 - 2^(1-n): 94 % for five, 88 % for four.
const BLOCKS_MIN: u64 = 5;
/// Random splits of the A/A check, each cell.
const AA_SPLITS: u64 = 200;

/// What is known of a claim beside its figure.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The experiment's file, relative to the checkout.
    pub experiment: String,
    /// What re-measures it from a fresh clone.
    pub command: String,
    /// When it was measured, YYYY-MM-DD.
    pub date: String,
}

/// A figure with what its id's placeholders stand for.
struct Figure {
    estimate: Option<Estimate>,
    n: u64,
    unit: &'static str,
    replace: Vec<(&'static str, String)>,
}

impl Figure {
    fn of_all(estimate: Option<Estimate>, n: u64, unit: &'static str) -> Figure {
        Figure { estimate, n, unit, replace: Vec::new() }
    }

    /// A ratio of `n` blocks.
    fn of_blocks(ratio: Option<Estimate>, n: u64) -> Figure {
        let alone = |ratio: Estimate| exactly(ratio.value, n, "x").estimate;
        let ratio = if n < BLOCKS_MIN { ratio.and_then(alone) } else { ratio };
        Figure::of_all(ratio, n, "x")
    }
}

/// Why specs give no claims.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluateError {
    /// A target that is none.
    #[error("claim `{0}`: {1}")]
    Target(String, String),
    /// Two figures under one id.
    #[error("two claims are named `{0}`; distinguish them by a placeholder such as {{workload}}")]
    Twice(String),
}

/// Every claim that the summary supports, in the order of the specs.
///
/// # Errors
/// [`EvaluateError`] for specs that [`ClaimSpec::check`] refuses, or that give an id twice.
pub fn evaluate(
    specs: &[ClaimSpec],
    summary: &Summary,
    origin: &Origin,
) -> Result<Vec<Claim>, EvaluateError> {
    let mut claims: Vec<Claim> = Vec::new();
    for spec in specs {
        for figure in figures(spec, summary) {
            let claim = claim(spec, &figure, summary, origin)?;
            if claims.iter().any(|other| other.id == claim.id) {
                return Err(EvaluateError::Twice(claim.id));
            }
            claims.push(claim);
        }
    }
    Ok(claims)
}

fn claim(
    spec: &ClaimSpec,
    figure: &Figure,
    summary: &Summary,
    origin: &Origin,
) -> Result<Claim, EvaluateError> {
    let fill = |text: &str| {
        let filled = figure.replace.iter();
        filled.fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    let mut claim = Claim {
        id: fill(&spec.id),
        what: fill(&spec.what),
        value: figure.estimate.map(|estimate| estimate.value),
        lo: figure.estimate.map(|estimate| estimate.lo).filter(|lo| lo.is_finite()),
        hi: figure.estimate.map(|estimate| estimate.hi).filter(|hi| hi.is_finite()),
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
        ClaimSource::TopologyRatio => ratios(spec, summary, ComparisonKind::Topology),
        ClaimSource::OracleRatio => ratios(spec, summary, ComparisonKind::Oracle),
        ClaimSource::SchedulerRatio => ratios(spec, summary, ComparisonKind::Scheduler),
        ClaimSource::TopologyLoss => {
            let mut losses = ratios(spec, summary, ComparisonKind::Topology);
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
        ClaimSource::TruthErrorUs => summary.truth.iter().filter_map(truth_error).collect(),
        ClaimSource::TruthBeyond => summary.truth.iter().map(truth_beyond).collect(),
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
        ClaimSource::AgentMemory => agent_memory(spec, summary).into_iter().collect(),
        ClaimSource::AgentTimers => agent_timers(spec, summary).into_iter().collect(),
        ClaimSource::AaFalsePositive => aa(summary).into_iter().collect(),
    }
}

fn ratios(spec: &ClaimSpec, summary: &Summary, kind: ComparisonKind) -> Vec<Figure> {
    let wanted = |c: &&Comparison| {
        let topology = spec.topology.as_ref().is_none_or(|name| *name == c.subject.topology);
        let scheduler = spec.scheduler.as_ref().is_none_or(|name| *name == c.subject.scheduler);
        c.kind == kind && topology && scheduler
    };
    // The oracle has no runs of its own.
    let runs_of = |wanted: &Cell| {
        summary.cells.iter().find(|cell| cell.cell == *wanted).map(|cell| u64::from(cell.n))
    };
    let n_of = |c: &Comparison| {
        [&c.baseline, &c.subject].into_iter().filter_map(runs_of).min().unwrap_or(0)
    };
    let comparisons = summary.comparisons.iter().filter(wanted);
    comparisons
        .map(|c| Figure { replace: names(&c.subject), ..Figure::of_blocks(c.ratio, n_of(c)) })
        .collect()
}

/// One figure of all cells of a scheduler against another one's.
fn overall(spec: &ClaimSpec, summary: &Summary, figure: fn(&[f64]) -> f64) -> Option<Figure> {
    let pairs = overall::speeds(spec, summary);
    let runs = pairs.iter().map(|pair| pair.subject.len().min(pair.rival.len()) as u64).min();
    let sides: Vec<_> = pairs.iter().map(Pair::sides).collect();
    let found = Bootstrap::seeded(summary.experiment.seed).of_ratios(&sides, figure);
    Some(Figure::of_blocks(found.map(estimate), runs?))
}

/// The least figure of all cells that a scheduler is compared with, each against itself.
fn least_by_chance(spec: &ClaimSpec, summary: &Summary) -> Option<Figure> {
    let pairs = overall::speeds(spec, summary);
    let runs = pairs.iter().map(|pair| pair.rival.len() as u64).min();
    let rivals: Vec<_> = pairs.iter().map(|pair| &pair.rival[..]).collect();
    let found = Bootstrap::seeded(summary.experiment.seed).by_chance(&rivals, least);
    Some(Figure::of_blocks(found.map(estimate), runs?))
}

/// Each cell of a scheduler against another one's.
fn each(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    overall::speeds(spec, summary)
        .iter()
        .map(|pair| ratio(pair, summary, Bootstrap::blocked_ratio))
        .collect()
}

/// How much less of a figure each of a scheduler's cells has than another one's.
fn cuts(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let cut = |pair: &Pair| {
        let ratio = ratio(pair, summary, Bootstrap::blocked_ratio_of_figures);
        Figure { estimate: ratio.estimate.map(loss_percent), unit: "%", ..ratio }
    };
    overall::figures(spec, summary).iter().map(cut).collect()
}

fn ratio(
    pair: &Pair,
    summary: &Summary,
    of: fn(&Bootstrap, &[Run], &[Run]) -> Option<Interval>,
) -> Figure {
    let (subject, rival) = pair.sides();
    let found = of(&Bootstrap::seeded(summary.experiment.seed), subject, rival);
    let n = subject.len().min(rival.len()) as u64;
    Figure { replace: names(pair.cell), ..Figure::of_blocks(found.map(estimate), n) }
}

/// Whether a spec is about a cell, by the names that it gives.
fn is_about(spec: &ClaimSpec, summary: &CellSummary) -> bool {
    let is = |asked: &Option<String>, name: &String| asked.as_ref().is_none_or(|a| a == name);
    let cell = &summary.cell;
    is(&spec.topology, &cell.topology)
        && is(&spec.scheduler, &cell.scheduler)
        && is(&spec.workload, &cell.workload)
}

/// The median of a co-metric in each cell that has it.
fn medians(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let wanted = |cell: &&CellSummary| is_about(spec, cell);
    let name = spec.figure.as_deref().unwrap_or_default();
    let bootstrap = Bootstrap::seeded(summary.experiment.seed);
    let median = |cell: &CellSummary| {
        let values: Vec<f64> = cell.co_values.get(name)?.iter().map(|(_, value)| *value).collect();
        let (n, unit) = (values.len() as u64, unit_of(name));
        let median = bootstrap.median_of_figures(&values).map(estimate)?;
        let figure = if n < BLOCKS_MIN {
            exactly(median.value, n, unit)
        } else {
            Figure::of_all(Some(median), n, unit)
        };
        Some(Figure { replace: names(&cell.cell), ..figure })
    };
    summary.cells.iter().filter(wanted).filter_map(median).collect()
}

/// The unit that a co-metric's name ends in.
fn unit_of(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("percent") => "%",
        end => ["ns", "us", "ms", "s"].into_iter().find(|unit| Some(*unit) == end).unwrap_or(""),
    }
}

/// What stands for the placeholders of an id.
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

/// A ratio as the share lost; its ends change places.
fn loss_percent(ratio: Estimate) -> Estimate {
    let loss = |ratio: f64| 100.0 * (1.0 - ratio);
    Estimate { value: loss(ratio.value), lo: loss(ratio.hi), hi: loss(ratio.lo) }
}

fn boots(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let wanted = |name: &String| spec.topology.as_ref().is_none_or(|topology| topology == name);
    let boots = summary.boot_s.iter().filter(|(name, _)| wanted(name));
    boots
        .map(|(topology, estimate)| Figure {
            estimate: Some(*estimate),
            n: u64::from(summary.experiment.repeats),
            unit: "s",
            replace: vec![("{topology}", topology.clone())],
        })
        .collect()
}

fn truth_error(truth: &TruthError) -> Option<Figure> {
    let medians = truth.by_length.iter().map(|at| at.median_us);
    let worst = medians.clone().max_by(f64::total_cmp)?;
    let least = medians.min_by(f64::total_cmp)?;
    let largest = truth.by_length.iter().map(|at| at.max_us).max_by(f64::total_cmp)?;
    let estimate = Estimate { value: worst, lo: least, hi: largest };
    Some(Figure::of_all(Some(estimate), truth.injected, "us"))
}

fn truth_beyond(truth: &TruthError) -> Figure {
    let beyond: f64 = truth.by_length.iter().map(|at| at.beyond * at.n as f64).sum();
    shares::share(beyond.round() as u64 + truth.missing, truth.injected)
}

/// One figure of what guests found out; none where no guest recorded.
fn sensed<'a>(
    spec: &ClaimSpec,
    summary: &'a Summary,
    figure: impl Fn(&Checks<'a>) -> Figure,
) -> Vec<Figure> {
    Checks::of(spec, summary).iter().map(figure).collect()
}

fn agent_memory(spec: &ClaimSpec, summary: &Summary) -> Option<Figure> {
    let wanted = |name: &String| spec.scheduler.as_ref().is_none_or(|asked| asked == name);
    let cells = summary.cells.iter().filter(|cell| wanted(&cell.cell.scheduler));
    let cells: Vec<_> = cells.filter(|cell| cell.co_metrics.contains_key(AGENT_MEMORY)).collect();
    let of_cells = cells.iter().map(|cell| cell.co_metrics[AGENT_MEMORY]);
    let (least, most) =
        (of_cells.clone().min_by(f64::total_cmp)?, of_cells.max_by(f64::total_cmp)?);
    let runs = cells.iter().map(|cell| u64::from(cell.n)).sum();
    Some(Figure::of_all(Some(Estimate { value: most, lo: least, hi: most }), runs, "MB"))
}

fn agent_timers(spec: &ClaimSpec, summary: &Summary) -> Option<Figure> {
    let per_s = |cell: &CellSummary| -> Option<Vec<Run>> {
        let run = |(block, value): &(u32, f64)| Run { block: *block, speed: *value };
        Some(cell.co_values.get(TIMER_INTERRUPTS)?.iter().map(run).collect())
    };
    let wanted = |cell: &&CellSummary| spec.scheduler.as_ref() == Some(&cell.cell.scheduler);
    let bootstrap = Bootstrap::seeded(summary.experiment.seed);
    let added = |with: &CellSummary| {
        let base =
            Cell { scheduler: summary.experiment.baseline_scheduler.clone(), ..with.cell.clone() };
        let without = summary.cells.iter().find(|cell| cell.cell == base)?;
        Some((bootstrap.blocked_difference(&per_s(with)?, &per_s(without)?)?, u64::from(with.n)))
    };
    let all = summary.cells.iter().filter(wanted).filter_map(added);
    let (most, n) = all.max_by(|a, b| a.0.value.total_cmp(&b.0.value))?;
    Some(Figure::of_all(Some(estimate(most)), n, "1/s"))
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

/// A figure whose interval is not known, because it stands for all runs together.
fn exactly(value: f64, n: u64, unit: &'static str) -> Figure {
    let estimate = Estimate { value, lo: f64::NEG_INFINITY, hi: f64::INFINITY };
    Figure::of_all(Some(estimate), n, unit)
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

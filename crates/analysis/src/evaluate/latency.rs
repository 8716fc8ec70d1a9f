//! Quantiles of latencies, over all runs of a cell together.

use unspin_model::summary::{CellSummary, Estimate};
use unspin_model::{Cell, ClaimSpec, Summary};
use unspin_stats::{Bootstrap, Pool};

use super::{
    BLOCKS_MIN, Figure, estimate, is_about, names, unit_of, without_interval, without_result,
};

/// Values of `{quantile}`, and the share of each.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// Returns each quantile of each wanted cell.
pub fn quantiles(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let name = spec.figure.as_deref().unwrap_or_default();
    let of_cell = |(cell, runs): (&CellSummary, Runs)| {
        let figure = |(quantile, q): (&str, f64)| {
            let at = |blocks: &[u32]| runs.pool.quantile(blocks, q);
            named(of_pools(summary, &[&runs], at, unit_of(name)), &cell.cell, Some(quantile))
        };
        QUANTILES.map(figure)
    };
    let found = wanted(spec, summary).into_iter().flat_map(of_cell);
    found.chain(without_results(spec, summary)).collect()
}

/// Returns the ratio of each quantile of each wanted cell to that in the other topology.
pub fn ratios(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let of_cell = |(cell, runs, others): (&CellSummary, Runs, Runs)| {
        let figure = |(quantile, q): (&str, f64)| {
            let at = |blocks: &[u32]| ratio(&runs, &others, blocks, q);
            named(of_pools(summary, &[&runs, &others], at, "x"), &cell.cell, Some(quantile))
        };
        QUANTILES.map(figure)
    };
    let found = pairs(spec, summary).into_iter().flat_map(of_cell);
    found.chain(without_results(spec, summary)).collect()
}

/// Returns the ratio of the 99th percentiles divided by that of the medians.
pub fn tails(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let of_cell = |(cell, runs, others): (&CellSummary, Runs, Runs)| {
        let of_median = |blocks: &[u32]| {
            let median = ratio(&runs, &others, blocks, 0.5)?;
            let tail = ratio(&runs, &others, blocks, 0.99)?;
            (median > 0.0).then(|| tail / median)
        };
        named(of_pools(summary, &[&runs, &others], of_median, "x"), &cell.cell, None)
    };
    let found = pairs(spec, summary).into_iter().map(of_cell);
    found.chain(without_results(spec, summary)).collect()
}

/// A latency in the runs of a cell.
struct Runs {
    pool: Pool,
    n: u64,
}

impl Runs {
    /// Returns the latency of a cell's runs; `None` if no run has it.
    fn of(spec: &ClaimSpec, cell: &CellSummary) -> Option<Runs> {
        let runs = cell.latencies.get(spec.figure.as_deref()?)?;
        let blocks = runs.iter().map(|(block, lengths)| (*block, &lengths[..])).collect();
        Some(Runs { pool: Pool::new(&blocks), n: runs.len() as u64 })
    }
}

/// Returns the cells that a spec covers.
fn wanted<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<(&'a CellSummary, Runs)> {
    let cells = summary.cells.iter().filter(|cell| is_about(spec, cell));
    cells.filter_map(|cell| Some((cell, Runs::of(spec, cell)?))).collect()
}

/// Returns these cells, each with its counterpart in the other topology.
fn pairs<'a>(spec: &ClaimSpec, summary: &'a Summary) -> Vec<(&'a CellSummary, Runs, Runs)> {
    let others = |cell: &CellSummary| Runs::of(spec, counterpart(spec, summary, cell)?);
    let pair = |(cell, runs): (&'a CellSummary, Runs)| Some((cell, runs, others(cell)?));
    wanted(spec, summary).into_iter().filter_map(pair).collect()
}

fn counterpart<'a>(
    spec: &ClaimSpec,
    summary: &'a Summary,
    cell: &CellSummary,
) -> Option<&'a CellSummary> {
    let place = Cell { topology: spec.against_topology.clone()?, ..cell.cell.clone() };
    summary.cells.iter().find(|other| other.cell == place)
}

/// A figure without a value for each cell without results, or whose counterpart has none.
fn without_results(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let other = |cell: &CellSummary| without_result(counterpart(spec, summary, cell)?);
    let figure = |cell: &CellSummary| {
        let missing = without_result(cell).or_else(|| other(cell))?;
        Some(Figure { replace: names(&cell.cell), ..missing })
    };
    let cells = summary.cells.iter().filter(|cell| is_about(spec, cell));
    cells.filter_map(figure).collect()
}

/// Returns the ratio of two quantiles; `None` if the other one is 0.
fn ratio(runs: &Runs, others: &Runs, blocks: &[u32], q: f64) -> Option<f64> {
    let other = others.pool.quantile(blocks, q).filter(|other| *other > 0.0)?;
    Some(runs.pool.quantile(blocks, q)? / other)
}

fn of_pools(
    summary: &Summary,
    runs: &[&Runs],
    figure: impl Fn(&[u32]) -> Option<f64>,
    unit: &'static str,
) -> Figure {
    let pools: Vec<&Pool> = runs.iter().map(|runs| &runs.pool).collect();
    let found = Bootstrap::seeded(summary.experiment.seed).of_pools(&pools, figure).map(estimate);
    let n = runs.iter().map(|runs| runs.n).min().unwrap_or(0);
    let alone = |found: Estimate| without_interval(found.value);
    let found = if n < BLOCKS_MIN { found.map(alone) } else { found };
    let lacking = "no length was counted, or it is compared with 0".to_owned();
    Figure { lacking, ..Figure::of_all(found, n, unit) }
}

fn named(figure: Figure, cell: &Cell, quantile: Option<&str>) -> Figure {
    let mut replace = names(cell);
    replace.extend(quantile.map(|quantile| ("{quantile}", quantile.to_owned())));
    Figure { replace, ..figure }
}

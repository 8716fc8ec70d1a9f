//! Costs of an agent that runs next to the workloads.

use unspin_model::summary::{CellSummary, Estimate};
use unspin_model::{AGENT_MEMORY, Cell, ClaimSpec, Summary, TIMER_INTERRUPTS};
use unspin_stats::{Bootstrap, Run};

use super::{Figure, estimate};

/// Returns the most memory that the agent used in any run; the lower end is the least over the
/// runs.
pub fn memory(spec: &ClaimSpec, summary: &Summary) -> Option<Figure> {
    let wanted = |cell: &&CellSummary| {
        spec.scheduler.as_ref().is_none_or(|asked| *asked == cell.cell.scheduler)
    };
    let cells = summary.cells.iter().filter(wanted);
    let of_runs = cells.filter_map(|cell| cell.co_values.get(AGENT_MEMORY)).flatten();
    let mb: Vec<f64> = of_runs.map(|(_, mb)| *mb).collect();
    let (least, most) =
        (mb.iter().copied().min_by(f64::total_cmp)?, mb.iter().copied().max_by(f64::total_cmp)?);
    let found = Estimate { value: most, lo: least, hi: most };
    Some(Figure::of_all(Some(found), mb.len() as u64, "MB"))
}

/// Returns the timer interrupts that the agent adds in the cell where it adds the most.
pub fn timers(spec: &ClaimSpec, summary: &Summary) -> Option<Figure> {
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

//! Spread of the runs of a cell.

use unspin_model::summary::CellSummary;
use unspin_model::{ClaimSpec, Summary};

use super::{Figure, exactly, is_about, names};

/// Returns the spread of each wanted cell that has at least two runs. A cell with runs that did not
/// finish has none: without these runs, which are the worst, the spread would be too small.
pub fn of_cells(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let wanted = |cell: &&CellSummary| is_about(spec, cell);
    let figure = |cell: &CellSummary| {
        if cell.unfinished > 0 {
            let (unfinished, n) = (cell.unfinished, cell.n);
            let lacking = format!("{unfinished} of {n} runs of `{}` did not finish", cell.cell);
            let none = Figure::of_all(None, 0, "%");
            return Some(Figure { replace: names(&cell.cell), lacking, ..none });
        }
        let values: Vec<f64> = cell.values.iter().filter_map(|(_, value)| *value).collect();
        let percent = exactly(percent_of_mean(&values)?, values.len() as u64, "%");
        Some(Figure { replace: names(&cell.cell), ..percent })
    };
    summary.cells.iter().filter(wanted).filter_map(figure).collect()
}

/// Returns the sample standard deviation in percent of the mean.
fn percent_of_mean(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| 100.0 * (squares / (n - 1.0)).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_relative_to_the_mean() {
        assert_eq!(percent_of_mean(&[90.0, 110.0]).map(f64::round), Some(14.0));
        assert_eq!(percent_of_mean(&[5.0, 5.0, 5.0]), Some(0.0));
        assert_eq!(percent_of_mean(&[5.0]), None);
    }
}

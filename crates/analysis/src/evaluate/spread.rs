//! Spread of the runs of a cell.

use unspin_model::summary::CellSummary;
use unspin_model::{ClaimSpec, Summary};

use super::{Figure, is_about, names, without_interval};

/// The spread of each wanted cell. Without the runs that did not finish, which are the worst, it
/// would be too small: a cell with such runs has none.
pub fn of_cells(spec: &ClaimSpec, summary: &Summary) -> Vec<Figure> {
    let wanted = |cell: &&CellSummary| is_about(spec, cell);
    summary.cells.iter().filter(wanted).map(of_cell).collect()
}

fn of_cell(cell: &CellSummary) -> Figure {
    let (n, unfinished) = (cell.n, cell.unfinished);
    let values: Vec<f64> = cell.values.iter().filter_map(|(_, value)| *value).collect();
    let percent = percent_of_mean(&values).filter(|_| unfinished == 0).map(without_interval);
    let lacking = match unfinished {
        0 => format!("a spread takes two results that are not 0, and `{}` has {n}", cell.cell),
        _ => format!("{unfinished} of {n} runs of `{}` did not finish", cell.cell),
    };
    let figure = Figure::of_all(percent, values.len() as u64, "%");
    Figure { replace: names(&cell.cell), lacking, ..figure }
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

//! Plots as SVG: a small writer, scales and axes, and the three plots of the report.
//! Colours come from a style sheet by class, so one plot serves light and dark
//! pages; an image of its own carries the sheet.

pub mod axis;
pub mod canvas;
pub mod cumulative;
pub mod forest;
pub mod scale;
pub mod strip;

pub use canvas::escape;
pub use cumulative::{Cumulative, Curve, Panel, cumulative, cumulative_image};
pub use forest::{ForestRow, forest, forest_image};
pub use strip::{Strip, StripRow, strip};

/// Colours that the style sheet has for schedulers and other series.
pub const SERIES: usize = 6;

/// The style sheet of plots.
pub const STYLE: &str = include_str!("html/plot.css");

/// A plot as an image of its own: with its name space and its style.
fn image(plot: &str) -> String {
    let (open, content) = plot.split_once('\n').unwrap_or((plot, ""));
    let open = open.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    format!("{open}\n<style>\n{STYLE}</style>\n{content}")
}

//! Plots as SVG: a small writer, scales and axes, and the plots of the report. A style sheet sets
//! the colours by class, so one plot serves light and dark pages; a stand-alone image contains the
//! sheet.

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

/// Number of colours that the style sheet has for schedulers and other series.
pub const SERIES: usize = 6;

/// Style sheet of the plots.
pub const STYLE: &str = include_str!("html/plot.css");

/// Returns a plot as a stand-alone image, with its namespace and its style.
fn image(plot: &str) -> String {
    let (open, content) = plot.split_once('\n').unwrap_or((plot, ""));
    let open = open.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    format!("{open}\n<style>\n{STYLE}</style>\n{content}")
}

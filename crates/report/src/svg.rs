//! Plots as inline SVG: a small writer, scales and axes, and the two plots of
//! the report. Colours come from the page's style sheet by class, so one plot
//! serves light and dark pages.

pub mod axis;
pub mod canvas;
pub mod forest;
pub mod scale;
pub mod strip;

pub use canvas::escape;
pub use forest::{ForestRow, forest};
pub use strip::{Strip, StripRow, strip};

//! Plots of distributions: the lengths that an experiment's runs kept, over all runs of a cell
//! together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use unspin_model::run::Lengths;
use unspin_model::summary::{CellSummary, Summary};

use crate::svg::{Cumulative, Curve, Panel, cumulative_image};

/// One image.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Path of the image, relative to the checkout.
    pub file: PathBuf,
    /// Text for screen readers.
    pub label: String,
    /// Output folder with the runs, relative to the checkout.
    pub results: PathBuf,
    /// Curves of the plot.
    #[serde(rename = "curve")]
    pub curves: Vec<CurveOf>,
    /// Parts of the plot, from the top.
    #[serde(rename = "panel")]
    pub panels: Vec<PanelOf>,
}

/// The cells of a curve: one in each panel.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveOf {
    /// Name that distinguishes the curve.
    pub name: String,
    /// Topology of the cells.
    pub topology: String,
}

/// A latency of a workload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PanelOf {
    /// Title of the axis.
    pub axis: String,
    /// Workload of the cells.
    pub workload: String,
    /// Name of the latency in the runs.
    pub latency: String,
}

/// Reasons why a plot cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    /// No such cell exists, or its runs kept no such latency.
    #[error("no run of `{workload}` with `{topology}` has the latency `{latency}`")]
    NoLatency {
        /// Workload of the cell.
        workload: String,
        /// Topology of the cell.
        topology: String,
        /// Name of the latency.
        latency: String,
    },
}

/// Returns the plot as SVG.
///
/// # Errors
/// Returns [`DistributionError`] for a latency that does not exist.
pub fn draw(plot: &Distribution, summary: &Summary) -> Result<String, DistributionError> {
    let panels = plot.panels.iter().map(|panel| {
        let curves = (0..).zip(&plot.curves).map(|(series, curve)| {
            let missing = || DistributionError::NoLatency {
                workload: panel.workload.clone(),
                topology: curve.topology.clone(),
                latency: panel.latency.clone(),
            };
            let is_cell = |cell: &&CellSummary| {
                cell.cell.workload == panel.workload && cell.cell.topology == curve.topology
            };
            let cell = summary.cells.iter().find(is_cell).ok_or_else(missing)?;
            let lengths = pooled(cell, &panel.latency).ok_or_else(missing)?;
            Ok(Curve { name: curve.name.clone(), series, lengths })
        });
        Ok(Panel { axis: panel.axis.clone(), curves: curves.collect::<Result<_, _>>()? })
    });
    let panels = panels.collect::<Result<_, _>>()?;
    Ok(cumulative_image(&Cumulative { label: plot.label.clone(), panels }))
}

/// Returns a latency over all runs of a cell together, shortest lengths first; `None` if no run has
/// it.
pub(crate) fn pooled(cell: &CellSummary, latency: &str) -> Option<Lengths> {
    let runs = cell.latencies.get(latency)?;
    let mut counts = BTreeMap::new();
    for (length, count) in runs.iter().flat_map(|(_, lengths)| lengths) {
        // Positive numbers are in the order of their bits.
        *counts.entry(length.max(0.0).to_bits()).or_insert(0) += count;
    }
    let lengths = counts.into_iter().map(|(bits, count)| (f64::from_bits(bits), count));
    let lengths: Lengths = lengths.filter(|(length, _)| *length > 0.0).collect();
    (!lengths.is_empty()).then_some(lengths)
}

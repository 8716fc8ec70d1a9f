//! Plots of distributions: the lengths that an experiment's runs kept, all runs of a cell together.

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
    /// Where it goes, relative to the checkout.
    pub file: PathBuf,
    /// What a screen reader says.
    pub label: String,
    /// The output folder with the runs, relative to the checkout.
    pub results: PathBuf,
    /// Its curves.
    #[serde(rename = "curve")]
    pub curves: Vec<CurveOf>,
    /// Its parts, from the top.
    #[serde(rename = "panel")]
    pub panels: Vec<PanelOf>,
}

/// The cells of a curve: one in each panel.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveOf {
    /// What distinguishes it.
    pub name: String,
    /// The cells' topology.
    pub topology: String,
}

/// A latency of a workload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PanelOf {
    /// The axis' title.
    pub axis: String,
    /// The cells' workload.
    pub workload: String,
    /// The latency, as runs name it.
    pub latency: String,
}

/// Why a plot cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    /// There is no such cell, or its runs kept no such latency.
    #[error("no run of `{workload}` with `{topology}` has the latency `{latency}`")]
    NoLatency {
        /// The cell's workload.
        workload: String,
        /// The cell's topology.
        topology: String,
        /// The latency.
        latency: String,
    },
}

/// The plot as SVG.
///
/// # Errors
/// [`DistributionError`]: a latency that is not there.
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

/// A latency of all runs of a cell together, shortest first; `None` where no run has it.
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

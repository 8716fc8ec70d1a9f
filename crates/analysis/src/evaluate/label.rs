//! The label of a claim.

use unspin_model::summary::CellSummary;
use unspin_model::{ClaimSource, ClaimSpec, Label, Summary};

use super::Figure;

/// Returns the labels of the runs of the claim's topology, and of the topology with which it is
/// compared; those of all runs if the claim covers several topologies.
pub(super) fn of(spec: &ClaimSpec, figure: &Figure, summary: &Summary) -> String {
    let named = figure.replace.iter().find(|(name, _)| *name == "{topology}");
    let topology = named.map(|(_, value)| value).or(spec.topology.as_ref());
    let baseline = match spec.from {
        ClaimSource::TopologyRatio | ClaimSource::TopologyLoss => {
            summary.experiment.baseline_topology.as_ref()
        }
        _ => spec.against_topology.as_ref(),
    };
    let its = |cell: &&CellSummary| {
        let is = |name: &String| *name == cell.cell.topology;
        topology.is_none_or(is) || baseline.is_some_and(is)
    };
    let its: Vec<&Label> = summary.cells.iter().filter(its).flat_map(|cell| &cell.labels).collect();
    let mut texts: Vec<String> = Vec::new();
    for text in summary.labels.iter().filter(|label| its.contains(label)).map(Label::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("; ")
}

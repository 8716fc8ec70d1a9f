//! Evidence that the figures are reliable: failures, carry-over, the lab's own cost, ground truth.

use serde::Serialize;
use unspin_model::summary::{Estimate, Summary, TruthError};

use crate::{format, headline};

/// Checks of the experiment itself.
#[derive(Serialize)]
pub struct Evidence {
    pub failures: Vec<(String, u64)>,
    pub failures_text: Option<String>,
    pub carry_over: Vec<CarryOverRow>,
    pub boot: Vec<(String, String)>,
    pub lab_cost: Option<String>,
    pub truth: Option<Truth>,
}

/// Effect of earlier runs in the same boot on a workload's results.
#[derive(Serialize)]
pub struct CarryOverRow {
    pub workload: String,
    pub correlation: String,
    pub p: String,
    pub n: u32,
    pub shows: bool,
}

/// Injected off intervals, compared with the observed ones.
#[derive(Serialize)]
pub struct Truth {
    pub injected: String,
    pub missing: String,
    pub rows: Vec<TruthRow>,
}

/// Error at one length.
#[derive(Serialize)]
pub struct TruthRow {
    pub length: String,
    pub n: u64,
    pub median: String,
    pub max: String,
    pub beyond: String,
}

pub fn evidence(summary: &Summary) -> Evidence {
    let workloads = summary.carry_over.len() as f64;
    Evidence {
        failures: summary.failures.iter().map(|(k, n)| (headline::failure_name(*k), *n)).collect(),
        failures_text: headline::failures(summary),
        carry_over: summary
            .carry_over
            .iter()
            .map(|c| CarryOverRow {
                workload: c.workload.clone(),
                correlation: format!("{:+.2}", c.rank_correlation),
                p: format::p_value(c.p),
                n: c.n,
                // Bonferroni over the workloads: otherwise one in 20 checks would fail by chance
                // alone.
                shows: c.p * workloads < 0.05,
            })
            .collect(),
        boot: summary.boot_s.iter().map(|(topology, e)| (topology.clone(), seconds(e))).collect(),
        lab_cost: summary.lab_cpu_share.as_ref().map(share),
        truth: summary.truth.as_ref().map(truth),
    }
}

fn seconds(estimate: &Estimate) -> String {
    let figure = format!("{} s", format::number(estimate.value));
    format::with_interval(figure, &format::interval(estimate, format::number))
}

fn share(estimate: &Estimate) -> String {
    let percent = format::percent;
    format::with_interval(percent(estimate.value), &format::interval(estimate, percent))
}

fn truth(truth: &TruthError) -> Truth {
    Truth {
        injected: format::count(truth.injected),
        missing: format::count(truth.missing),
        rows: truth
            .by_length
            .iter()
            .map(|at| TruthRow {
                length: format!("{} ms", at.length_ms),
                n: at.n,
                median: format!("{} us", format::number(at.median_us)),
                max: format!("{} us", format::number(at.max_us)),
                beyond: format::percent(at.beyond),
            })
            .collect(),
    }
}

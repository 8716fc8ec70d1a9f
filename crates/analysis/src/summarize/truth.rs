//! Injected off intervals, compared with the observed ones, all runs together.

use std::collections::BTreeMap;

use unspin_model::RunRecord;
use unspin_model::summary::{TruthError, TruthErrorAt};
use unspin_stats::median;

/// An error counts as beyond only if it is more than this share of the true length...
const ERROR_SHARE: f64 = 0.05;
/// ... and more than this number of microseconds.
const ERROR_US: f64 = 100.0;

/// True and observed length of an injected interval in microseconds.
type Pair = (f64, f64);

/// Returns the errors by requested length; `None` if no injector ran.
pub fn truth(observed: &[&RunRecord]) -> Option<TruthError> {
    let checks: Vec<_> =
        observed.iter().filter_map(|r| r.truth.as_ref()?.injected.as_ref()).collect();
    let mut by_length: BTreeMap<u64, Vec<Pair>> = BTreeMap::new();
    for [asked_us, true_us, observed_us] in checks.iter().flat_map(|check| &check.pairs_us) {
        let asked_ns = (asked_us * 1e3).round() as u64;
        by_length.entry(asked_ns).or_default().push((*true_us, *observed_us));
    }
    (!checks.is_empty()).then(|| TruthError {
        injected: checks.iter().map(|check| check.injected).sum(),
        missing: checks.iter().map(|check| check.missing).sum(),
        by_length: by_length.iter().filter_map(|(ns, pairs)| error_at(*ns, pairs)).collect(),
    })
}

fn error_at(asked_ns: u64, pairs: &[Pair]) -> Option<TruthErrorAt> {
    let errors_us: Vec<f64> = pairs.iter().map(error_us).collect();
    let beyond = pairs.iter().filter(|pair| error_us(pair) > allowed_us(pair)).count();
    Some(TruthErrorAt {
        length_ms: asked_ns as f64 / 1e6,
        n: pairs.len() as u64,
        median_us: median(&errors_us)?,
        max_us: errors_us.iter().copied().fold(0.0, f64::max),
        beyond: beyond as f64 / pairs.len() as f64,
    })
}

fn error_us((true_us, observed_us): &Pair) -> f64 {
    (observed_us - true_us).abs()
}

fn allowed_us((true_us, _): &Pair) -> f64 {
    (ERROR_SHARE * true_us).max(ERROR_US)
}

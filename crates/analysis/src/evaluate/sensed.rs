//! Claims about the findings of guests. They count off intervals, looks and waits over many runs.
//! The counts of one run depend on each other, so the interval comes from resampling the runs,
//! unless all or none of them count.

use unspin_model::sensed::{CauseCount, LENGTH_NAMES};
use unspin_model::summary::CellSummary;
use unspin_model::{ClaimSpec, SenseCheck, Summary};
use unspin_stats::{Bootstrap, Interval, wilson};

use super::{Figure, estimate, scaled};

/// Every run's check, cell by cell (of the spec's topology and scheduler).
pub struct Checks<'a> {
    cells: Vec<&'a [SenseCheck]>,
    bootstrap: Bootstrap,
}

impl<'a> Checks<'a> {
    /// Returns the checks of a spec; `None` if no guest recorded.
    pub fn of(spec: &ClaimSpec, summary: &'a Summary) -> Option<Checks<'a>> {
        let is = |asked: &Option<String>, name: &String| asked.as_ref().is_none_or(|a| a == name);
        let wanted = |cell: &&CellSummary| {
            is(&spec.topology, &cell.cell.topology) && is(&spec.scheduler, &cell.cell.scheduler)
        };
        let cells = summary.cells.iter().filter(wanted).map(|cell| &cell.sensed_runs[..]);
        let cells: Vec<&[SenseCheck]> = cells.filter(|runs| !runs.is_empty()).collect();
        let bootstrap = Bootstrap::seeded(summary.experiment.seed);
        (!cells.is_empty()).then_some(Checks { cells, bootstrap })
    }

    /// Returns the share of true off intervals that the guest found, by class of length, or of one
    /// class.
    pub fn recalls(&self, length: Option<&str>) -> Vec<Figure> {
        let wanted = |name: &str| length.is_none_or(|length| length == name);
        let classes = LENGTH_NAMES.iter().enumerate().filter(|(_, name)| wanted(name));
        let recall = |(class, name): (usize, &&str)| {
            let of = |check: &SenseCheck| check.by_length.get(class).copied().unwrap_or_default();
            let count = |check: &SenseCheck| of(check)[0];
            let percent = self.percent(count, |check| {
                let [real, found] = of(check);
                [found as f64, real as f64]
            });
            Figure { replace: vec![("{length}", (*name).to_owned())], ..percent }
        };
        classes.map(recall).collect()
    }

    /// Returns the share of the off intervals found that are true.
    pub fn precision(&self) -> Figure {
        self.percent(|check| check.found, |check| [check.real as f64, check.found as f64])
    }

    /// Returns the share of looks at vCPUs that were off which found them off.
    pub fn remote(&self) -> Figure {
        let off = |check: &SenseCheck| check.looks_off;
        self.percent(|check| off(check)[0], |check| [off(check)[1] as f64, off(check)[0] as f64])
    }

    /// Returns the share of waits whose reported cause is right.
    pub fn causes(&self) -> Figure {
        let right = |count: &CauseCount| count.real == count.told;
        let all = |check: &SenseCheck| waits(check, |_| true);
        self.percent(all, |check| [waits(check, right) as f64, all(check) as f64])
    }

    /// Returns the waits for which the guest wrongly reported an off vCPU as the cause, or did not,
    /// as a share of those that an off vCPU caused.
    pub fn miscounted(&self) -> Figure {
        let wrong = |count: &CauseCount| count.told.by_off() != count.real.by_off();
        let real = |check: &SenseCheck| waits(check, |count| count.real.by_off());
        self.percent(real, |check| [waits(check, wrong) as f64, real(check) as f64])
    }

    /// Returns the reported share of the time for which an off vCPU prolonged waits.
    pub fn kept(&self) -> Figure {
        self.percent(|check| waits(check, |_| true), |check| check.kept_s)
    }

    /// Returns a part of a whole over all runs, and the number that `count` gives.
    fn percent(
        &self,
        count: impl Fn(&SenseCheck) -> u64,
        part_and_whole: impl Fn(&SenseCheck) -> [f64; 2],
    ) -> Figure {
        let n = self.cells.iter().copied().flatten().map(count).sum();
        let of_cell = |runs: &&[SenseCheck]| runs.iter().map(&part_and_whole).collect();
        let cells: Vec<Vec<[f64; 2]>> = self.cells.iter().map(of_cell).collect();
        let share = all_or_none(&cells, n).or_else(|| self.bootstrap.share(&cells));
        Figure::of_all(share.map(|share| scaled(estimate(share), 100.0)), n, "%")
    }
}

/// Returns the share if all or none of `n` are the part. No resample differs then, and an interval
/// without width would claim that none ever will; so the interval is Wilson's.
fn all_or_none(cells: &[Vec<[f64; 2]>], n: u64) -> Option<Interval> {
    let add = |sum: [f64; 2], run: &[f64; 2]| [sum[0] + run[0], sum[1] + run[1]];
    let [part, whole] = cells.iter().flatten().fold([0.0; 2], add);
    let is_count = whole == n as f64;
    if is_count && (part == 0.0 || part == whole) { wilson(part as u64, n) } else { None }
}

fn waits(check: &SenseCheck, wanted: impl Fn(&CauseCount) -> bool) -> u64 {
    check.causes.iter().filter(|count| wanted(count)).map(|count| count.waits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_model::episode::Cause;

    fn check(found_of_100: u64, told: Cause) -> SenseCheck {
        let mut check = SenseCheck {
            by_length: vec![[0, 0], [100, found_of_100], [10, 10], [0, 0]],
            found: 50,
            real: 40,
            looks_off: [20, 19],
            kept_s: [1.1, 1.0],
            ..SenseCheck::default()
        };
        check.add_waits(Cause::HolderOff, told, 10);
        check.add_waits(Cause::Plain, Cause::Plain, 30);
        check
    }

    #[test]
    fn figures_are_of_all_runs_and_vary_as_they_do() {
        let pair = vec![check(99, Cause::HolderOff), check(81, Cause::Plain)];
        let runs = [pair.clone(), pair.clone(), pair].concat();
        let checks = Checks { cells: vec![&runs], bootstrap: Bootstrap::seeded(1) };
        let is = |figure: &Figure, value: f64, n: u64, varies: bool| {
            let found = figure.estimate.expect("runs");
            let near = (found.value - value).abs() < 1e-9;
            assert!(near && figure.n == n && (found.hi - found.lo > 1.0) == varies, "{found:?}");
        };
        is(&checks.recalls(Some("1"))[0], 90.0, 600, true);
        // No resample differs, but 60 of 60 do not prove that all will.
        is(&checks.recalls(Some("3"))[0], 100.0, 60, true);
        assert!(checks.recalls(Some("10"))[0].estimate.is_none());
        assert_eq!(checks.recalls(None).len(), LENGTH_NAMES.len());
        is(&checks.precision(), 80.0, 300, false);
        is(&checks.remote(), 95.0, 120, false);
        is(&checks.causes(), 87.5, 240, true);
        is(&checks.miscounted(), 50.0, 60, true);
        is(&checks.kept(), 110.0, 240, false);
    }

    #[test]
    fn a_waiter_that_was_off_is_a_vcpu_that_was_off() {
        let mut check = SenseCheck::default();
        check.add_waits(Cause::HolderOff, Cause::WaiterOff, 3);
        check.add_waits(Cause::HolderOff, Cause::Plain, 1);
        let cells = vec![std::slice::from_ref(&check)];
        let found = Checks { cells, bootstrap: Bootstrap::seeded(1) }.miscounted();
        assert_eq!((found.estimate.map(|estimate| estimate.value), found.n), (Some(25.0), 4));
    }
}

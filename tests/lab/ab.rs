//! `unspin run --ab` in a guest with four vCPUs on two pCPUs: its verdicts on a job that spins and
//! on one that does not, and its exits. Virtual time keeps a busy machine from deciding the
//! verdict.

use libtest_mimic::Failed;

use crate::bench::{Bench, check, experiment, guest_scripts};
use crate::virtual_time::vt_guest;
use crate::{Case, Plain, Takes, Test};

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    let vt = |name, takes, test: Plain| {
        let test = Test::Plain(test);
        Case { name, needs: Some(vt_guest), takes, test }
    };
    vec![
        vt("ab_leaves_nothing_behind", Takes::Little, || ratio("ab_ends", ABANDONED).map(drop)),
        vt("ab_praises_unspin_for_what_spins", Takes::Minutes, || {
            is_above("ab_spins", ABANDONED, 1.5)
        }),
        vt("ab_shows_no_gain_of_what_computes", Takes::Minutes, || {
            is_above("ab_computes", PV, 0.9)
        }),
        vt("ab_compares_what_runs_anyway", Takes::Minutes, || is_above("ab_intervals", PV, 0.9)),
    ]
}

/// A guest that loses most by spinning. In its first second, a program with threads spins even if
/// its own code does not: here, `sysbench cpu --time=1` is nine times faster under unspin.
const ABANDONED: &str = "abandoned";
/// A guest with the hypervisor's PV help.
const PV: &str = "pv";

/// Checks that a script, which checks its own verdict, finds at least this ratio of speeds.
fn is_above(script: &str, regime: &str, ratio_min: f64) -> Result<(), Failed> {
    let ratio = ratio(script, regime)?;
    if ratio < ratio_min {
        return Err(format!("{script}: {ratio}x the speed, at least {ratio_min}x expected").into());
    }
    Ok(())
}

/// Runs a script of `guest/` and returns its `result`.
fn ratio(script: &str, regime: &str) -> Result<f64, Failed> {
    let vt = format!("vt = {{ instructions = 1, regime = {regime:?} }}");
    let more = format!("accel = \"vt\"\ntime_limit_s = 240\n{vt}");
    let text = experiment(&["try.toml"], &more, "").replace("vcpus = 2", "vcpus = 4");
    let bench = Bench::new(&text);
    let folder = guest_scripts();
    bench.write(
        "try.toml",
        &format!(
            "name = \"try\"\ntitle = \"{script}\"\nstresses = \"nothing\"\n\
             programs = [\"unspin\", \"stress-ng\", \"sysbench\"]\nfiles = [{folder:?}]\n\
             command = [\"sh\", \"{}/{script}.sh\"]\ntime_limit_s = 240\n\
             metric = {{ name = \"figure\", unit = \"1/s\", better = \"higher\" }}\n\
             read = {{ regex = 'result (\\S+)' }}\n",
            folder.display()
        ),
    );
    let output = bench.run();
    check(output.status.success(), &format!("{:#?}", bench.records()), &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["outcome"], "done", "{record:#}");
    record["value"].as_f64().ok_or_else(|| format!("no value in {record:#}").into())
}

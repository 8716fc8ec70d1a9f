//! `unspin run --ab` in a guest with four vCPUs on two pCPUs: its verdict on a job that spins and
//! on one that does not, and how it ends. In virtual time, so that no busy machine decides.

use libtest_mimic::Failed;

use crate::bench::{Bench, check, experiment};
use crate::virtual_time::vt_guest;
use crate::{Case, Takes};

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let vt = |name, takes, test| Case { name, needs: Some(vt_guest), takes, test };
    vec![
        vt("ab_leaves_nothing_behind", Takes::Little, || ratio("ab_ends").map(drop)),
        vt("ab_praises_unspin_for_what_spins", Takes::Minutes, || is_above("ab_spins", 1.5)),
        vt("ab_shows_no_gain_of_what_computes", Takes::Minutes, || is_above("ab_computes", 0.9)),
        vt("ab_compares_what_runs_anyway", Takes::Minutes, || is_above("ab_intervals", 1.03)),
    ]
}

/// The ratio of speeds that a script found, whose verdict it has checked.
fn is_above(script: &str, ratio_min: f64) -> Result<(), Failed> {
    let ratio = ratio(script)?;
    if ratio < ratio_min {
        return Err(format!("{script}: {ratio}x the speed, at least {ratio_min}x expected").into());
    }
    Ok(())
}

/// Runs a script of `guest/` in an abandoned guest, which loses most by spinning, and returns its
/// `result`.
fn ratio(script: &str) -> Result<f64, Failed> {
    let more = "accel = \"vt\"\ntime_limit_s = 240\n\
                vt = { instructions = 1, regime = \"abandoned\" }";
    let text = experiment(&["try.toml"], more, "").replace("vcpus = 2", "vcpus = 4");
    let bench = Bench::new(&text);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lab/guest");
    let folder = std::fs::canonicalize(folder).expect("the scripts");
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
    let output = bench.lab_run_with(&["--accel", "vt"]).output()?;
    check(output.status.success(), &format!("{:#?}", bench.records()), &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["outcome"], "done", "{record:#}");
    record["value"].as_f64().ok_or_else(|| format!("no value in {record:#}").into())
}

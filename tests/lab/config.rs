//! Cases without a guest: malformed files, dry runs, generated pages.

use std::process::Command;

use libtest_mimic::Failed;

use crate::bench::{Bench, UNSPIN, check, experiment};

/// Checks that a malformed file exits with 2, and that the error has file, line and valid choices.
pub fn malformed_toml() -> Result<(), Failed> {
    let good = experiment(&["greedy"], "", "");
    let cases = [
        ("repeats = 1", "repeat = 1", "x.toml:4:1: unknown field `repeat`, expected one of"),
        ("vcpus = 2", "vcpus = \"two\"", "x.toml:11:9: invalid type"),
        ("greedy", "gredy", "unknown workload `gredy`, expected one of `"),
        ("\"stock\"", "\"hold\"", "unknown scheduler `hold`, expected `stock`, `tuned`"),
        ("kernels = [\"debian-cloud\"]", "kernels = 3", "x.toml:5:11: invalid type"),
    ];
    for (from, to, expected) in cases {
        let bench = Bench::new(&good.replacen(from, to, 1));
        let output = bench.run();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let right = output.status.code() == Some(2) && stderr.contains(expected);
        check(right, &format!("`{to}` should end with 2 and say `{expected}`"), &output)?;
    }
    Ok(())
}

/// Checks that the error of too many pCPUs has the line and the available number.
pub fn impossible_topology() -> Result<(), Failed> {
    let bench = Bench::new(&experiment(&["greedy"], "", "").replace("pcpus = 2", "pcpus = 4096"));
    let output = bench.run_in_real_time();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let says = stderr.contains("x.toml:12:9: 4096 pCPUs are asked for, this machine offers");
    check(output.status.code() == Some(2) && says, "the line and the offer", &output)
}

/// Checks the error of a name that is not shipped.
pub fn unknown_experiment() -> Result<(), Failed> {
    let output = Command::new(&*UNSPIN).args(["lab", "run", "quickstrat"]).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let says = stderr.contains("Is it `quickstart`?") && stderr.contains("`unspin lab list`");
    check(output.status.code() == Some(2) && says, "the name that was meant", &output)
}

/// Checks that a dry run counts the runs, but neither runs them nor writes files.
pub fn dry_run() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let dry_run = |more: &[&str]| {
        let args = ["lab", "run", "quickstart", "--dry-run", "--json"];
        Command::new(&*UNSPIN).current_dir(folder.path()).args(args).args(more).output()
    };
    let output = dry_run(&[])?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let right =
        told["runs"] == 60 && told["boots"] == 60 && told["expected_s"].as_f64() > Some(0.0);
    check(right, "6 repeats of 5 workloads under 2 schedulers", &output)?;
    let output = dry_run(&["--runs", "0-9"])?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    check(told["runs"] == 10 && told["planned"] == 60, "the selected runs", &output)?;
    check(std::fs::read_dir(folder.path())?.next().is_none(), "no file", &output)?;
    let output = dry_run(&["--runs", "60"])?;
    check(output.status.code() == Some(2), "refused as by the run itself", &output)
}

/// Checks that every shipped experiment is valid and listed.
pub fn shipped_experiments_parse() -> Result<(), Failed> {
    let output = Command::new(&*UNSPIN).args(["lab", "list", "--json"]).output()?;
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let listed = listed["experiments"].as_array().cloned().unwrap_or_default();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let one = listed.iter().find(|one| one["name"] == name.as_str());
        let right = one.is_some_and(|one| {
            one["runs"].as_u64() > Some(0) && one["title"].as_str().is_some_and(|it| !it.is_empty())
        });
        check(right, &format!("{name} is shipped and valid"), &output)?;
    }
    Ok(())
}

/// Checks the pages and completions that the program generates from its own definition.
pub fn man_and_completions() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let output = Command::new(&*UNSPIN).arg("man").arg(folder.path()).output()?;
    check(folder.path().join("unspin-lab-run.1").exists(), "a page a verb", &output)?;
    let output = Command::new(&*UNSPIN).args(["completions", "bash"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    check(text.contains("--dry-run"), "completions know the options", &output)
}

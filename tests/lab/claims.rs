//! `unspin claims check` with real runs.

use std::fs;
use std::process::{Command, Output};

use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::bench::{Bench, UNSPIN, check, experiment, records};

/// Checks that each call measures in a new folder, and reports whether targets are met or missed.
pub fn check_measures_each_time() -> Result<(), Failed> {
    let bench = Bench::new(&experiment(&["fine.toml"], "accel = \"vt\"", "")).workload(
        "fine",
        "echo result 1",
        "",
    );
    fs::create_dir(bench.path("claims"))?;
    bench.write(
        "claims/x.toml",
        "[[claim]]\nid = \"x.all\"\nwhat = \"runs that end\"\nfrom = \"finished-share\"\ntarget = \">= 50\"\n\
         [[claim]]\nid = \"x.none\"\nwhat = \"the same\"\nfrom = \"finished-share\"\ntarget = \"<= 1\"\n",
    );
    let claim = |id: &str, target: &str, value: f64| {
        json!({"id": id, "what": "", "value": value, "lo": null, "hi": null, "n": 1, "unit": "%",
            "target": target, "holds": null, "label": "lab/vt, kernel 7", "experiment": "x.toml",
            "command": "", "date": "", "commit": ""})
    };
    let claims = json!([claim("x.all", ">= 50", 100.0), claim("x.none", "<= 1", 100.0)]);
    bench.write("claims.json", &claims.to_string());
    let checked = |id: &str| -> std::io::Result<Output> {
        let args = ["claims", "check", id, "--json", "--file", "claims.json"];
        Command::new(&*UNSPIN).args(args).current_dir(bench.path("")).output()
    };
    let output = checked("x.*")?;
    check(output.status.success(), "met, and still missed", &output)?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let findings: Vec<&str> = found["claims"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["finding"].as_str())
        .collect();
    assert_eq!(findings, ["met", "still-missed"]);
    bench.write("claims.json", &json!([claim("x.none", "<= 1", 0.0)]).to_string());
    let output = checked("x.none")?;
    check(output.status.code() == Some(1), "now missed", &output)?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("now-missed"));
    let folders = fs::read_dir(bench.path("out/check"))?.flatten();
    let runs: Vec<_> = folders.map(|entry| records(&entry.path().join("runs.jsonl"))).collect();
    assert!(runs.len() == 2 && runs.iter().all(|runs| !runs.is_empty()), "{runs:?}");
    assert_eq!(runs[0][0]["identity"], runs[1][0]["identity"], "the same run twice");
    let output = checked("nothing")?;
    check(output.status.code() == Some(2), "a pattern that matches nothing", &output)
}

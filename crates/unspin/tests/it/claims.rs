//! Derives every figure of `results/claims.json` again from the committed runs, and compares all
//! digits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use unspin_model::Claim;

/// Claims that do not follow from committed runs, each with the reason.
const NOT_DERIVED: &[(&str, &str)] = &[
    ("lab.aa_false_positive", "its runs were not kept"),
    ("lab.cost", "its runs were not kept"),
    ("lab.start_s", "its runs were not kept"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn unspin(folder: &Path, args: &[&str]) -> Output {
    let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
    unspin.current_dir(folder).args(args).output().expect("start unspin")
}

fn stated() -> Vec<Claim> {
    let text = fs::read_to_string(root().join("results/claims.json")).expect("claims");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the folders of committed runs that claims follow from. The demo has no claims.
fn folders() -> Vec<String> {
    let all = fs::read_dir(root().join("results")).expect("results/ is there").flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let of_claims = |name: &String| root().join(format!("claims/{name}.toml")).exists();
    let mut names: Vec<String> = names.filter(of_claims).collect();
    names.sort();
    names.into_iter().map(|name| format!("results/{name}")).collect()
}

#[test]
fn missed_claims_have_a_reason() {
    let missed = |claim: &Claim| claim.holds == Some(false) && claim.reason.is_empty();
    let without: Vec<_> = stated().into_iter().filter(missed).map(|claim| claim.id).collect();
    assert!(without.is_empty(), "no reason is stated for {without:?}");
}

#[test]
fn claims_follow_from_the_committed_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("claims.json").display().to_string();
    let folders = folders();
    assert!(folders.len() > 10, "{folders:?}");
    // `--partial`, because one folder holds only half of its runs.
    let mut args = vec!["claims", "record", "--partial", "--json", "--file", &file];
    args.extend(folders.iter().map(String::as_str));
    let output = unspin(&root(), &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let derived: Vec<Claim> = serde_json::from_value(printed["claims"].take()).expect("claims");
    let mut derived: BTreeMap<String, Claim> =
        derived.into_iter().map(|claim| (claim.id.clone(), claim)).collect();
    let mut wrong = Vec::new();
    let mut without = Vec::new();
    for claim in stated().iter().filter(|claim| claim.experiment.starts_with("experiments/")) {
        match derived.remove(&claim.id) {
            Some(found) if found == *claim => {}
            Some(found) => wrong.push(format!("stated {claim:?}\nderived {found:?}")),
            None => without.push((claim.id.clone(), claim.not_derived.clone())),
        }
    }
    let how = "run `unspin claims record --partial results/*/` and render the documents";
    assert!(wrong.is_empty(), "{how}:\n{}", wrong.join("\n"));
    assert!(derived.is_empty(), "{how}; not stated: {:?}", derived.keys());
    let known = NOT_DERIVED.iter().map(|(id, reason)| ((*id).to_owned(), (*reason).to_owned()));
    assert_eq!(without, known.collect::<Vec<_>>());
}

#[test]
fn every_claim_is_judged_by_its_target() {
    for claim in stated() {
        let mut judged = claim.clone();
        judged.judge().unwrap_or_else(|error| panic!("{}: {error}", claim.id));
        assert_eq!(judged, claim);
    }
}

#[test]
fn outside_of_a_checkout_the_missing_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for args in [&["claims"][..], &["claims", "list", "--json"], &["claims", "check", "lab.cost"]] {
        let output = unspin(folder.path(), args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let place = folder.path().canonicalize().expect("a path").display().to_string();
        let says = stderr.contains("results/claims.json: no such file") && stderr.contains(&place);
        assert!(output.status.code() == Some(2) && says, "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_claim_out_of_date_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("claims.json");
    let changed =
        |claim: Claim| Claim { n: claim.n + u64::from(claim.id == "lab.truth_beyond"), ..claim };
    let claims: Vec<Claim> = stated().into_iter().map(changed).collect();
    fs::write(&file, serde_json::to_string(&claims).expect("JSON")).expect("write");
    let file = file.display().to_string();
    let check = ["claims", "record", "--check", "results/truth", "--file", &file];
    let output = unspin(&root(), &check);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("`lab.truth_beyond` is out of date"), "{stderr}");
    assert!(!stderr.contains("lab.truth_error_us"), "{stderr}");
    assert_eq!(unspin(&root(), &check[..4]).status.code(), Some(0));
}

#[test]
fn a_folder_that_lacks_runs_is_refused_unless_it_is_said_to_be_partial() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("claims.json");
    let name = file.display().to_string();
    let record = ["claims", "record", "results/vt-ab", "--file", &name];
    let output = unspin(&root(), &record);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let says = stderr.contains("40 of 80 planned runs have no record")
        && stderr.contains("unspin lab run experiments/vt-ab.toml --out results/vt-ab")
        && stderr.contains("--partial");
    assert!(output.status.code() == Some(1) && says && !file.exists(), "{stderr}");
    assert!(unspin(&root(), &[&record[..], &["--partial"]].concat()).status.success());
    assert!(unspin(&root(), &[&record[..], &["--check"]].concat()).status.success());
}

#[test]
fn a_claim_without_a_figure_is_named_and_one_about_nothing_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("claims")).expect("a folder");
    let runs = root().join("results/truth").display().to_string();
    let record = |topology: &str| {
        let text = format!(
            r#"[[claim]]
id = "measured"
what = "x"
from = "truth-beyond"

[[claim]]
id = "mistaken.{{workload}}"
what = "x"
from = "figure-median"
figure = "nobody_measures_it"
topology = "{topology}"
"#
        );
        fs::write(folder.path().join("claims/truth.toml"), text).expect("write");
        let args = ["claims", "record", &runs, "--json", "--file", "claims.json"];
        let output = unspin(folder.path(), &args);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let noted = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), printed, noted)
    };
    let (status, printed, noted) = record("pinned");
    let named = noted.contains("claim `mistaken.{workload}` is not measured: no cell");
    assert!(status == Some(0) && named && printed.contains("\"measured\""), "{noted}{printed}");
    let (status, printed, noted) = record("elsewhere");
    let named = noted.contains("claims/truth.toml:11:1: the experiment has no `elsewhere`; it has");
    assert!(status == Some(2) && named && printed.is_empty(), "{noted}{printed}");
}

#[test]
fn a_claim_has_one_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("claims.json").display().to_string();
    let record = ["claims", "record", "results/truth", "results/truth/", "--file", &file];
    let output = unspin(&root(), &record);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let says = stderr.contains("follows from results/truth and from results/truth/");
    assert!(output.status.code() == Some(1) && says, "{stderr}");
}

#[test]
fn what_no_longer_follows_from_its_runs_is_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("claims.json");
    let mut claims = stated();
    let before = claims.len();
    let truth = claims.iter().find(|claim| claim.id == "lab.truth_beyond").expect("a claim");
    claims.push(Claim { id: "lab.truth_renamed".into(), ..truth.clone() });
    fs::write(&file, serde_json::to_string(&claims).expect("JSON")).expect("write");
    let name = file.display().to_string();
    let record = ["claims", "record", "results/truth", "--file", &name];
    let checked = unspin(&root(), &[&record[..], &["--check"]].concat());
    assert_eq!(checked.status.code(), Some(1));
    let recorded = unspin(&root(), &record);
    assert!(recorded.status.success());
    for output in [checked, recorded] {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("`lab.truth_renamed` no longer follows"), "{stderr}");
    }
    let left = fs::read_to_string(&file).expect("claims");
    let left: Vec<Claim> = serde_json::from_str(&left).expect("JSON");
    assert_eq!(left.len(), before);
    assert!(left.iter().all(|claim| claim.id != "lab.truth_renamed"));
}

#[test]
fn a_script_cannot_state_what_it_did_not_measure() {
    let folder = tempfile::tempdir().expect("a folder");
    let of_script = folder.path().join("out.json");
    let mut claim = stated().remove(0);
    claim.value = None;
    claim.experiment = "scripts/vmm.py".into();
    let write = |claims: &[Claim]| {
        fs::write(&of_script, serde_json::to_string(claims).expect("JSON")).expect("write");
    };
    let file = folder.path().join("claims.json");
    let [source, name] = [&of_script, &file].map(|path| path.display().to_string());
    let record = ["claims", "record", &source, "--file", &name];
    write(std::slice::from_ref(&claim));
    let output = unspin(&root(), &record);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let says = stderr.contains(&format!("claim `{}` is not measured", claim.id));
    assert!(output.status.code() == Some(1) && says && !file.exists(), "{stderr}");
    claim.value = Some(1.0);
    write(&[claim.clone(), claim]);
    let output = unspin(&root(), &record);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("is there twice"), "{stderr}");
}

#[test]
fn plots_and_documents_are_listed_as_json() {
    for args in [
        &["claims", "plot", "--check", "--json"][..],
        &["claims", "render", "--check", "--json", "README.md"],
    ] {
        let output = unspin(&root(), args);
        let made: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(made["files"][0]["state"], "up-to-date", "{args:?}: {made}");
    }
}

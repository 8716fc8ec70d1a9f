//! Files by mistake: shipped files with damaged lines.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::{Experiment, claims};
use crate::workload::Workload;

/// Replacements for values.
const VALUES: [&str; 14] = [
    "0",
    "-1",
    "1",
    "4294967296",
    "9223372036854775807",
    "1e308",
    "nan",
    "\"\"",
    "\"stock\"",
    "\"../x\"",
    "[]",
    "[[]]",
    "{}",
    "true",
];

/// Returns the texts of the files in a folder of the checkout.
fn shipped(folder: &str) -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let files = std::fs::read_dir(folder).expect("a folder of the checkout").flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|it| it == "toml"));
    files.map(|file| std::fs::read_to_string(file.path()).expect("a text")).collect()
}

/// Generates a shipped file with lines changed, left out, repeated or swapped, or with its end cut
/// off.
fn damaged(folder: &str) -> impl Strategy<Value = String> {
    let steps =
        prop::collection::vec((0..5_u32, any::<prop::sample::Index>(), 0..VALUES.len()), 1..4);
    (prop::sample::select(shipped(folder)), steps).prop_map(|(text, steps)| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (step, place, value) in steps {
            if lines.is_empty() {
                break;
            }
            let at = place.index(lines.len());
            match (step, lines[at].split_once(" = ")) {
                (0 | 1, Some((key, _))) => lines[at] = format!("{key} = {}", VALUES[value]),
                (0 | 1, None) => lines[at] = VALUES[value].to_owned(),
                (2, _) => drop(lines.remove(at)),
                (3, _) => lines.insert(at, lines[at].clone()),
                _ => lines[at] = lines[at].chars().take(lines[at].chars().count() / 2).collect(),
            }
        }
        lines.join("\n")
    })
}

/// Asserts that a file is either read, or that the error names the file and the fault.
fn says<T, E: ToString>(read: Result<T, E>) -> Result<(), TestCaseError> {
    if let Err(error) = read {
        let error = error.to_string();
        prop_assert!(error.contains("x.toml") && error.len() > "x.toml: ".len(), "{}", error);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn experiments_are_read_or_refused(text in damaged("experiments")) {
        says(Experiment::parse(Path::new("x.toml"), &text))?;
    }

    #[test]
    fn workloads_are_read_or_refused(text in damaged("workloads")) {
        says(Workload::parse(Path::new("x.toml"), &text))?;
    }

    #[test]
    fn claims_are_read_or_refused(text in damaged("claims")) {
        says(claims::parse(Path::new("x.toml"), &text))?;
    }
}

//! Every shipped workload parses and reads real output of its program.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_file_is_compiled_in_under_its_own_name() {
    let files: BTreeSet<String> = fs::read_dir(repository().join("workloads"))
        .unwrap()
        .filter_map(|entry| {
            Some(entry.unwrap().file_name().to_str()?.strip_suffix(".toml")?.into())
        })
        .collect();
    let names: BTreeSet<String> = builtin_names().map(String::from).collect();
    assert_eq!(names, files);
    for name in builtin_names() {
        assert_eq!(builtin(name).unwrap().name, name);
    }
    assert!(builtin("nonesuch").is_none());
}

#[test]
fn programs_are_packaged_or_our_own() {
    for workload in builtin_names().filter_map(builtin) {
        let foreign = workload.programs.iter().any(|program| program != "spinbench");
        assert_eq!(foreign, !workload.packages.is_empty(), "{}", workload.name);
        let argv = workload.argv(4);
        let known = workload.programs.contains(&argv[0]) || ["sh", "sleep"].contains(&&*argv[0]);
        assert!(known, "{}: `{}` is not in the guest", workload.name, argv[0]);
    }
}

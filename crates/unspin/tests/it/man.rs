//! Checks the man pages that `unspin man` writes.

use std::fs;
use std::process::Command;

#[test]
fn every_page_has_examples_statuses_and_relatives() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
    let done = unspin.arg("man").arg(folder.path()).output().expect("start unspin");
    assert!(done.status.success(), "{done:?}");
    let pages: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    assert!(pages.len() > 20, "{}", pages.len());
    for page in &pages {
        let text = fs::read_to_string(page.path()).expect("a page");
        for title in [".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\""] {
            let mut lines = text.lines().skip_while(|line| *line != title);
            assert!(lines.next().is_some(), "{:?} has no {title}", page.path());
            let body = lines.next().unwrap_or_default();
            assert!(!body.is_empty() && !body.starts_with(".SH"), "{:?}: {title}", page.path());
        }
        let (_, relatives) = text.split_once("SEE ALSO\"\n").expect("a section");
        for name in relatives.lines().next().unwrap_or_default().replace("\\-", "-").split(", ") {
            let file = format!("{}.1", name.trim_end_matches("(1)"));
            assert!(folder.path().join(&file).exists(), "{:?} refers to {file}", page.path());
        }
    }
    let trace = fs::read_to_string(folder.path().join("unspin-trace.1")).expect("a page");
    assert!(trace.contains("perf record \\-a"), "{trace}");
}

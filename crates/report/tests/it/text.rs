//! Golden tests of the text for terminals and Markdown.

use unspin_model::summary::Verdict;
use unspin_report::terminal::Style;
use unspin_report::{markdown, terminal, view};

use crate::common;

fn table(width: usize) -> String {
    let report = Some("out/report.html".to_string());
    terminal::table(&common::few(), &Style { width, colour: false, report })
}

#[test]
fn terminal_of_100_columns() {
    insta::assert_snapshot!(table(100));
}

#[test]
fn terminal_of_80_columns() {
    insta::assert_snapshot!(table(80));
}

#[test]
fn a_comparison_without_a_ratio_says_who_did_not_finish() {
    let summary = common::few();
    let without = summary.comparisons.iter().find(|comparison| comparison.ratio.is_none());
    let mut comparison = without.expect("a baseline did not finish").clone();
    comparison.verdict = Verdict::NoDifferenceShown;
    assert_eq!(view::ratio_text(&comparison), "stock did not finish");
    comparison.subject_finished = false;
    assert_eq!(view::ratio_text(&comparison), "neither finished");
}

#[test]
fn a_label_that_reads_the_same_on_two_machines_is_shown_once() {
    let mut summary = common::few();
    let mut other = summary.labels[0].clone();
    other.host = "another machine".into();
    summary.labels.push(other);
    let style = Style { width: 100, colour: false, report: Some("out/report.html".into()) };
    assert_eq!(terminal::table(&summary, &style), table(100));
}

#[test]
fn tables_stay_within_their_width() {
    for width in [80, 100, 160] {
        let text = terminal::table(&common::summary(), &Style { width, ..Style::default() });
        let lines: Vec<_> = text.lines().filter(|l| l.chars().count() > width).collect();
        assert!(lines.is_empty(), "{width}: {lines:#?}");
    }
}

#[test]
fn long_names_are_cut_and_tiny_windows_do_no_harm() {
    let mut summary = common::few();
    for cell in &mut summary.cells {
        cell.cell.scheduler += &"x".repeat(100);
        cell.cell.topology += &"y".repeat(100);
    }
    let style = |width| Style { width, ..Style::default() };
    let text = terminal::table(&summary, &style(80));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for width in [0, 1, 2, 20] {
        assert!(!terminal::table(&summary, &style(width)).is_empty());
    }
}

#[test]
fn colour_is_only_added() {
    let style = Style { colour: true, ..Style::default() };
    let coloured = terminal::table(&common::few(), &style);
    let plain = terminal::table(&common::few(), &Style::default());
    let mut stripped = String::new();
    for part in coloured.split('\u{1b}') {
        stripped += match part.split_once('m') {
            Some((code, rest)) if code.starts_with('[') => rest,
            _ => part,
        };
    }
    assert_ne!(coloured, plain);
    assert_eq!(stripped, plain);
}

#[test]
fn hostile_names_cannot_steer_the_terminal() {
    let mut summary = common::few();
    summary.cells[0].cell.workload = "evil\u{1b}]0;title\u{7}\nfake".into();
    summary.experiment.name = "\u{1b}[2J".into();
    let text = terminal::table(&summary, &Style::default());
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'));
    assert!(!text.lines().any(|line| line.starts_with("fake")));
}

#[test]
fn an_experiment_without_runs_still_has_a_table() {
    let mut empty = common::few();
    empty.cells.clear();
    empty.comparisons.clear();
    assert!(terminal::table(&empty, &Style::default()).contains("0 cells"));
}

#[test]
fn cells_without_a_comparison_are_shown() {
    let mut summary = common::few();
    summary.comparisons.retain(|c| c.subject.scheduler == "oracle");
    let text = terminal::table(&summary, &Style::default());
    assert_eq!(text.matches("scx_bpfland").count(), 6, "{text}");
}

#[test]
fn too_few_runs_are_told() {
    let warning = "with n = 2 and 16 comparisons, no difference can be shown";
    let told = |summary| {
        let text = terminal::table(&summary, &Style { width: 160, ..Style::default() });
        (text.contains(warning), markdown::document(&summary).contains(warning))
    };
    assert_eq!(told(common::few()), (false, false));
    let mut summary = common::few();
    summary.cells.iter_mut().for_each(|cell| cell.n = 2);
    summary.comparisons.iter_mut().for_each(|it| it.verdict = Verdict::TooFewRuns);
    assert!(markdown::document(&summary).contains("| too few runs |"));
    assert_eq!(told(summary), (true, true));
}

#[test]
fn markdown_document() {
    insta::assert_snapshot!(markdown::document(&common::few()));
}

#[test]
fn markdown_is_escaped() {
    let mut summary = common::few();
    for cell in &mut summary.cells {
        cell.cell.scheduler = "a|b<i>`c`](x)\n".into();
    }
    summary.comparisons.clear();
    let text = markdown::document(&summary);
    assert!(text.contains("a\\|b&lt;i>\\`c\\`\\](x) "), "{text}");
}

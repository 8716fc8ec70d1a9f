//! The page needs no other file, and shows hostile names as text.

use unspin_model::summary::Summary;
use unspin_report::html;

use crate::common;

const HOSTILE: &str = "</title></svg><script src=\"https://evil.example/x.js\">alert('x')</script>\"'&{{ 7*7 }}\u{1b}[31m";

fn page() -> String {
    html::page(&common::summary()).unwrap()
}

/// Returns a summary in which every text is hostile.
fn hostile() -> Summary {
    let mut summary = common::few();
    let mut texts = vec![
        &mut summary.experiment.name,
        &mut summary.experiment.title,
        &mut summary.experiment.about,
        &mut summary.machine.cpu,
        &mut summary.machine.commit,
    ];
    for label in &mut summary.labels {
        texts.extend([&mut label.kernel, &mut label.host]);
    }
    texts.into_iter().for_each(|text| *text = HOSTILE.into());
    let mark = |cell: &mut unspin_model::Cell| {
        for text in [&mut cell.workload, &mut cell.topology, &mut cell.scheduler, &mut cell.kernel]
        {
            text.push_str(HOSTILE);
        }
    };
    for cell in &mut summary.cells {
        mark(&mut cell.cell);
        cell.metric.name = HOSTILE.into();
        cell.metric.unit = HOSTILE.into();
        cell.co_metrics.insert(HOSTILE.into(), 1.0);
        cell.kvm_per_s.insert(HOSTILE.into(), 1.0);
        cell.latencies.insert(HOSTILE.into(), vec![(0, vec![(f64::INFINITY, 1), (-1.0, 2)])]);
    }
    for comparison in &mut summary.comparisons {
        mark(&mut comparison.subject);
        mark(&mut comparison.baseline);
        comparison.choice = Some(HOSTILE.into());
        comparison.neighbours.insert(HOSTILE.into(), 0.5);
    }
    for entry in &mut summary.carry_over {
        entry.workload = HOSTILE.into();
    }
    summary.experiment.baseline_scheduler += HOSTILE;
    summary.experiment.baseline_topology = None;
    summary.experiment.workloads =
        summary.cells.iter().map(|c| (c.cell.workload.clone(), HOSTILE.into())).collect();
    summary.boot_s = summary.boot_s.into_values().map(|e| (HOSTILE.to_string(), e)).collect();
    summary
}

/// Returns the names of all elements, in order of appearance.
fn elements(html: &str) -> Vec<&str> {
    html.split('<')
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '!' && c != '/').next())
        .map(Option::unwrap_or_default)
        .collect()
}

#[test]
fn the_page_loads_nothing() {
    let page = page();
    for load in
        ["http:", "https:", "//", "<script", "<link", "<img", "<iframe", "@import", "url(", "src="]
    {
        assert!(!page.contains(load), "found `{load}`");
    }
    assert!(page.starts_with("<!doctype html>"));
}

#[test]
fn hostile_names_add_no_element_and_no_attribute() {
    let page = html::page(&hostile()).unwrap();
    let known = [
        "!doctype",
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "p",
        "span",
        "code",
        "h1",
        "h2",
        "h3",
        "small",
        "div",
        "ul",
        "li",
        "b",
        "i",
        "dl",
        "dt",
        "dd",
        "nav",
        "a",
        "section",
        "article",
        "figure",
        "figcaption",
        "details",
        "summary",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "footer",
        "svg",
        "g",
        "line",
        "rect",
        "circle",
        "path",
        "text",
    ];
    for element in elements(&page) {
        let name = element.trim_start_matches('/');
        assert!(known.contains(&name), "element `{name}`");
    }
    assert!(!page.contains("alert('x')"));
    assert!(page.contains("{{ 7*7 }}"), "a template within a name was run");
    assert!(!page.contains('\u{1b}'), "an escape character got through");
    assert!(page.contains("&lt;script"));
}

#[test]
fn every_element_that_opens_closes() {
    for page in [page(), html::page(&hostile()).unwrap()] {
        let count = |name: &str| elements(&page).iter().filter(|e| **e == name).count();
        for name in [
            "div", "section", "article", "table", "tr", "td", "th", "svg", "details", "ul", "li",
            "p", "span", "dl", "text",
        ] {
            assert_eq!(count(name), count(&format!("/{name}")), "{name}");
        }
    }
}

#[test]
fn every_run_is_a_point_in_both_sizes() {
    let summary = common::summary();
    let runs: usize = summary.cells.iter().map(|c| c.values.len()).sum();
    assert_eq!(page().matches("class=\"run s").count(), 2 * runs);
}

#[test]
fn the_page_says_where_its_figures_come_from() {
    let page = page();
    assert!(page.contains("<span class=\"badge tcg\""));
    assert!(page.contains("kernel 6.18.5+deb12-cloud-amd64"));
    assert!(page.contains("Software emulation"));
    let mut nested = common::few();
    nested.labels[0].nested = true;
    assert!(html::page(&nested).unwrap().contains("<span class=\"badge nested\""));
}

#[test]
fn an_experiment_without_runs_still_has_a_page() {
    let mut empty = common::summary();
    empty.cells.clear();
    empty.comparisons.clear();
    empty.labels.clear();
    let page = html::page(&empty).unwrap();
    assert!(page.contains("What overcommit costs"));
}

//! Golden tests of the tables of claims, and of the blocks within a document.

use unspin_model::Claim;
use unspin_report::claims::{BlockError, Detail, figure, markdown, render_blocks, terminal};

fn claim(id: &str, value: Option<f64>, unit: &str, target: &str, reason: &str) -> Claim {
    Claim {
        id: id.into(),
        what: format!("What {id} says | with a bar"),
        value,
        lo: value.map(|v| v * 0.9),
        hi: value.map(|v| v * 1.1),
        unbounded_below: false,
        n: 10,
        unit: unit.into(),
        target: target.into(),
        holds: (!target.is_empty()).then_some(reason.is_empty()),
        reason: reason.into(),
        label: "lab/tcg, kernel 6.18.5".into(),
        experiment: "experiments/overcommit-curve.toml".into(),
        command: "unspin claims check".into(),
        date: "2025-11-21".into(),
        commit: "c215c68".into(),
        not_derived: String::new(),
    }
}

fn claims() -> Vec<Claim> {
    vec![
        claim("lab.start_s", Some(5.21), "s", "<= 8", ""),
        claim("lab.loss.rename.2:1", Some(0.4), "x", "", ""),
        claim("lab.loss.hackbench.4:1", None, "x", "", ""),
        claim(
            "lab.nested_reliability",
            Some(0.91),
            "",
            ">= 0.95",
            "L2 boots die in RCU stalls on this QEMU; see the page on nested machines.",
        ),
    ]
}

#[test]
fn a_rounded_figure_does_not_contradict_its_result() {
    for (value, unit, target, text) in [
        (0.999_08, "x", ">= 1", "0.999x"),
        (0.968_745, "x", ">= 0.97", "0.969x"),
        (0.999_999_6, "x", ">= 1", "0.9999996x"),
        (1.000_2, "x", ">= 1", "1.00x"),
        (0.968_745, "x", "", "0.97x"),
        (94.96, "%", ">= 95", "94.96 %"),
        (8.004, "s", "<= 8", "8.004 s"),
        (12_346.0, "", "<= 12345", "12\u{202f}350"),
    ] {
        let claim = Claim { lo: None, hi: None, ..claim("x", Some(value), unit, target, "") };
        assert_eq!(figure(&claim), text, "{target}");
    }
    // The ends of the interval have as many digits as the figure.
    let missed = claim("x", Some(0.999_08), "x", ">= 1", "why");
    assert_eq!(figure(&missed), "0.999x [0.899, 1.099]");
}

#[test]
fn a_figure_without_a_bound_says_on_which_side() {
    let ratio = claim("x", None, "x", "", "");
    assert_eq!(figure(&ratio), "unbounded");
    let loss = Claim { unbounded_below: true, unit: "%".into(), ..ratio };
    assert_eq!(figure(&loss), "unbounded below");
    let open = Claim { lo: None, ..claim("x", Some(40.0), "%", "", "") };
    assert_eq!(figure(&open), "40.0 % [-∞, 44.0]");
}

#[test]
fn as_markdown() {
    let claims = claims();
    insta::assert_snapshot!(markdown(&claims.iter().collect::<Vec<_>>()));
}

/// If labels differ, each row has its own.
#[test]
fn as_markdown_with_two_labels() {
    let mut claims = claims();
    claims[1].label = "lab/vt, kernel 6.18.5".into();
    insta::assert_snapshot!(markdown(&claims.iter().collect::<Vec<_>>()));
}

#[test]
fn for_a_terminal() {
    let mut claims = claims();
    claims[1].label = "lab/kvm nested in tcg, kernel 6.12; lab/vt, kernel 7.3, prices vmx".into();
    claims[2].label = String::new();
    let all: Vec<_> = claims.iter().collect();
    insta::assert_snapshot!(terminal(&all, Detail::Reason, 80));
    // Three of the four claims have no reason; each has a sentence.
    let (short, long) = (terminal(&all, Detail::Reason, 80), terminal(&all, Detail::What, 80));
    assert_eq!(long.lines().count(), short.lines().count() + 4, "{long}");
    assert!(long.contains("\n    What lab.start_s says"), "{long}");
}

const DOCUMENT: &str = "# Title\n\n<!-- claims: lab.loss.* -->\nold | text\n<!-- /claims -->\n\nBetween.\n\n  <!-- claims: lab.start_s -->\n  <!-- /claims -->\nno newline at the end";

#[test]
fn blocks_are_filled() {
    insta::assert_snapshot!(render_blocks(DOCUMENT, &claims()).unwrap());
}

#[test]
fn to_fill_blocks_twice_changes_nothing_more() {
    let once = render_blocks(DOCUMENT, &claims()).unwrap();
    assert_eq!(render_blocks(&once, &claims()).unwrap(), once);
    let windows = DOCUMENT.replace('\n', "\r\n");
    let once = render_blocks(&windows, &claims()).unwrap();
    assert_eq!(render_blocks(&once, &claims()).unwrap(), once);
}

#[test]
fn a_text_without_blocks_stays_as_it_is() {
    for text in ["", "\n", "a\r\nb", "no claims here\n"] {
        assert_eq!(render_blocks(text, &claims()).unwrap(), text);
    }
}

#[test]
fn broken_blocks_are_errors_with_their_line() {
    let error = |text: &str| render_blocks(text, &claims()).unwrap_err();
    assert_eq!(error("a\n<!-- claims: lab.* -->\n"), BlockError::Unclosed { line: 2 });
    assert_eq!(
        error("<!-- claims: lab.* -->\n<!-- claims: lab.* -->\n<!-- /claims -->"),
        BlockError::Unclosed { line: 1 }
    );
    assert_eq!(error("\n\n<!-- /claims -->"), BlockError::Unopened { line: 3 });
    assert_eq!(error("<!-- claims: -->\n<!-- /claims -->"), BlockError::Malformed { line: 1 });
    assert_eq!(error("<!-- claims: a b -->\n<!-- /claims -->"), BlockError::Malformed { line: 1 });
    assert_eq!(error("<!-- claims: a\n<!-- /claims -->"), BlockError::Malformed { line: 1 });
}

#[test]
fn a_pattern_without_claims_says_so_in_the_text() {
    let text = render_blocks("<!-- claims: sim.* -->\n<!-- /claims -->\n", &[]).unwrap();
    assert!(text.contains("Not measured yet"), "{text}");
    assert_eq!(render_blocks(&text, &[]).unwrap(), text);
}

#[test]
fn claims_stand_beside_each_other_by_name() {
    let claims = [
        claim("lab.gain.fio", Some(0.8), "x", "", ""),
        claim("lab.gain.dbench", Some(1.3), "x", "", ""),
        claim("lab.gain.alone", Some(1.0), "x", "", ""),
        Claim { label: "lab/vt".into(), ..claim("vt.gain.dbench", Some(0.1), "x", "", "") },
        Claim { label: "lab/vt".into(), ..claim("vt.gain.fio", Some(0.85), "x", "", "") },
    ];
    let text = "<!-- beside: lab.gain.* | vt.gain.* -->\n<!-- /claims -->\n";
    let rendered = render_blocks(text, &claims).unwrap();
    insta::assert_snapshot!(rendered);
    assert_eq!(render_blocks(&rendered, &claims).unwrap(), rendered);
    let unmeasured = render_blocks(text, &[]).unwrap();
    assert!(
        unmeasured.contains("no claims are named `lab.gain.*` and `vt.gain.*`"),
        "{unmeasured}"
    );
    for wrong in ["lab.gain.*", "lab.gain | vt.gain", "lab.*.* | vt.*.*"] {
        let text = format!("<!-- beside: {wrong} -->\n<!-- /claims -->\n");
        assert_eq!(render_blocks(&text, &claims), Err(BlockError::Malformed { line: 1 }));
    }
}

//! A session as text.

use unspin_model::Session;
use unspin_model::episode::{Cause, Owner, OwnerState, Spin, Wait};
use unspin_model::session::{About, FoundOff};
use unspin_report::session::{Made, document, page, text};
use unspin_report::verdict::{Judged, Origin, judge};
use unspin_trace::digest::{CauseWaste, Digest, SiteWaste, VcpuOff, digest};

#[test]
fn a_session_as_text() {
    let cause = |cause, episodes, wasted_s, confidence| CauseWaste {
        cause,
        episodes,
        wasted_s,
        blocked_s: wasted_s / 4.0,
        confidence,
    };
    let site = |site: &str, wait, cause| SiteWaste {
        site: site.into(),
        wait,
        episodes: 120,
        wasted_s: 0.31,
        blocked_s: 0.02,
        cause,
    };
    let digest = Digest {
        seconds: 10.0,
        vcpus: 2,
        off: vec![
            VcpuOff {
                vcpu: 0,
                intervals: 812,
                off_s: 3.25,
                steal_s: Some(3.18),
                user_spin_s: Some(0.012),
            },
            VcpuOff {
                vcpu: 1,
                intervals: 790,
                off_s: 3.5,
                steal_s: Some(3.52),
                user_spin_s: Some(0.5),
            },
        ],
        off_ms: Some([3.9, 7.2, 12.4, 30.0]),
        steal_s: Some(6.7),
        spins: 1_402,
        spin_s: 1.25,
        halted_s: 0.0,
        user_spin_s: Some(0.512),
        waits: 12,
        wait_s: 0.35,
        causes: vec![cause(Cause::HolderOff, 900, 0.8, 0.83), cause(Cause::Plain, 502, 0.2, 0.85)],
        sites: vec![
            site("do_renameat2", Wait::Mutex, Cause::HolderOff),
            site("", Wait::Ipi, Cause::IpiOff),
        ],
        beats_per_s: 1_200.0,
        lost: 2,
        incomplete: None,
    };
    let verdict = judge(&digest, Origin::File, &[]);
    insta::assert_snapshot!(text(&digest, &verdict, None));
    insta::assert_snapshot!(document(&digest, &verdict));
    insta::assert_snapshot!(text(&digest, &verdict, Some(40)));
    let json = serde_json::to_string_pretty(&Judged { verdict: &verdict, digest: &digest });
    insta::assert_snapshot!(json.unwrap());
}

/// Returns the sum of the seconds in a column of a Markdown table, that of causes or that of
/// places.
fn sum_s(document: &str, title: &str, column: usize) -> f64 {
    let (_, table) = document.split_once(&format!("**{title}**")).expect("the table");
    let rows = table.trim_start().lines().skip(2).take_while(|line| line.starts_with('|'));
    let seconds = |row: &str| {
        let cell = row.trim_matches('|').split(" | ").nth(column).expect("a column").to_owned();
        let cell = cell.replace('\u{202f}', " ");
        let (number, unit) = cell.trim().split_once(' ').expect("a number and a unit");
        let scale = if unit == "ms" { 1e-3 } else { 1.0 };
        number.parse::<f64>().expect("a number") * scale
    };
    rows.map(seconds).sum()
}

#[test]
fn the_tables_of_waits_add_up_to_what_the_sentences_say() {
    let places = 20;
    let wait = |place: u16| Spin {
        wait: Wait::Mutex,
        lock: u64::from(place),
        asleep: place % 2 == 0,
        vcpu: 0,
        tid: 1,
        begin_ns: u64::from(place) * 100_000_000,
        end_ns: u64::from(place) * 100_000_000 + 50_000_000,
        halted_ns: if place % 4 == 1 { 20_000_000 } else { 0 },
        owner: Some(Owner { tid: 2, vcpu: 1, state: OwnerState::Running, delay_ns: 0 }),
        before: None,
        site: format!("place_{place}"),
    };
    // The owner is off for three fifths of each wait.
    let off = |place: u16| FoundOff {
        vcpu: 1,
        start_ns: u64::from(place) * 100_000_000,
        end_ns: u64::from(place) * 100_000_000 + 30_000_000,
        start_error_ns: 0,
        was_idle: false,
    };
    let session = Session {
        vcpus: 2,
        end_ns: 2_000_000_000,
        offs: (0..places).map(off).collect(),
        spins: (0..places).map(wait).collect(),
        ..Session::default()
    };
    let digest = digest(&session);
    let document = document(&digest, &judge(&digest, Origin::File, &[]));
    assert!(document.contains("(5 more places)") && document.contains("(rest of the waits)"));
    assert!(document.contains("Waiters for PV spinlocks halted for 100\u{202f}ms more"));
    for title in ["Why they waited", "Where they waited"] {
        let (burned_s, asleep_s) = (sum_s(&document, title, 2), sum_s(&document, title, 3));
        assert!((burned_s - digest.spin_s).abs() < 1e-3, "{title}: {burned_s}: {document}");
        let blocked_s = digest.wait_s + digest.halted_s;
        assert!((asleep_s - blocked_s).abs() < 1e-3, "{title}: {asleep_s}: {document}");
    }
}

#[test]
fn markdown_takes_no_markup_from_a_session() {
    let site = "a[b](https://x)<b>*c*";
    let wait = Spin {
        wait: Wait::Mutex,
        lock: 1,
        asleep: false,
        vcpu: 0,
        tid: 1,
        begin_ns: 0,
        end_ns: 5_000_000_000,
        halted_ns: 0,
        owner: None,
        before: None,
        site: site.into(),
    };
    let session = Session {
        vcpus: 1,
        end_ns: 10_000_000_000,
        spins: vec![wait],
        incomplete: Some(format!("{site}\n# cut off")),
        ..Session::default()
    };
    let digest = digest(&session);
    let document = document(&digest, &judge(&digest, Origin::File, &[site]));
    assert!(document.contains("most of it in a[b\\](https://x)&lt;b>\\*c\\*"), "{document}");
    assert!(document.contains("Try: unspin explain plain\n"), "{document}");
    assert_eq!(document.matches("\\*c\\*").count(), 4, "{document}");
    assert!(!document.contains("<b>") && !document.contains("\n# "), "{document}");
}

#[test]
fn a_page_needs_nothing_else() {
    let off = |vcpu, start_ns| FoundOff {
        vcpu,
        start_ns,
        end_ns: start_ns + 4_000_000,
        start_error_ns: 0,
        was_idle: false,
    };
    let session = Session {
        vcpus: 40,
        start_ns: 0,
        end_ns: 1_000_000_000,
        offs: (0..40).map(|vcpu| off(vcpu, 500_000_000)).collect(),
        about: About {
            kernel: Some("6.18".into()),
            machine: Some("a VM".into()),
            ..About::default()
        },
        ..Session::default()
    };
    let digest = digest(&session);
    let verdict = judge(&digest, Origin::File, &[]);
    assert!(!text(&digest, &verdict, None).contains("steal time"), "nobody asked");
    let made = Made {
        name: "<b>.gz".into(),
        recorded: "2026-01-02 03:04:05 UTC".into(),
        date: "2026-01-03 04:05:06 UTC".into(),
        command: "unspin report s.gz --html s.html".into(),
        program: "unspin 0.1.0".into(),
    };
    let page = page(&made, &session, &digest, &verdict).unwrap();
    for part in [&made.recorded, &made.date, &made.command, &made.program] {
        assert!(page.contains(part), "{part}");
    }
    for word in ["spin", "wasted", "LHP", "LWP"] {
        assert!(page.contains(&format!("<dt>{word}")), "{word} is not explained");
    }
    assert!(page.contains("&lt;b&gt;.gz") && !page.contains("<b>"));
    assert!(page.contains("Recorded on a VM, Linux 6.18."));
    assert!(page.contains("The 32 that were off most are shown."));
    assert_eq!(page.matches("class=\"off\" d=").count(), 32);
    for outside in ["http://", "https://", "src=", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn nothing_found_is_said_plainly() {
    let digest = Digest {
        seconds: 1.0,
        vcpus: 1,
        off: vec![VcpuOff {
            vcpu: 0,
            intervals: 0,
            off_s: 0.0,
            steal_s: Some(0.0),
            user_spin_s: None,
        }],
        off_ms: None,
        steal_s: Some(0.0),
        spins: 0,
        spin_s: 0.0,
        halted_s: 0.0,
        user_spin_s: None,
        waits: 0,
        wait_s: 0.0,
        causes: Vec::new(),
        sites: Vec::new(),
        beats_per_s: 0.0,
        lost: 0,
        incomplete: None,
    };
    let verdict = judge(&digest, Origin::File, &[]);
    insta::assert_snapshot!(text(&digest, &verdict, None));
}

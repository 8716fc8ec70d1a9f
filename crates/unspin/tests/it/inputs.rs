//! Checks how report, trace and export handle truncated, disordered, repeated and empty inputs,
//! that they write files only on request, and that all JSON has the common fields.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use unspin_model::session::{About, FoundOff};
use unspin_trace::session::{Stretch, Writer};

use crate::kernel;

const STORM: &str = include_str!("../../../trace/tests/data/storm.txt");

fn unspin(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unspin")).args(args).output().expect("start unspin")
}

/// Makes a folder with one file, and returns both.
fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("write");
    (folder, path)
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn about() -> About {
    let text = |text: &str| Some(text.to_owned());
    About { kernel: text("6.18-test"), machine: text("a test"), ..About::default() }
}

/// Returns a session of three batches, each a second long.
fn session() -> Vec<u8> {
    session_of(&about())
}

fn session_of(about: &About) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, about).expect("a writer");
    for start_ns in [0, 1_000_000_000, 2_000_000_000] {
        let off = FoundOff {
            vcpu: 0,
            start_ns: start_ns + 5,
            end_ns: start_ns + 1_005,
            start_error_ns: 0,
            was_idle: false,
        };
        let stretch = Stretch {
            vcpu: 0,
            start_ns,
            end_ns: start_ns + 1_000_000_000,
            beats: 1,
            idle_ns: 0,
            lost: 0,
            user_spin_ns: None,
            steal_ns: None,
        };
        writer.write(&[off], &[], &[], &[stretch]).expect("a batch");
    }
    writer.finish().expect("an end");
    bytes
}

/// Returns the offsets of a session's gzip members, and its length. The first member is the head,
/// and the last one the end.
fn members(session: &[u8]) -> Vec<usize> {
    let begins = |at: &usize| session[*at..].starts_with(&[0x1f, 0x8b, 8]);
    (0..session.len()).filter(begins).chain([session.len()]).collect()
}

/// Returns the whole output as one line, because its lines wrap.
fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a verb's output for a file, as text and as JSON. The verb must succeed.
fn both(verb: &str, path: &Path) -> (String, Value) {
    let path = path.display().to_string();
    let (plain, json) = (unspin(&[verb, &path]), unspin(&[verb, &path, "--json"]));
    assert!(plain.status.success() && json.status.success(), "{}{}", text(&plain), text(&json));
    (text(&plain), serde_json::from_slice(&json.stdout).expect("JSON"))
}

#[test]
fn what_the_recorded_kernel_did_not_show_is_said_by_the_report() {
    let about = About { hidden: vec!["waits for IPIs".into()], ..about() };
    let (_folder, path) = file("s.arrow.gz", &session_of(&about));
    let (plain, json) = both("report", &path);
    assert!(plain.contains("does not show waits for IPIs"), "{plain}");
    assert!(json["verdict"].to_string().contains("does not show waits for IPIs"), "{json}");
}

#[test]
fn a_trace_that_is_out_of_order_or_repeated_says_so() {
    let (comments, events): (Vec<&str>, Vec<&str>) =
        STORM.lines().partition(|line| line.starts_with('#'));
    assert_eq!((comments.len(), events.len()), (2, 21));
    let reversed: Vec<&str> = events.iter().rev().copied().collect();
    let (_folder, path) = file("t.txt", (reversed.join("\n") + "\n").as_bytes());
    let (plain, json) = both("trace", &path);
    assert!(plain.contains("out of time order, first in line 2,"), "{plain}");
    assert_eq!(json["disordered"], serde_json::json!({"events": 20, "first_line": 2}));

    let (_folder, path) = file("t.txt", STORM.repeat(3).as_bytes());
    let (plain, json) = both("trace", &path);
    assert!(plain.contains("40 events are out of time order, first in line 26,"), "{plain}");
    // The last event of each copy repeats the last event of the first copy.
    assert_eq!(json["repeated"], serde_json::json!({"events": 2, "first_line": 46}));
    assert_eq!((json["storms"].clone(), json["exits"].clone()), (1.into(), 11.into()));
    assert!(json["storm_s"].as_f64() <= json["span_s"].as_f64(), "{json}");

    let twice: String = events.iter().map(|line| format!("{line}\n{line}\n")).collect();
    let (_folder, path) = file("t.txt", twice.as_bytes());
    let (plain, json) = both("trace", &path);
    assert!(plain.contains("21 events are repeated, first in line 2,"), "{plain}");
    assert_eq!(json["repeated"], serde_json::json!({"events": 21, "first_line": 2}));
    assert_eq!((json["pause_exits"].clone(), json["storms"].clone()), (11.into(), 1.into()));

    let (_folder, path) = file("t.txt", STORM.as_bytes());
    let (_, json) = both("trace", &path);
    for field in ["disordered", "repeated", "lost", "incomplete"] {
        assert_eq!(json[field], Value::Null);
    }
}

/// Checks that the page shows the real output for its trace.
#[test]
fn the_trace_on_the_page_for_hosts_prints_what_is_shown_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/host.md")).expect("the page");
    let mut trace = Command::new(env!("CARGO_BIN_EXE_unspin"));
    let output = trace.current_dir(&root).args(["trace", "crates/trace/tests/data/storm.txt"]);
    let printed = output.output().expect("start unspin").stdout;
    let printed = String::from_utf8(printed).expect("text");
    assert!(page.contains(&format!("```text\n{printed}```\n")), "{printed}");
}

#[test]
fn a_trace_may_be_gzipped_and_what_is_cut_off_is_marked() {
    let packed = gzipped(STORM.as_bytes());
    let (_folder, path) = file("t.txt.gz", &packed);
    assert_eq!(both("trace", &path).1["storms"], 1);

    let (_folder, path) = file("t.txt", &STORM.as_bytes()[..STORM.len() - 40]);
    let (plain, json) = both("trace", &path);
    assert!(plain.contains("line 23 is cut off"), "{plain}");
    assert_eq!((json["lines"].clone(), json["exits"].clone()), (23.into(), 10.into()));
    assert!(json["incomplete"].as_str().is_some_and(|what| what.contains("line 23")));

    let packed = gzipped(STORM.repeat(400).as_bytes());
    let (_folder, path) = file("t.txt.gz", &packed[..packed.len() / 2]);
    let (plain, json) = both("trace", &path);
    assert!(plain.contains("cut off"), "{plain}");
    assert!(json["incomplete"].is_string() && json["exits"].as_u64() >= Some(11), "{json}");
}

#[test]
fn a_session_that_is_cut_off_is_read_and_marked() {
    let whole = session();
    let (_folder, path) = file("s.arrow.gz", &whole);
    let (plain, json) = both("report", &path);
    assert!(!plain.contains("ncomplete"), "{plain}");
    assert_eq!(json["incomplete"], Value::Null);

    let end = members(&whole)[4];
    for (cut, what) in [(end - 9, "cut off in batch 3"), (end, "has no end after batch 3")] {
        let (_folder, path) = file("s.arrow.gz", &whole[..cut]);
        let (plain, json) = both("report", &path);
        assert!(plain.contains("is incomplete") && plain.contains(what), "{cut}: {plain}");
        assert!(json["incomplete"].as_str().is_some_and(|text| text.contains("byte ")), "{json}");
        let (plain, json) = both("export", &path);
        assert!(plain.contains(what), "{plain}");
        assert!(json["incomplete"].as_str().is_some_and(|text| text.contains(what)), "{json}");
    }
}

#[test]
fn a_session_of_repeated_or_disordered_batches_is_refused() {
    let whole = session();
    let starts = members(&whole);
    let member = |at: usize| whole[starts[at]..starts[at + 1]].to_vec();
    let put = |order: &[usize]| order.iter().flat_map(|at| member(*at)).collect::<Vec<u8>>();
    for (bytes, what) in [
        (put(&[0, 1, 2, 2, 3, 4]), "batch 3: row 1: repeated or out of time order"),
        (put(&[0, 1, 3, 2, 4]), "batch 3: row 1: repeated or out of time order"),
        (whole.repeat(2), "another session follows"),
    ] {
        let (_folder, path) = file("s.arrow.gz", &bytes);
        for verb in ["report", "export"] {
            let output = unspin(&[verb, &path.display().to_string()]);
            assert_eq!(output.status.code(), Some(1));
            assert!(text(&output).contains(what), "{verb}: {}", text(&output));
        }
    }
}

#[test]
fn empty_files_are_called_empty() {
    for (verb, bytes) in [
        ("report", &b""[..]),
        ("trace", b""),
        ("export", b""),
        ("trace", &gzipped(b"")),
        ("export", &gzipped(b"")),
    ] {
        let (_folder, path) = file("empty", bytes);
        let output = unspin(&[verb, &path.display().to_string()]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("empty: ") && said.contains("is empty"), "{verb}: {said}");
    }
}

#[test]
fn an_export_to_standard_output_writes_no_file() {
    let (folder, path) = file("s.arrow.gz", &session());
    let path = path.display().to_string();
    let mut export = Command::new(env!("CARGO_BIN_EXE_unspin"));
    export.current_dir(folder.path()).args(["export", &path, "--format", "openmetrics", "-o", "-"]);
    let output = export.output().expect("start unspin");
    assert!(text(&output).ends_with("# EOF"), "{}", text(&output));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let both = unspin(&["export", &path, "-o", "-", "--json"]);
    assert_eq!(both.status.code(), Some(2), "{}", text(&both));
}

#[test]
fn a_page_to_standard_output_writes_no_file() {
    let (folder, path) = file("s.arrow.gz", &session());
    let mut report = Command::new(env!("CARGO_BIN_EXE_unspin"));
    report.current_dir(folder.path()).args(["report", &path.display().to_string(), "--html", "-"]);
    let output = report.output().expect("start unspin");
    let page = text(&output);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>"), "{page}");
    assert!(page.contains("--html -</code>"), "the command is there");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_lab_report_as_json_writes_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/truth");
    for name in ["experiment.json", "runs.jsonl"] {
        fs::copy(from.join(name), folder.path().join(name)).expect("committed runs");
    }
    let out = folder.path().display().to_string();
    for format in ["--json", "--markdown", "--csv"] {
        let output = unspin(&["lab", "report", &out, format]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "{format}");
    }
}

#[test]
fn all_json_says_its_format_and_what_printed_it() {
    let (folder, session) = file("s.arrow.gz", &session());
    let trace = folder.path().join("t.txt");
    fs::write(&trace, STORM).expect("write");
    let (session, trace) = (session.display().to_string(), trace.display().to_string());
    let (kernel, igvm) = (folder.path().join("vmlinuz"), folder.path().join("guest.igvm"));
    fs::write(&kernel, kernel::synthetic()).expect("write");
    let (kernel, igvm) = (kernel.display().to_string(), igvm.display().to_string());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for args in [
        &["doctor"][..],
        &["explain"],
        &["explain", "holder-off"],
        &["report", &session],
        &["export", &session],
        &["trace", &trace],
        &["claims", "list", "lab.*"],
        &["claims", "render", "--check", "README.md"],
        &["claims", "plot", "--check"],
        &["lab", "list"],
        &["lab", "list", "workloads"],
        &["lab", "report", "results/truth"],
        &["lab", "compare", "results/truth", "results/truth"],
        &["lab", "kernel", "list"],
        &["lab", "qemu", "show"],
        &["igvm", "build", "--kernel", &kernel, "-o", &igvm],
        &["igvm", "show", &igvm],
        &["igvm", "measure", &igvm],
        &["igvm", "diff", &igvm, &igvm],
        &["igvm", "check", &igvm],
    ] {
        let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
        let output = unspin.current_dir(&root).args(args).arg("--json").output().expect("unspin");
        let text = String::from_utf8_lossy(&output.stdout);
        let json: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"));
        // The summary is in its second format.
        let format = if args[..2.min(args.len())] == ["lab", "report"] { 2 } else { 1 };
        let begins = format!("{{\n  \"format\": {format},\n  \"program\": \"unspin ");
        assert!(
            text.starts_with(&begins) && text.matches("\n  \"format\"").count() == 1,
            "{args:?}"
        );
        if args[0] == "report" {
            assert_eq!(
                (&json["kernel"], &json["machine"]),
                (&"6.18-test".into(), &"a test".into())
            );
        }
    }
}

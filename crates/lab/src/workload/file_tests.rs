//! Malformed workload files. Each error names the line and the remedy.

use super::*;

const GOOD: &str = r#"name = "x"
title = "X"
stresses = "nothing"
programs = ["x"]
files = ["/usr/share/x"]
setup = [["mkdir", "-p", "/tmp/x"]]
command = ["x", "-t", "{vcpus}"]
time_limit_s = 10
metric = { name = "ops", unit = "ops/s", better = "higher" }
read = { regex = '(\d+) ops' }
[[co_metric]]
name = "user_s"
read = { json = "/user", scale = 1e-3 }
"#;

fn parse(text: &str) -> Result<Workload, ConfigError> {
    Workload::parse(Path::new("x.toml"), text)
}

/// Returns the error that one replacement in a valid file causes.
fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replace(from, to)).unwrap_err().to_string()
}

#[test]
fn a_good_file_is_read_in_full() {
    let workload = parse(GOOD).unwrap();
    assert_eq!(workload.argv(4), ["x", "-t", "4"]);
    assert_eq!(workload.setup_argv(4), [["mkdir", "-p", "/tmp/x"]]);
    assert!(!workload.until_stopped);
    let reading = workload.read("7 ops\n{\"user\": 1500}\n", 1.0).unwrap();
    assert_eq!((reading.value, reading.co_metrics["user_s"]), (7.0, 1.5));
}

#[test]
fn seconds_are_filled_in() {
    let text =
        GOOD.replace("{vcpus}", "{seconds}").replace("time_limit_s", "seconds = 3\ntime_limit_s");
    let workload = parse(&text).unwrap();
    assert_eq!(workload.argv(4), ["x", "-t", "3"]);
    assert_eq!(Workload { seconds: Some(1), ..workload }.argv(4), ["x", "-t", "1"]);
}

#[test]
fn a_missing_co_metric_is_listed_not_fatal() {
    let reading = parse(GOOD).unwrap().read("7 ops\n", 1.0).unwrap();
    assert_eq!(reading.missing, ["user_s"]);
    assert!(reading.co_metrics.is_empty());
}

#[test]
fn each_match_of_a_latency_counts() {
    let text = format!("{GOOD}[[latency]]\nname = \"wake_us\"\nregex = '^wake (\\d+)$'\n");
    let workload = parse(&text).unwrap();
    let reading = workload.read("7 ops\nwake 12\nawake 1\nwake 3\nwake 12\n", 1.0).unwrap();
    assert_eq!(reading.latencies["wake_us"], [(3.0, 1), (12.0, 2)]);
    assert!(workload.reading()["latencies"].is_object(), "{}", workload.reading());
    assert!(parse(GOOD).unwrap().reading().get("latencies").is_none());
}

#[test]
fn unknown_keys_name_the_valid_ones() {
    let message = error("title = ", "titel = ");
    assert!(message.starts_with("x.toml:2:1: unknown field `titel`"), "{message}");
    assert!(message.contains("`title`") && message.contains("`time_limit_s`"), "{message}");
    let message = error("better = \"higher\"", "better = \"up\"");
    assert!(message.starts_with("x.toml:9:"), "{message}");
    assert!(message.contains("`higher`") && message.contains("`lower`"), "{message}");
    let message = error("regex = ", "regexp = ");
    assert!(message.starts_with("x.toml:10:"), "{message}");
    assert!(message.contains("`regex`") && message.contains("`elapsed`"), "{message}");
}

#[test]
fn impossible_values_are_refused_at_their_line() {
    for (from, to, expected) in [
        ("name = \"x\"", "name = \"X y\"", "x.toml:1:8: name `X y`: use lower-case"),
        ("time_limit_s = 10", "time_limit_s = 0", "x.toml:8:16: time_limit_s must be above 0"),
        ("time_limit_s = 10", "time_limit_s = nan", "x.toml:8:16: time_limit_s must be above 0"),
        ("command = [\"x\", \"-t\", \"{vcpus}\"]", "command = []", "x.toml:7:11: a command needs"),
        ("\"{vcpus}\"", "\"{seconds}\"", "x.toml:7:11: {seconds} needs a key"),
        ("time_limit_s = 10", "time_limit_s = 10\nseconds = 3", "x.toml:9:11: seconds is at least"),
        ("[[\"mkdir\", \"-p\", \"/tmp/x\"]]", "[[]]", "x.toml:6:10: a command needs"),
        ("\"/usr/share/x\"", "\"share/x\"", "x.toml:5:10: files must be absolute"),
        ("\"/usr/share/x\"", "\"/tmp/x\"", "x.toml:5:10: files must not be below /tmp"),
        ("'(\\d+) ops'", "'\\d+ ops'", "x.toml:10:18: the regex needs a group"),
        ("'(\\d+) ops'", "'(\\d+ ops'", "x.toml:10:18: regex parse error"),
        ("json = \"/user\"", "json = \"user\"", "x.toml:13:17: a JSON pointer starts"),
        ("scale = 1e-3", "scale = 0.0", "x.toml:13:34: scale must be"),
        ("unit = \"ops/s\"", "unit = \"\"", "x.toml:9:33: must not be empty"),
    ] {
        let message = error(from, to);
        assert!(message.starts_with(expected), "{message}\n  wanted {expected}");
    }
}

#[test]
fn read_takes_exactly_one_source() {
    for read in ["{}", "{ elapsed = false }", "{ elapsed = true, json = \"/a\" }"] {
        let message = error("{ regex = '(\\d+) ops' }", read);
        assert!(message.starts_with("x.toml:10:8: read needs exactly one of"), "{message}");
    }
}

#[test]
fn a_co_metric_has_one_definition() {
    let twice = format!("{GOOD}[[co_metric]]\nname = \"user_s\"\nread = {{ elapsed = true }}\n");
    let message = parse(&twice).unwrap_err().to_string();
    assert!(message.starts_with("x.toml:15:8: co_metric `user_s` is there twice"), "{message}");
}

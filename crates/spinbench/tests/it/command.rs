//! The command line: output formats, early end, refusals.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn spinbench(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spinbench"));
    command.args(args.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_json_format_is_stable() {
    let result = json(&spinbench("--lock mcs --threads 3 --seconds 0.2 --json").output().unwrap());
    let expected = "format lock threads cs_ns outside_ns cs_loops outside_loops loop_ns elapsed_s \
                    interrupted operations ops_per_s per_thread jain wait hit_share gave_up lost_updates";
    assert_eq!(keys(&result), expected.split_whitespace().collect());
    let expected = "sample_every samples p50_ns p90_ns p99_ns p999_ns max_ns";
    assert_eq!(keys(&result["wait"]), expected.split_whitespace().collect());
    assert_eq!(result["format"], 1);
    assert_eq!(result["lock"], "mcs");
    assert_eq!(result["per_thread"].as_array().unwrap().len(), 3);
    assert_eq!(result["interrupted"], false);
}

#[test]
fn without_a_lock_there_are_no_waits() {
    let result = json(&spinbench("--lock none --threads 2 --seconds 0.1 --json").output().unwrap());
    assert!(result["wait"].is_null());
    assert!(result["ops_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_given_loop_length_fixes_the_work() {
    let args = "--lock tas --seconds 0.05 --loop-ns 2 --cs 500 --outside 100 --json";
    let result = json(&spinbench(args).output().unwrap());
    assert_eq!((&result["cs_loops"], &result["outside_loops"]), (&250.into(), &50.into()));
}

#[test]
fn text_names_the_figures() {
    let output = spinbench("--lock pthread-mutex --threads 2 --seconds 0.1").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["pthread-mutex, 2 threads", " ops/s", "fairness (Jain)", "per thread:", "p99.9"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn a_signal_ends_the_run_with_its_result() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let start = Instant::now();
        let child = spinbench("--lock ticket --threads 8 --until-stopped --json").spawn().unwrap();
        wait_until_blocked(child.id(), signal);
        // SAFETY: the child is this test's and has not been waited for, so its ID is still its own.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        let result = json(&child.wait_with_output().unwrap());
        assert_eq!(result["interrupted"], true);
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

/// Waits until a process blocks `signal`. An earlier signal would end the process.
fn wait_until_blocked(pid: u32, signal: libc::c_int) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        if u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal - 1)) != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("process {pid} never blocked signal {signal}");
}

#[test]
fn threads_that_cannot_be_started_are_an_error() {
    // No address space has room for two such stacks.
    let mut command = spinbench("--lock ticket --threads 2 --seconds 0.1");
    let output = command.env("RUST_MIN_STACK", (1_u64 << 46).to_string()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("spinbench: cannot start 2 threads: "), "{message}");
}

#[test]
fn impossible_arguments_are_refused() {
    for args in [
        "",
        "--lock spin",
        "--lock tas --threads 0",
        "--lock tas --seconds -1",
        "--lock tas --loop-ns 0",
    ] {
        assert_eq!(spinbench(args).output().unwrap().status.code(), Some(2), "{args}");
    }
    let output = spinbench("--lock spin").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("ticket") && message.contains("pthread-mutex"), "{message}");
}

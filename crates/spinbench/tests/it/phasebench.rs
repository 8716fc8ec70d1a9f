//! phasebench detects which vCPUs its threads may use.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

fn start(args: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phasebench"));
    command.args(args.split_whitespace()).stdout(Stdio::piped()).spawn().unwrap()
}

fn result(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Limits a thread to one of the CPUs that this test may use. Returns false if there is only one.
fn limit(thread: i32) -> bool {
    // SAFETY: all-zero sets are empty ones; the kernel reads and writes at most their size.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut all), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &all));
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first.unwrap(), &mut one);
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &one);
        libc::CPU_COUNT(&all) > 1
    }
}

#[test]
fn phases_without_length_are_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phasebench"));
    assert_eq!(command.args(["--phase-ms", "0"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn without_a_limit_none_is_seen() {
    let result = result(start("--threads 2 --phase-ms 50 --rounds 2 --json"));
    assert_eq!(result["limited"], serde_json::json!({"seen": 0, "missed": 2}));
    assert_eq!(result["lifted"], serde_json::json!({"seen": 0, "missed": 0}));
    assert!(result["spun_per_s"].as_f64() > Some(0.0), "{result}");
    assert!(result["computed_per_s"].as_f64() > Some(0.0), "{result}");
}

#[test]
fn a_limit_that_stays_is_seen_and_never_lifted() {
    let mut child = start("--threads 2 --phase-ms 200 --rounds 3 --json");
    let folder = format!("/proc/{}/task", child.id());
    while child.try_wait().unwrap().is_none() {
        let Ok(threads) = std::fs::read_dir(&folder) else { break };
        let ids = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
        // The first thread keeps its CPUs, because phasebench compares the others with it.
        for id in ids.filter(|id| *id != child.id() as i32) {
            if !limit(id) {
                eprintln!("skipped: one CPU cannot be limited");
                child.kill().unwrap();
                child.wait().unwrap();
                return;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let result = result(child);
    // On a busy machine, the first rounds may be over before any thread is limited.
    let rounds = |what: &str| result.pointer(what).unwrap().as_u64().unwrap();
    let limited = rounds("/limited/seen") + rounds("/still_limited");
    assert!(limited > 0 && limited + rounds("/limited/missed") == 3, "{result}");
    assert_eq!(result["lifted"]["seen"], 0, "{result}");
    if let Some(max_ms) = result["limited"]["max_ms"].as_f64() {
        assert!(max_ms <= 200.0, "{result}");
    }
}

//! The command line of `microbench`.

use std::process::{Command, Output};

use serde_json::Value;

const COSTS: &str = "getpid context_switch pipe_one_cpu pipe_two_cpus wake_futex ipi_round_trip \
                     ipi_delivery ipi_acknowledgement timer_lateness page_fault \
                     lock_uncontended cache_line_move lock_handover";
const EXIT_NOT_HERE: i32 = 77;

/// Returns the output, or `None` on a machine with one CPU, or too busy for IPIs to be seen.
fn microbench(args: &[&str]) -> Option<Output> {
    let output = Command::new(env!("CARGO_BIN_EXE_microbench")).args(args).output().unwrap();
    if output.status.code() == Some(EXIT_NOT_HERE) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

#[test]
fn every_cost_has_a_line() {
    let Some(output) = microbench(&[]) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, COSTS.split_whitespace().collect::<Vec<_>>());
    for line in text.lines() {
        let numbers: Vec<f64> = line.split(' ').skip(1).map(|n| n.parse().unwrap()).collect();
        assert!(numbers.len() == 3 && numbers[0] <= numbers[1], "{line}");
    }
}

#[test]
fn the_json_format_is_stable() {
    let Some(output) = microbench(&["--json"]) else { return };
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["format"], 1);
    for name in COSTS.split_whitespace() {
        let cost = result["costs"][name].as_object().expect(name);
        assert_eq!(cost.keys().collect::<Vec<_>>(), ["median_ns", "n", "p90_ns"], "{name}");
        assert!(cost["n"].as_u64() > Some(0), "{name}");
    }
}

#[test]
fn one_cpu_is_refused() {
    // SAFETY: between fork and exec, the child makes async-signal-safe calls on memory of its own.
    let output = unsafe {
        use std::os::unix::process::CommandExt;
        Command::new(env!("CARGO_BIN_EXE_microbench")).pre_exec(hold_to_one_cpu).output().unwrap()
    };
    assert_eq!(output.status.code(), Some(EXIT_NOT_HERE));
    assert!(String::from_utf8_lossy(&output.stderr).contains("two CPUs"));
}

fn hold_to_one_cpu() -> std::io::Result<()> {
    // SAFETY: an all-zero set is an empty one, and the CPU that runs this is one of its bits.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

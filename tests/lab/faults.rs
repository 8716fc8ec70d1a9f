//! Failures: each becomes a record with its reason, the experiment goes on, and finished runs stay.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::bench::{Background, Bench, check, experiment, records};

/// Returns the record of a workload.
fn of<'a>(records: &'a [Value], workload: &str) -> &'a Value {
    let found = records.iter().rfind(|record| record["cell"]["workload"] == workload);
    found.unwrap_or(&Value::Null)
}

/// Checks the errors of a program whose package is not installed, and of one without a package.
pub fn missing_package() -> Result<(), Failed> {
    let bench = Bench::new(&experiment(&["odd.toml"], "", "")).workload(
        "odd",
        "true",
        "packages = [\"odd-tools\"]",
    );
    let text = fs::read_to_string(bench.path("odd.toml"))?;
    let text = text.replace("programs = []", "programs = [\"no-such-program\"]");
    let without = text.replace("[\"odd-tools\"]", "[]");
    for (text, cure) in [(text, "run `apt install odd-tools`"), (without, "put it into PATH")] {
        bench.write("odd.toml", &text);
        let output = bench.run();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let says = stderr.contains(&format!("no-such-program is not installed: {cure}"));
        check(output.status.code() == Some(77) && says, "77 and what to do", &output)?;
    }
    Ok(())
}

/// Checks a panic, an endless job and a successful one: each record has its kind without a retry,
/// the lab keeps the console log, and the experiment goes on.
pub fn kinds() -> Result<(), Failed> {
    let text = experiment(&["panic.toml", "endless.toml", "fine.toml"], "time_limit_s = 1", "");
    let bench = Bench::new(&text)
        .workload("panic", "echo c > /proc/sysrq-trigger; sleep 9", "")
        .workload("endless", "while :; do :; done", "")
        .workload("fine", "echo result 1", "");
    let output = bench.run();
    check(output.status.code() == Some(1), "one has no result", &output)?;
    let records = bench.records();
    assert_eq!(records.len(), 3, "no retries: virtual time would only repeat them");
    let panic = of(&records, "panic");
    assert_eq!((&panic["kind"], &panic["attempt"]), (&"guest-panic".into(), &1.into()));
    let detail = panic["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("sysrq triggered crash"), "the console's words: {detail}");
    assert_eq!(of(&records, "endless")["outcome"], "did-not-finish");
    assert_eq!(of(&records, "fine")["outcome"], "done");
    let logs = fs::read_dir(bench.path("out/logs"))?.count();
    assert!(logs > 0, "the console log is kept");
    Ok(())
}

/// Checks that the lab ends a guest whose init never reports, next to one that does.
pub fn boot_hang() -> Result<(), Failed> {
    let more = "boot_limit_s = 15\nboot_params = [\"\", \"rdinit=/usr/bin/cat\"]";
    let bench =
        Bench::new(&experiment(&["fine.toml"], more, "")).workload("fine", "echo result 1", "");
    let output = bench.run();
    check(output.status.code() == Some(1), "not all runs have a result", &output)?;
    let records = bench.records();
    let hung = records.iter().filter(|record| record["kind"] == "boot-timeout").count();
    assert_eq!(hung, 1, "virtual time would only repeat it: {records:?}");
    assert_eq!(bench.results().len(), 1, "the guest that boots has its result");
    Ok(())
}

/// Checks a workload that takes more memory than the guest has.
pub fn out_of_memory() -> Result<(), Failed> {
    let bench = Bench::new(&experiment(&["hungry.toml"], "", "")).workload(
        "hungry",
        "tail /dev/zero; echo result 1",
        "",
    );
    let output = bench.run();
    check(output.status.code() == Some(1), "no result", &output)?;
    assert_eq!(of(&bench.records(), "hungry")["kind"], "out-of-memory");
    Ok(())
}

/// Checks a QEMU that is killed while a workload runs.
pub fn qemu_killed() -> Result<(), Failed> {
    let slow = "echo it begins > /dev/ttyS0; while :; do :; done";
    let bench = Bench::new(&experiment(&["slow.toml"], "", "")).workload("slow", slow, "");
    let lab = start(&bench)?;
    let qemu = wait_for(|| guest_of(lab.id())).ok_or("QEMU did not start")?;
    let console = format!("/proc/{qemu}/cwd/console.log");
    let begins = || fs::read_to_string(&console).ok()?.contains("it begins").then_some(());
    wait_for(begins).ok_or("the workload did not begin")?;
    kill(Pid::from_raw(qemu), Signal::SIGKILL)?;
    let output = lab.output()?;
    check(output.status.code() == Some(1), "no result", &output)?;
    assert_eq!(of(&bench.records(), "slow")["kind"], "qemu-died");
    Ok(())
}

/// Checks that a full disk keeps finished runs, and that the lab resumes when space is free again.
pub fn full_disk() -> Result<(), Failed> {
    let text = experiment(&["fine.toml"], "keep_recordings = true", "");
    let bench = Bench::new(&text.replace("repeats = 1", "repeats = 4")).workload(
        "fine",
        "echo result 1",
        "",
    );
    fs::create_dir(bench.path("out"))?;
    let mount = |options: &str| {
        let command = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(bench.path("out"))
            .status();
        command.is_ok_and(|status| status.success())
    };
    if !mount("size=24k") {
        return Err("a tmpfs cannot be mounted".into());
    }
    let unmount = Unmount(bench.path("out"));
    let output = bench.run();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.code() == Some(1) && stderr.contains("make room"), "it says so", &output)?;
    let before = records(&bench.path("out/runs.jsonl"));
    assert!((1..4).contains(&before.len()), "room for some of 4 runs, not for {}", before.len());
    assert!(mount("remount,size=16m"), "more room");
    let output = bench.run();
    check(output.status.success(), "it goes on", &output)?;
    let after = records(&bench.path("out/runs.jsonl"));
    assert_eq!(&after[..before.len()], &before[..], "what was finished is untouched");
    let results = bench.results();
    let distinct: BTreeSet<u64> = results.iter().filter_map(|r| r["run"].as_u64()).collect();
    assert_eq!((results.len(), distinct.len()), (4, 4), "each run once");
    drop(unmount);
    Ok(())
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Checks Ctrl-C while a guest boots, Ctrl-C in the middle of the runs, and resuming.
pub fn ctrl_c() -> Result<(), Failed> {
    let text = experiment(&["fine.toml"], "", "");
    let bench = Bench::new(&text.replace("repeats = 1", "repeats = 3")).workload(
        "fine",
        "sleep 1; echo result 1",
        "",
    );
    let interrupt = |lab: &Background| kill(Pid::from_raw(lab.id() as i32), Signal::SIGINT);
    let lab = start(&bench)?;
    let guest = wait_for(|| guest_of(lab.id())).ok_or("no guest boots")?;
    interrupt(&lab)?;
    let output = lab.output()?;
    check(output.status.code() == Some(130), "while a guest boots", &output)?;
    assert!(!Path::new(&format!("/proc/{guest}")).exists(), "the guest is gone");
    assert!(bench.records().is_empty(), "and was no run");
    let lab = start(&bench)?;
    wait_for(|| (!bench.records_so_far().is_empty()).then_some(())).ok_or("no run ended")?;
    interrupt(&lab)?;
    let output = lab.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    check(output.status.code() == Some(130) && stderr.contains("goes on"), "it says how", &output)?;
    let before = bench.records();
    assert!(before.len() < 3, "it stopped early");
    let output = bench.run();
    check(output.status.success(), "it goes on", &output)?;
    let after = bench.records();
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(bench.results().len(), 3);
    Ok(())
}

/// Checks that a change of the experiment keeps the old runs in the file and makes new ones. An
/// unchanged experiment makes no new runs.
pub fn changed_experiment() -> Result<(), Failed> {
    let bench =
        Bench::new(&experiment(&["fine.toml"], "", "")).workload("fine", "echo result 1", "");
    let first = bench.run();
    check(first.status.success(), "the first run", &first)?;
    let before = bench.records();
    let second = bench.run();
    check(second.status.success(), "nothing to do", &second)?;
    assert_eq!(bench.records(), before);
    bench.write("x.toml", &experiment(&["fine.toml"], "time_limit_s = 33", ""));
    let output = bench.run();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let says =
        stderr.contains("runs left out of the report: another") && stderr.contains("run.job");
    check(output.status.success() && says, "what was left out, and why", &output)?;
    let after = bench.records();
    assert!(after.len() > before.len() && after[..before.len()] == before[..]);
    let identity = |record: &Value| record["identity"].as_str().unwrap_or_default().to_owned();
    assert_ne!(identity(&after[0]), identity(&after[before.len()]));
    Ok(())
}

/// Starts the experiment in the background.
fn start(bench: &Bench) -> std::io::Result<Background> {
    Background::start(bench.lab_run().stdout(Stdio::piped()).stderr(Stdio::piped()))
}

impl Bench {
    /// Returns the records of the whole lines so far.
    fn records_so_far(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("out/runs.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

pub fn wait_for<T>(found: impl Fn() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(600) {
        if let Some(value) = found() {
            return Some(value);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

/// Returns the QEMU child of `parent` that runs a guest.
pub fn guest_of(parent: u32) -> Option<i32> {
    let list = fs::read_dir("/proc").ok()?.flatten();
    let pids = list.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.into_iter().find(|pid| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (stat, command) = (read("stat"), read("cmdline"));
        let stat = String::from_utf8_lossy(&stat);
        let of_parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
        let command = String::from_utf8_lossy(&command);
        of_parent == Some(&parent.to_string()) && command.contains("\0-kernel\0")
    })
}

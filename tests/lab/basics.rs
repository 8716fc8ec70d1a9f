//! The lab's measurements when nothing fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Completion, Failed};

use crate::bench::{Bench, UNSPIN, busy_machine, check, experiment};

/// Checks the path from an experiment's file to table, summary, page, comparison and trace. In the
/// same guest, `unspin doctor` must identify the guest.
pub fn measures_and_reports() -> Result<(), Failed> {
    let text = experiment(&["fine.toml", "ask.toml"], "keep_recordings = true", "");
    let ask = "unspin doctor --json > d; grep -q '\"hypervisor\": \"tcg\"' d && \
        grep -q '\"spinlock\": \"test-and-set\"' d && grep -q '\"cpus\": 2,' d && \
        echo result 42 || cat d";
    let bench = Bench::new(&text)
        .workload("fine", "sleep 0.2; echo result $((6 * 7))", "")
        .workload("ask", ask, "")
        .with_programs("ask", &["unspin"]);
    let output = bench.run_in_real_time();
    check(output.status.success(), "the run", &output)?;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    check(table.contains("lab/tcg") && table.contains("fine"), "table with its label", &output)?;
    let records = bench.results();
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record["value"], 42.0);
        assert_eq!(record["label"]["accel"], "tcg");
        assert_eq!(record["spinlock"], "test-and-set");
        let truth = &record["truth"];
        let (on, off, idle) = (&truth["on_s"], &truth["off_s"], &truth["idle_s"]);
        let sum: f64 = [on, off, idle].iter().filter_map(|v| v.as_f64()).sum();
        let window = 2.0 * truth["window_s"].as_f64().unwrap_or_default();
        assert!((sum - window).abs() < 1e-3 * window, "on + off + idle = {sum}, not {window}");
    }
    let page = fs::read_to_string(bench.path("out/report.html"))?;
    assert!(page.contains("<svg") && page.contains("tcg"));
    let out = bench.path("out");
    let output = Command::new(&*UNSPIN).args(["lab", "compare"]).args([&out, &out]).output()?;
    check(output.status.success(), "compare with itself", &output)?;
    let name = records[0]["truth"]["recording"].as_str().unwrap_or_default();
    let output = Command::new(&*UNSPIN).arg("export").arg(out.join(name)).output()?;
    check(output.status.success(), "export", &output)?;
    assert!(fs::metadata(out.join(name).with_extension("pftrace"))?.len() > 100);
    Ok(())
}

/// Checks that a greedy neighbour shares the pCPUs, fairly per VM.
pub fn neighbours() -> Result<(), Failed> {
    let neighbour =
        "fairness = \"per-vm\"\n[[topology.neighbour]]\nvcpus = 2\nworkload = \"other.toml\"\n";
    let counting = "i=0; trap 'echo result $i; exit 0' INT; while :; do i=$((i + 1)); done";
    let burn = "timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done'; \
                wait; echo result 1";
    let bench = Bench::new(&experiment(&["burn.toml"], "", neighbour))
        .workload("burn", burn, "")
        .workload("other", counting, "until_stopped = true");
    let output = bench.run_in_real_time();
    check(output.status.success(), "the run", &output)?;
    let record = &bench.results()[0];
    let neighbour = &record["neighbours"][0];
    assert!(neighbour["value"].as_f64() > Some(10.0), "it counted: {neighbour}");
    assert!(neighbour["on_s"].as_f64() > Some(0.5), "it was on: {neighbour}");
    assert!(record["truth"]["off_s"].as_f64() > Some(0.1), "the subject lost time: {record}");
    Ok(())
}

/// Shell functions that print the user-space spinning that `watch --listen` counts, in
/// milliseconds, while programs contend for a lock of this kind (`none` for no lock).
const SPUN: &str = "\
    told() { wget -q -O /tmp/m $U; awk '/user_spin_seconds_total/ { s += $2 } \
        END { print int(1000 * s) }' /tmp/m; }; \
    spun() { A=$(told); spinbench --lock $1 --threads 4 --seconds 2 >/dev/null; \
        echo $(($(told) - A)); }; ";

/// Checks that a guest finds the injected off intervals by itself, and that the lab compares them
/// with the truth.
pub fn records_itself() -> Result<(), Failed> {
    let more = "keep_recordings = true\n[[command]]\nname = \"record\"\nsession = \"/tmp/s\"\n\
        argv = [\"unspin\", \"record\", \"--out\", \"/tmp/s\", \"--late\", \"1000\", \"--beat\", \"500\", \"--look\", \"5000\"]";
    let injector = "pinned = true\n\
        injector = { pcpu = 1, lengths_us = [20000], gap_us = 30000, count = 20, after_ms = 1500 }";
    let text = experiment(&["burn.toml"], more, injector).replace("\"stock\"", "\"record\"");
    let burn = "fail() { echo \"failed: $*\"; exit 1; }; \
        (timeout 3 sh -c 'while :; do :; done' & timeout 3 sh -c 'while :; do :; done'; wait); \
        unspin watch --once --for 1 --json > /tmp/w; \
        grep -q '\"vcpus\": 2' /tmp/w || fail vCPUs $(cat /tmp/w); \
        grep -q '\"user_spin_s\": *[0-9]' /tmp/w || fail spinning $(cat /tmp/w); \
        U=http://127.0.0.1:9469/metrics; for CAUSES in '' --causes; do \
        unspin watch --listen 127.0.0.1:9469 $CAUSES & W=$!; \
        for i in $(seq 60); do wget -q -O /tmp/m $U && break; sleep 0.5; done; \
        timeout 1 sh -c 'while :; do :; done'; wget -q -O /tmp/m $U; \
        tail -n 1 /tmp/m | grep -q '# EOF' || fail no end; \
        grep -q 'vcpu_ticks_total.* [1-9]' /tmp/m || fail no ticks; \
        SPINS=$(spun ticket); NOT=$(spun none); echo \"spun $SPINS ms, without a lock $NOT\"; \
        [ $SPINS -gt 200 -a $NOT -lt 50 ] || fail spun $SPINS ms, without a lock $NOT; \
        grep -q 'vcpu_steal_seconds_total.* 0$' /tmp/m || fail steal; \
        kill -INT $W; wait $W || fail ended with $?; \
        [ $(grep -c 'lost_findings_total' /tmp/m) = $(echo $CAUSES | grep -c causes) ] || \
        fail findings; done; echo result 1";
    let bench = Bench::new(&text).workload("burn", &format!("{SPUN}{burn}"), "");
    let bench = bench.with_programs("burn", &["spinbench", "unspin"]);
    let output = bench.run();
    check(output.status.success(), &format!("{:#?}", bench.records()), &output)?;
    let record = &bench.results()[0];
    let sensed = &record["truth"]["sensed"];
    assert!(sensed["real"].as_u64() > Some(15), "it found most that were injected: {record}");
    assert!(sensed["beats_per_s"].as_f64() > Some(10.0), "its heart beats: {sensed}");
    let sessions = fs::read_dir(bench.path("out/sessions"))?.flatten();
    let session = sessions.map(|entry| entry.path()).next().ok_or("no session was kept")?;
    let page = bench.path("page.html");
    let mut report = Command::new(&*UNSPIN);
    let output = report.arg("report").arg(&session).arg("--html").arg(&page).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    check(output.status.success() && text.contains("of 2 vCPUs"), "its report", &output)?;
    assert!(std::fs::read_to_string(&page)?.contains("of 2 vCPUs"), "its page");
    for format in ["perfetto", "openmetrics", "csv"] {
        let out = bench.path(format);
        let mut export = Command::new(&*UNSPIN);
        export.arg("export").arg(&session).arg("--out").arg(&out).args(["--format", format]);
        let output = export.output()?;
        check(output.status.success(), format, &output)?;
        assert!(std::fs::metadata(&out)?.len() > 100, "{format} holds something");
    }
    Ok(())
}

/// Checks that each injected off interval is observed with its length. A killed lab's tracing
/// instance must disappear, even if the machine is too busy to judge the lengths.
pub fn truth() -> Result<Completion, Failed> {
    let busy = busy_machine();
    let injector = "pinned = true\ninjector = { pcpu = 1, lengths_us = [1000, 5000], gap_us = 30000, count = 40 }";
    let burn = "for i in 1 2; do timeout 3 sh -c 'while :; do :; done' & done; wait; echo result 1";
    let bench = Bench::new(&experiment(&["burn.toml"], "", injector)).workload("burn", burn, "");
    let left = left_trace()?;
    let output = bench.run_in_real_time();
    check(output.status.success(), "the run", &output)?;
    assert!(!left.exists(), "what a killed lab left goes on recording");
    let check_of = &bench.results()[0]["truth"]["injected"];
    let others = || format!("other work had its CPUs: {check_of}");
    let busy = busy.or_else(|| (check_of["not_on"].as_u64() > Some(20)).then(others));
    if let Some(reason) = busy {
        return Ok(Completion::ignored_with(reason));
    }
    // Some kernels omit events of the idle task, so the lab may take a vCPU for on: four times in
    // the 4,249 intervals of `results/causes`.
    let missing = check_of["missing"].as_u64().ok_or("events of the observer were lost")?;
    assert!(missing <= 1, "{check_of}");
    let pairs = check_of["pairs_us"].as_array().map_or(0, Vec::len);
    assert!(pairs >= 5, "most of the others met a vCPU that was on: {check_of}");
    for pair in check_of["pairs_us"].as_array().into_iter().flatten() {
        let of = |index: usize| pair[index].as_f64().unwrap_or_default();
        // The injector was on the whole time, so the vCPU was off at least that long.
        assert!(of(2) >= 0.99 * of(1) - 5.0, "asked, injected, observed: {pair}");
    }
    Ok(Completion::Completed)
}

/// Makes the tracing instance of a killed lab, and returns its path.
fn left_trace() -> Result<PathBuf, Failed> {
    let instances = Path::new("/sys/kernel/tracing/instances");
    if !instances.is_dir() {
        Command::new("mount").args(["-t", "tracefs", "none", "/sys/kernel/tracing"]).status()?;
    }
    let mut gone = Command::new("true").spawn()?;
    gone.wait()?;
    let left = instances.join(format!("unspin-truth-{}-0", gone.id()));
    fs::create_dir(&left)?;
    Ok(left)
}

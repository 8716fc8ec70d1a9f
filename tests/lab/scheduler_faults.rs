//! The guest scheduler when something goes wrong around it: it is told, work goes on, and the
//! kernel gets its own scheduler back.

use std::process::Stdio;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{check, lab_kernel};
use crate::faults::guest_of;
use crate::scheduler::{guest_with, has_result, in_guest};

/// Tasks that compute, and one that counts in a file; `goes_on` needs it to have counted on.
const WORK: &str = "for m in 1 2 4 8 f f; do \
        taskset $m timeout 200 sh -c 'while :; do :; done' & W=\"$W $!\"; done; \
    (set +x; n=0; while :; do n=$((n + 1)); echo $n > /tmp/n; sleep 0.01; done) & W=\"$W $!\"; \
    goes_on() { a=$(cat /tmp/n); for i in $(seq 100); do sleep 0.1; \
        [ \"$(cat /tmp/n)\" != \"$a\" ] && return 0; done; echo no progress; exit 1; }; \
    ended() { for i in $(seq 300); do kill -0 $1 2> /dev/null || return 0; sleep 0.1; done; \
        echo $1 stays; exit 1; }; ";

/// A stopped process changes nothing; what the kernel ends says why, and its command is not
/// harmed.
pub fn told() -> Result<(), Failed> {
    in_guest(&format!(
        "unspin run > /tmp/one 2>&1 & P=$!; is enabled; {WORK} \
         kill -STOP $P; sleep 5; is enabled; goes_on; clean; kill -CONT $P; goes_on; \
         echo S > /proc/sysrq-trigger; is disabled; ended $P; wait $P; [ $? = 1 ] || exit 1; \
         grep -q 'ended the scheduler: disabled by sysrq-S' /tmp/one || exit 1; \
         goes_on; \
         unspin run -- sh -c 'sleep 1; echo S > /proc/sysrq-trigger; sleep 3; echo > /tmp/whole' \
             2> /tmp/two; [ $? = 1 ] || exit 1; \
         grep -q 'disabled by sysrq-S' /tmp/two || exit 1; \
         for i in $(seq 100); do [ -e /tmp/whole ] && break; sleep 0.1; done; \
         [ -e /tmp/whole ] || exit 1; \
         goes_on; is disabled; clean; kill $W; echo result 1"
    ))
}

/// Loaded and unloaded quickly, and vCPUs that come and go, while all vCPUs are busy. Each time
/// has the kernel patch its own code; the lab kernel, which does not, is taken where it is.
pub fn comes_and_goes() -> Result<(), Failed> {
    let bench = guest_with(&format!(
        "(while :; do :; done) & B=$!; for round in $(seq 4); do \
             unspin run -- true 2> /tmp/one || {{ cat /tmp/one; exit 1; }}; \
             grep -q disabled $S || exit 1; done; kill $B; \
         unspin run > /tmp/one 2>&1 & P=$!; is enabled; {WORK} \
         for c in 1 2 3; do \
             echo 0 > /sys/devices/system/cpu/cpu$c/online; goes_on; \
             echo 1 > /sys/devices/system/cpu/cpu$c/online; done; \
         for c in 1 2 3; do echo 0 > /sys/devices/system/cpu/cpu$c/online; done; \
         is enabled; goes_on; \
         for c in 3 2 1; do echo 1 > /sys/devices/system/cpu/cpu$c/online; done; \
         sleep 1; is enabled; goes_on; kill -0 $P || {{ cat /tmp/one; exit 1; }}; \
         kill -INT $P; is disabled; ended $P; wait $P || exit 1; clean; kill $W; echo result 1"
    ));
    if lab_kernel().is_none() {
        let text = std::fs::read_to_string(bench.path("x.toml"))?;
        bench.write("x.toml", &text.replace("debian-cloud", "lab"));
    }
    has_result(&bench)
}

/// The machine hibernates, which stops all tasks and all vCPUs but one, finds no disk to
/// write to, and goes on. The lab's channel does not survive that. So the guest tells by the
/// way it ends: it crashes where all went well, and says so on the console where not. An
/// emulated machine may also be reset, without a word: the scheduler is loaded again while
/// vCPUs come back, and the emulator may meet an int3 late with which the kernel patches
/// itself. Such a run tells nothing.
pub fn suspend() -> Result<(), Failed> {
    let script = format!(
        "trap 'echo went wrong > /dev/ttyS0; poweroff -f' EXIT
         unspin run > /tmp/one 2>&1 & P=$!; is enabled; {WORK} exec 2> /dev/ttyS0
         echo shutdown > /sys/power/disk
         for round in 1 2; do echo disk > /sys/power/state; sleep 1; is enabled; goes_on; done
         dmesg | grep -c 'hibernation exit' | grep -q 2 || exit 1
         kill -INT $P; is disabled; ended $P; wait $P || exit 1; clean
         echo c > /proc/sysrq-trigger"
    );
    for _ in 0..5 {
        let bench = guest_with(&script);
        let (output, records) = (bench.run(), bench.records());
        let last = records.last().and_then(|record| record["detail"].as_str()).unwrap_or_default();
        if last.contains("sysrq triggered crash") {
            return Ok(());
        }
        let reset = last.contains("QEMU: exit status: 0") && !last.contains("went wrong");
        check(reset, &format!("{records:#?}"), &output)?;
    }
    Err("the machine was reset each time".into())
}

/// The host stops the machine for longer than the kernel lets a task wait: the scheduler is
/// there afterwards. It is stopped again and again, until that was once while it was loaded.
pub fn stopped_by_the_host() -> Result<(), Failed> {
    let bench = guest_with(&format!(
        "unspin run > /tmp/one 2>&1 & P=$!; is enabled; {WORK} set +x; \
         now() {{ read n rest < /proc/uptime; n=${{n%.*}}; }}; now; last=$n; \
         until [ $((n - last)) -gt 10 ]; do last=$n; now; sleep 0.1; done; set -x; \
         sleep 3; is enabled; goes_on; kill -0 $P || {{ cat /tmp/one; exit 1; }}; \
         kill -INT $P; is disabled; ended $P; wait $P || exit 1; kill $W; echo result 1"
    ));
    let mut child = bench.lab_run().stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let ended = loop {
        std::thread::sleep(Duration::from_secs(20));
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        // It may be another one by now: a guest that dies while it boots is made again.
        let Some(qemu) = guest_of(child.id()).map(Pid::from_raw) else { continue };
        if kill(qemu, Signal::SIGSTOP).is_err() {
            continue;
        }
        std::thread::sleep(Duration::from_secs(13));
        let _ = kill(qemu, Signal::SIGCONT);
    };
    let results = bench.results();
    if !ended.success() || results[0]["outcome"] != "done" {
        return Err(format!("{ended}: {:#?}", bench.records()).into());
    }
    Ok(())
}

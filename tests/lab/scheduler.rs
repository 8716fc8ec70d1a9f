//! The guest scheduler in a real guest. It runs tasks of all kinds, lets none wait long, and the
//! kernel always gets its own scheduler back. Each case is a script in `guest/`. Most run in
//! virtual time, so that a busy machine does not decide their results.

use std::process::Stdio;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{self, Background, Bench, Needs, check, experiment, guest_scripts};
use crate::faults::guest_of;
use crate::virtual_time::vt_guest;
use crate::{Case, Plain, Takes, Test};

/// Returns all cases of this file.
pub fn cases() -> Vec<Case> {
    let case = |name, needs: Needs, takes, test: Plain| {
        let test = Test::Plain(test);
        Case { name, needs, takes, test }
    };
    let vt = |name, test: Plain| case(name, Some(vt_guest), Takes::Little, test);
    let long = |name, needs: Needs, test: Plain| case(name, needs, Takes::Minutes, test);
    vec![
        vt("guest_scheduler_always_leaves", || in_virtual_time("command leaves ended")),
        vt("guest_scheduler_leaves_none_waiting", || in_virtual_time("one-run realtime all_kinds")),
        vt("guest_scheduler_packs", || has_result(&packing_guest("debian-cloud"), "vt")),
        long("guest_scheduler_packs_on_linux_6_12", Some(bench::lab_kernel), || {
            has_result(&packing_guest("lab"), "vt")
        }),
        long("guest_scheduler_gives_way_to_realtime_tasks", Some(vt_guest), || {
            in_virtual_time("stuck")
        }),
        long("guest_scheduler_and_holders", Some(vt_guest), || {
            in_virtual_time("named holders figures")
        }),
        long("guest_scheduler_shares_time", Some(vt_guest), || {
            in_virtual_time("one-run limits weights cgroups")
        }),
        long("guest_scheduler_and_hotplug", Some(vt_guest), || in_virtual_time("comes_and_goes")),
        long("guest_scheduler_and_throttled_tasks", Some(vt_guest), || {
            in_virtual_time("throttled")
        }),
        long("guest_scheduler_and_a_fork_bomb", Some(vt_guest), || in_virtual_time("forks")),
        long("guest_scheduler_spreads_over_pcpus", Some(bench::guest), spreads),
        long("guest_scheduler_and_suspend", Some(bench::suspending_guest), suspend),
        long("guest_scheduler_and_a_stop", Some(bench::guest), stopped_by_the_host),
    ]
}

/// Runs scripts one after the other in a guest.
fn in_virtual_time(scripts: &str) -> Result<(), Failed> {
    has_result(&guest(scripts, "vt"), "vt")
}

/// Makes a guest with four vCPUs on two pCPUs that runs scripts of `guest/`.
fn guest(scripts: &str, accel: &str) -> Bench {
    guest_of_kernel(scripts, accel, "debian-cloud")
}

/// Makes the same guest with this kernel.
fn guest_of_kernel(scripts: &str, accel: &str, kernel: &str) -> Bench {
    let vt = if accel == "vt" { "vt = { instructions = 1 }" } else { "" };
    let more = format!("accel = {accel:?}\ntime_limit_s = 600\n{vt}");
    let text = experiment(&["try.toml"], &more, "").replace("vcpus = 2", "vcpus = 4");
    let bench = Bench::new(&text.replace("\"debian-cloud\"", &format!("{kernel:?}")));
    let folder = guest_scripts();
    let names: Vec<String> = scripts.split(' ').map(|name| format!("{name:?}")).collect();
    let names = names.join(", ");
    let programs = "\"unspin\", \"nice\", \"chrt\", \"spinbench\", \"stress-ng\", \"unshare\"";
    bench.write(
        "try.toml",
        &format!(
            "name = \"try\"\ntitle = \"{scripts}\"\nstresses = \"nothing\"\n\
             programs = [{programs}]\nfiles = [{folder:?}]\n\
             command = [\"sh\", \"{}/several.sh\", {names}]\ntime_limit_s = 600\n\
             metric = {{ name = \"figure\", unit = \"1/s\", better = \"higher\" }}\n\
             read = {{ regex = 'result (\\S+)' }}\n",
            folder.display()
        ),
    );
    bench
}

/// Makes a guest with six vCPUs, of which the script uses four.
fn packing_guest(kernel: &str) -> Bench {
    let bench = guest_of_kernel("packs", "vt", kernel);
    let text = std::fs::read_to_string(bench.path("x.toml")).expect("the experiment");
    bench.write("x.toml", &text.replace("vcpus = 4", "vcpus = 6"));
    bench
}

/// Runs a guest's script and checks that it ends with its `result`.
fn has_result(bench: &Bench, accel: &str) -> Result<(), Failed> {
    let output = bench.lab_run_with(&["--accel", accel]).output()?;
    check(output.status.success(), &format!("{:#?}", bench.records()), &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["outcome"], "done", "{record:#}");
    Ok(())
}

/// Tests a host that pins two vCPUs to each pCPU.
fn spreads() -> Result<(), Failed> {
    let bench = guest("spreads", "tcg");
    let text = std::fs::read_to_string(bench.path("x.toml"))?;
    bench.write("x.toml", &text.replace("pcpus = 2", "pcpus = 2\npinned = true"));
    has_result(&bench, "tcg")
}

/// Tests hibernation. An emulated machine may be reset without a message, because the scheduler is
/// loaded again while vCPUs come back: the kernel then patches its own code, and the emulator may
/// deliver the patching int3 late. The test repeats such a run, which shows nothing.
fn suspend() -> Result<(), Failed> {
    for _ in 0..5 {
        let bench = guest("suspend", "tcg");
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

/// Tests a machine that the host stops again and again.
fn stopped_by_the_host() -> Result<(), Failed> {
    let bench = guest("stopped", "tcg");
    if bench::lab_kernel().is_none() {
        let text = std::fs::read_to_string(bench.path("x.toml"))?;
        bench.write("x.toml", &text.replace("debian-cloud", "lab"));
    }
    let mut lab = Background::start(bench.lab_run().stdout(Stdio::null()).stderr(Stdio::null()))?;
    let ended = loop {
        std::thread::sleep(Duration::from_secs(20));
        if let Some(ended) = lab.ended()? {
            break ended;
        }
        // QEMU may have changed, because the lab boots again a guest that dies while it boots.
        let Some(qemu) = guest_of(lab.id()).map(Pid::from_raw) else { continue };
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

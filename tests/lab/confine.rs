//! The limit on vCPUs by cgroups, in a guest in virtual time that spins: it comes, it leaves what
//! others set, and it goes however `unspin run` ends.

use libtest_mimic::Failed;

use crate::bench::{Bench, check, experiment};

/// What the script uses: the cgroup it is in, a load that spins, and waits for its limit, which
/// comes and goes during a trial.
const TOOLS: &str = "set -x; C=/sys/fs/cgroup; OWN=$C$(sed s/0::// /proc/self/cgroup); \
    SET=$OWN/cpuset.cpus; \
    start() { rm -f /run/unspin/run.sock; unspin run --actuator cpuset > /tmp/out 2>&1 & P=$!; \
        for i in $(seq 200); do [ -S /run/unspin/run.sock ] && return 0; sleep 0.1; done; \
        cat /tmp/out; exit 1; }; \
    limited() { stress-ng --rename 8 -t 3 --temp-path /tmp > /dev/null 2>&1 & L=$!; \
        for i in $(seq 140); do grep -q . $SET && return 0; sleep 0.02; done; exit 1; }; \
    stopped_while_limited() { for i in $(seq 100); do kill -STOP $P; \
        [ -n \"$(cat $SET)\" ] && return 0; kill -CONT $P; sleep 0.02; done; exit 1; }; ";

/// A limit while tasks spin, with a killed process's restored by hand.
pub fn comes_and_goes() -> Result<(), Failed> {
    let script = "mkdir $C/theirs; echo +cpuset > $C/cgroup.subtree_control; \
        echo 3 > $C/theirs/cpuset.cpus; \
        start; [ -z \"$(cat $SET)\" ] || exit 1; limited; \
        stopped_while_limited; kill -9 $P; wait $P; [ -n \"$(cat $SET)\" ] || exit 1; \
        unspin run --restore || exit 1; [ -z \"$(cat $SET)\" ] || exit 1; \
        wait $L; start; limited; \
        unspin run --status --json > /tmp/status || exit 1; cat /tmp/status; \
        grep -q '\"actuator\":\"cpuset\"' /tmp/status || exit 1; \
        grep -q '\"left_alone\":.\"theirs\"' /tmp/status || exit 1; \
        unspin run --restore 2> /tmp/error; [ $? = 77 ] || exit 1; \
        grep -q 'another `unspin run`' /tmp/error || exit 1; \
        kill -TERM $P; wait $P || exit 1; \
        [ -z \"$(cat $SET)\" ] || exit 1; [ $(cat $C/theirs/cpuset.cpus) = 3 ] || exit 1; \
        wait $L; echo 0 > $C/cgroup.procs; \
        unspin run --actuator cpuset -- cat /proc/self/cgroup | grep -qx 0::/unspin || exit 1; \
        [ ! -e /run/unspin/cpuset.json ] || exit 1; echo result 1";
    let settings = "accel = \"vt\"\ntime_limit_s = 60";
    let text = experiment(&["try.toml"], settings, "vt = { regime = \"abandoned\" }");
    let bench = Bench::new(&text.replace("vcpus = 2", "vcpus = 4"));
    let bench = bench.workload("try", &format!("{TOOLS}{script}"), "");
    let bench = bench.with_programs("try", &["unspin", "stress-ng"]);
    let workload = std::fs::read_to_string(bench.path("try.toml"))?;
    bench.write("try.toml", &workload.replace("programs", "packages = [\"stress-ng\"]\nprograms"));
    let output = bench.run();
    check(output.status.success(), &format!("{:#?}", bench.records()), &output)?;
    assert_eq!(bench.results()[0]["outcome"], "done");
    Ok(())
}

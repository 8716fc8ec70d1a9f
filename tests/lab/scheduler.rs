//! The guest scheduler in a real guest: it runs tasks, and the kernel always gets its own
//! scheduler back.

use libtest_mimic::Failed;

use crate::bench::{Bench, check, experiment};

/// What the scripts share: waits for a state of sched_ext (to load takes long on busy vCPUs),
/// how many slices were lengthened, and what a clean log is.
pub const TOOLS: &str = "set -x; S=/sys/kernel/sched_ext/state; \
    is() { for i in $(seq 1500); do grep -q $1 $S && return 0; sleep 0.1; done; \
        echo never $1; exit 1; }; \
    extended() { grep -o '\"extended\":[0-9]*' $1 | tail -n 1 | cut -d : -f 2; }; \
    clean() { ! dmesg | grep -E 'BUG:|WARNING:|Oops|runtime error|self-detected stall|task stall' || exit 1; }; ";

/// A guest with four vCPUs on two pCPUs, and a script for it.
pub fn guest_with(script: &str) -> Bench {
    let limit = "time_limit_s = 480";
    let text = experiment(&["try.toml"], limit, "").replace("vcpus = 2", "vcpus = 4");
    let bench = Bench::new(&text).workload("try", &format!("{TOOLS}{script}"), "");
    bench.with_programs("try", &["nice", "chrt", "unspin"])
}

/// Runs a script in a guest, to its `result`.
pub fn in_guest(script: &str) -> Result<(), Failed> {
    has_result(&guest_with(script))
}

/// Runs a guest's script to its `result`.
pub fn has_result(bench: &Bench) -> Result<(), Failed> {
    let output = bench.run();
    check(output.status.success(), &format!("{:#?}", bench.records()), &output)?;
    let record = &bench.results()[0];
    assert_eq!(record["outcome"], "done", "{record:#}");
    Ok(())
}

/// Tasks of all kinds run to their end around a command: free ones, and bound ones.
pub fn runs_a_command() -> Result<(), Failed> {
    in_guest(
        "cat > /tmp/load <<'END'\n\
         cat /sys/kernel/sched_ext/state > /tmp/during\n\
         for m in 1 2 4 8 3 c f; do taskset $m timeout 2 sh -c 'while :; do :; done' & done\n\
         for i in 1 2 3 4; do timeout 2 sh -c 'while :; do :; done' & done\n\
         wait\n\
         exit 7\n\
         END\n\
         unspin run --json -- sh /tmp/load > /tmp/stats; [ $? = 7 ] || exit 1; \
         grep -q enabled /tmp/during || exit 1; grep -q '\"vcpus\":4' /tmp/stats || exit 1; \
         is disabled; clean; echo result 1",
    )
}

/// Holders of a glibc mutex go on until they have released it, in a container, too, where
/// threads have other numbers.
pub fn spares_holders_of_mutexes() -> Result<(), Failed> {
    let bench = guest_with(
        "cat > /tmp/load <<'END'\n\
         $1 spinbench --lock pthread-mutex --threads 8 --seconds 3 --cs 200000 \
             --outside 2000000 --loop-ns 1.4 > /dev/null\n\
         END\n\
         for how in '' 'unshare --pid --fork'; do
           unspin run --json --no-pack -- sh /tmp/load \"$how\" | tail -n 1 > /tmp/stats || exit 1
           [ $(extended /tmp/stats) -ge 10 ] || exit 1
         done
         is disabled; clean; echo result 1",
    );
    let workload = std::fs::read_to_string(bench.path("try.toml")).expect("a workload");
    bench.write("try.toml", &workload.replace("\"nice\"", "\"nice\", \"spinbench\", \"unshare\""));
    has_result(&bench)
}

/// Tasks that the user names count as holders: they go on when others wait, for a while.
pub fn spares_named_holders() -> Result<(), Failed> {
    in_guest(
        "mkdir /sys/fs/cgroup/h
         cat > /tmp/load <<'END'\n\
         [ -z $1 ] || echo 0 > $1/cgroup.procs\n\
         for i in 1 2 3 4 5 6 7 8; do timeout 2 sh -c 'while :; do :; done' & done\n\
         wait\n\
         END\n\
         unspin run --json --holder sh -- sh /tmp/load > /tmp/names || exit 1
         unspin run --json --holder-cgroup /sys/fs/cgroup/h -- sh /tmp/load /sys/fs/cgroup/h \
             > /tmp/cgroup || exit 1
         unspin run --json --holder nobody --holder-cgroup /sys/fs/cgroup/h -- sh /tmp/load \
             > /tmp/others || exit 1
         OTHERS=$(extended /tmp/others)
         [ $(extended /tmp/names) -gt $((2 * OTHERS + 10)) ] || exit 1
         [ $(extended /tmp/cgroup) -gt $((2 * OTHERS + 10)) ] || exit 1
         unspin run --holder-cgroup /tmp -- true 2> /tmp/error && exit 1
         grep -q 'no cgroup of version 2' /tmp/error || exit 1
         is disabled; clean; echo result 1",
    )
}

/// A second one is refused, a killed one leaves, a changed number of vCPUs is survived.
pub fn leaves_however_it_ends() -> Result<(), Failed> {
    in_guest(
        "unspin run > /tmp/one 2>&1 & P=$!; is enabled; \
         unspin run -- true 2> /tmp/two; [ $? = 77 ] || exit 1; \
         grep -q 'is loaded' /tmp/two || exit 1; \
         echo 0 > /sys/devices/system/cpu/cpu3/online; sleep 2; is enabled; \
         echo 1 > /sys/devices/system/cpu/cpu3/online; sleep 2; is enabled; \
         kill -0 $P || { cat /tmp/one; exit 1; }; \
         kill -9 $P; is disabled; \
         unspin run > /tmp/one 2>&1 & P=$!; is enabled; kill -INT $P; wait $P || exit 1; \
         grep -q 'vCPUs in use' /tmp/one || exit 1; is disabled; clean; echo result 1",
    )
}

/// Of vCPUs that the host holds to one pCPU, it uses one after the other.
pub fn spreads_over_pcpus() -> Result<(), Failed> {
    let bench = guest_with(
        "unspin run --pack steal-governor --json --stats 1 -- sh -c ' \
             for i in 1 2 3 4; do timeout 20 sh -c \"while :; do :; done\" & done; wait' \
             > /tmp/stats || exit 1; \
         cat /tmp/stats; \
         tail -n 1 /tmp/stats | grep -q '\"stacks\":.\\[0,1\\],\\[2,3\\].' || exit 1; \
         grep '\"used\":2,' /tmp/stats | tail -n 1 | grep -q '\"used_vcpus\":.[01],[23]\\]' || exit 1; \
         is disabled; clean; echo result 1",
    );
    let text = std::fs::read_to_string(bench.path("x.toml")).expect("an experiment");
    bench.write("x.toml", &text.replace("pcpus = 2", "pcpus = 2\npinned = true"));
    has_result(&bench)
}

/// Its figures are told while it runs, by socket and by HTTP. A command gets our signals,
/// and goes on when the kernel ends the scheduler.
pub fn tells_its_figures() -> Result<(), Failed> {
    in_guest(
        "SOCK=/run/unspin/run.sock; \
         unspin run --status 2> /tmp/none; [ $? = 77 ] || exit 1; \
         grep -q 'unspin run' /tmp/none || exit 1; \
         unspin run --listen 127.0.0.1:9470 -- sh -c 'trap \"exit 5\" TERM; sleep 50 & wait' & P=$!; \
         for i in $(seq 100); do [ -S $SOCK ] && break; sleep 0.1; done; \
         [ $(stat -c %a $SOCK) = 600 ] || exit 1; \
         unspin run --status > /tmp/status || exit 1; cat /tmp/status; \
         grep -q 'of 4 vCPUs' /tmp/status || exit 1; \
         unspin run --status --json > /tmp/figures || exit 1; cat /tmp/figures; \
         for figure in '\"used_vcpus\":.0' '\"page_faults\":[1-9]' '\"given_up\":[1-9]'; do \
             grep -q \"$figure\" /tmp/figures || exit 1; done; \
         wget -q -O - http://127.0.0.1:9470/metrics | grep 'unspin_run_vcpus 4' || exit 1; \
         kill -TERM $P; wait $P; [ $? = 5 ] || exit 1; [ ! -e $SOCK ] || exit 1; is disabled; \
         echo 'sleep 1; echo S > /proc/sysrq-trigger; sleep 1; > /tmp/done; exit 3' > /tmp/load; \
         unspin run -- sh /tmp/load 2> /tmp/ended; [ $? = 1 ] || exit 1; cat /tmp/ended; \
         [ -e /tmp/done ] || exit 1; grep -q 'exit code 3' /tmp/ended || exit 1; \
         is disabled; clean; echo result 1",
    )
}

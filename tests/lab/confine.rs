//! The limit on vCPUs by cgroups, in a guest in virtual time that spins. The limit must come, must
//! leave other programs' cpusets unchanged, and must go however `unspin run` ends.

use libtest_mimic::Failed;

use crate::bench::{Bench, Missing, check, experiment, guest_scripts, has_kernel};
use crate::virtual_time::vt_guest;

/// Tests the limit with the lab's usual kernel.
pub fn comes_and_goes() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited")
}

/// Tests cgroups whose vCPUs another program has set.
pub fn leaves_others() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited_beside")
}

/// Tests rare cases: a killed guard, and a disabled controller.
pub fn survives_more() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited_more")
}

/// Tests a guest with a pCPU for each vCPU, until a neighbour comes.
pub fn counts_where_preempted() -> Result<(), Failed> {
    let neighbour = "[[topology.neighbour]]\nvcpus = 4\nmodel = \"at\"\n\
                     times_us = [[12000000, 100000000]]";
    let host = format!("vt = {{ regime = \"abandoned\" }}\n{neighbour}");
    ends_well_on(4, &host, "debian-cloud", "uncounted", "")
}

/// Tests the limit with only the capabilities of the systemd unit.
pub fn needs_the_unit_s_rights_only() -> Result<(), Failed> {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/unspin.service.in");
    let unit = std::fs::read_to_string(unit).expect("the unit");
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let added = |right: &str| format!(",+{}", right.trim_start_matches("CAP_").to_lowercase());
    let rights = rights.expect("a set").split_whitespace().map(added).collect::<String>();
    ends_well_as("debian-cloud", "limited_unit", &format!("\"-all{rights}\""))
}

/// Tests a host with PV spinlocks and steal time.
pub fn rests() -> Result<(), Failed> {
    ends_well_on(2, "vt = { regime = \"pv\", instructions = 1 }", "debian-cloud", "helped", "")
}

/// Tests vCPUs that go and come during the limit.
pub fn follows_hotplug() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited_hotplug")
}

/// Tests Debian 13's kernel, which refuses to clear the set of a cgroup with tasks.
pub fn comes_and_goes_on_trixie() -> Result<(), Failed> {
    ends_well_as(TRIXIE, "limited", "\"briefly\"")
}

/// Tests Debian 12's kernel, which refuses this too and has no sched_ext.
pub fn comes_and_goes_on_bookworm() -> Result<(), Failed> {
    ends_well(BOOKWORM, "limited")
}

const TRIXIE: &str = "debian-cloud:trixie";
const BOOKWORM: &str = "debian-cloud:bookworm";

/// Checks for Debian 13's kernel.
pub fn trixie() -> Missing {
    needs(TRIXIE, "unspin lab kernel fetch debian-cloud:trixie")
}

/// Checks for Debian 12's kernel.
pub fn bookworm() -> Missing {
    needs(BOOKWORM, "unspin lab kernel fetch debian-cloud:bookworm")
}

fn needs(kernel: &str, how: &str) -> Missing {
    vt_guest().or_else(|| has_kernel(kernel, how))
}

/// Runs a script in a guest with this kernel, four vCPUs on two pCPUs.
fn ends_well(kernel: &str, script: &str) -> Result<(), Failed> {
    ends_well_as(kernel, script, "")
}

/// Runs a script like [`ends_well`], with an argument.
fn ends_well_as(kernel: &str, script: &str, argument: &str) -> Result<(), Failed> {
    ends_well_on(2, VT, kernel, script, argument)
}

const VT: &str = "vt = { regime = \"abandoned\", instructions = 1 }";

/// Runs a script in a guest with four vCPUs on a host with these pCPUs and settings.
fn ends_well_on(
    pcpus: u32,
    host: &str,
    kernel: &str,
    script: &str,
    argument: &str,
) -> Result<(), Failed> {
    let settings = "accel = \"vt\"\ntime_limit_s = 100";
    let text = experiment(&["try.toml"], settings, host).replace("\nvcpus = 2", "\nvcpus = 4");
    let text = text.replace("\npcpus = 2", &format!("\npcpus = {pcpus}"));
    let bench = Bench::new(&text.replace("\"debian-cloud\"", &format!("{kernel:?}")));
    let folder = guest_scripts();
    bench.write(
        "try.toml",
        &format!(
            "name = \"try\"\ntitle = \"a limit\"\nstresses = \"nothing\"\n\
             packages = [\"stress-ng\"]\nprograms = [\"unspin\", \"stress-ng\", \"setpriv\"]\n\
             files = [{folder:?}]\ntime_limit_s = 100\n\
             command = [\"sh\", \"{}/{script}.sh\", {argument}]\n\
             metric = {{ name = \"figure\", unit = \"1/s\", better = \"higher\" }}\n\
             read = {{ regex = 'result (\\S+)' }}\n",
            folder.display()
        ),
    );
    let output = bench.run();
    check(output.status.success(), &format!("{:#?}", bench.records()), &output)?;
    assert_eq!(bench.results()[0]["outcome"], "done");
    Ok(())
}

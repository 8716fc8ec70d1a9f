//! The limit on vCPUs by cgroups, in a guest in virtual time that spins: it comes, it leaves what
//! others set, and it goes however `unspin run` ends.

use libtest_mimic::Failed;

use crate::bench::{Bench, Missing, check, experiment, has_kernel};
use crate::virtual_time::vt_guest;

/// The lab's usual kernel.
pub fn comes_and_goes() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited")
}

/// The same kernel: cgroups whose vCPUs others have chosen.
pub fn leaves_others() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited_beside")
}

/// The same kernel: what is rarer.
pub fn survives_more() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited_more")
}

/// A guest that has a pCPU for each vCPU, until a neighbour comes.
pub fn counts_where_preempted() -> Result<(), Failed> {
    let neighbour = "[[topology.neighbour]]\nvcpus = 4\nmodel = \"at\"\n\
                     times_us = [[12000000, 100000000]]";
    let host = format!("vt = {{ regime = \"abandoned\" }}\n{neighbour}");
    ends_well_on(4, &host, "debian-cloud", "uncounted", "")
}

/// With no more rights than the systemd unit gives.
pub fn needs_the_unit_s_rights_only() -> Result<(), Failed> {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/unspin.service.in");
    let unit = std::fs::read_to_string(unit).expect("the unit");
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let added = |right: &str| format!(",+{}", right.trim_start_matches("CAP_").to_lowercase());
    let rights = rights.expect("a set").split_whitespace().map(added).collect::<String>();
    ends_well_as("debian-cloud", "limited_unit", &format!("\"-all{rights}\""))
}

/// A host with PV spinlocks and steal time.
pub fn rests() -> Result<(), Failed> {
    ends_well_on(2, "vt = { regime = \"pv\", instructions = 1 }", "debian-cloud", "helped", "")
}

/// vCPUs go and come meanwhile.
pub fn follows_hotplug() -> Result<(), Failed> {
    ends_well("debian-cloud", "limited_hotplug")
}

/// Debian 13's kernel, which refuses to clear the set of a cgroup that has tasks.
pub fn comes_and_goes_on_trixie() -> Result<(), Failed> {
    ends_well_as(TRIXIE, "limited", "\"briefly\"")
}

/// Debian 12's, which also has no sched_ext.
pub fn comes_and_goes_on_bookworm() -> Result<(), Failed> {
    ends_well(BOOKWORM, "limited")
}

const TRIXIE: &str = "debian-cloud:trixie";
const BOOKWORM: &str = "debian-cloud:bookworm";

/// Debian 13's kernel.
pub fn trixie() -> Missing {
    needs(TRIXIE, "unspin lab kernel fetch debian-cloud:trixie")
}

/// Debian 12's.
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

/// The same with an argument.
fn ends_well_as(kernel: &str, script: &str, argument: &str) -> Result<(), Failed> {
    ends_well_on(2, VT, kernel, script, argument)
}

const VT: &str = "vt = { regime = \"abandoned\", instructions = 1 }";

/// The same in a guest with four vCPUs on a host with so many pCPUs and these settings.
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lab/guest");
    let folder = std::fs::canonicalize(folder).expect("the scripts");
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

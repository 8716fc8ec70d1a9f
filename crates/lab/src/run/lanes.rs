//! The number of runs in virtual time that are carried out in parallel.

use crate::experiment::Experiment;
use crate::machine::{self, room};

/// Upper limit in MiB of the memory of such a run and its QEMU, unless its guest is a large one.
const LANE_MEMORY_MIB: u64 = 1536;
/// Memory in MiB that QEMU needs beyond the guest's. Most of it is translated code.
const QEMU_MEMORY_MIB: u64 = 512;

/// Returns the number of lanes: the wanted one, else one per usable CPU as far as memory allows.
pub fn lanes(wanted: Option<u32>, experiment: &Experiment) -> usize {
    let here = || {
        let machine_mib = machine::memory_mib();
        let limit_mib = room::memory_limit_mib().unwrap_or(machine_mib);
        fitting(room::cpus(), machine_mib.min(limit_mib), lane_mib(experiment))
    };
    wanted.unwrap_or_else(here) as usize
}

fn fitting(cpus: u32, memory_mib: u64, lane_mib: u64) -> u32 {
    u64::from(cpus).min(memory_mib / lane_mib).max(1) as u32
}

/// Returns the memory in MiB of a lane. It suffices for the largest guest, which may run on all
/// lanes at the same time.
fn lane_mib(experiment: &Experiment) -> u64 {
    let simulated = experiment.topologies.iter().filter(|topology| topology.in_virtual_time());
    let largest = simulated.map(|topology| topology.memory_mib).max().unwrap_or(0);
    LANE_MEMORY_MIB.max(largest + QEMU_MEMORY_MIB)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn lanes_fit_into_cpus_and_memory() {
        assert_eq!(fitting(8, 3 * LANE_MEMORY_MIB, LANE_MEMORY_MIB), 3);
        assert_eq!(fitting(2, 3 * LANE_MEMORY_MIB, LANE_MEMORY_MIB), 2);
        assert_eq!(fitting(8, 0, LANE_MEMORY_MIB), 1);
    }

    #[test]
    fn large_guests_in_virtual_time_take_their_memory() {
        let of = |accel: &str, memory_mib: u64| {
            let text = format!(
                "name = \"x\"\ntitle = \"x\"\nabout = \"x\"\nrepeats = 1\naccel = \"{accel}\"\n\
                 kernels = [\"lab\"]\nschedulers = [\"stock\"]\n\
                 workloads = [\"stress-ng-rename\"]\n[[topology]]\nname = \"t\"\n\
                 vcpus = 2\npcpus = 1\nmemory_mib = {memory_mib}\n"
            );
            lane_mib(&Experiment::parse(Path::new("x.toml"), &text).unwrap())
        };
        assert_eq!([of("vt", 768), of("tcg", 4096)], [LANE_MEMORY_MIB; 2]);
        assert_eq!(of("vt", 4096), 4096 + QEMU_MEMORY_MIB);
    }
}

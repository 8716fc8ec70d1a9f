//! Topologies: which VMs share which pCPUs, and how.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use unspin_model::Accel;
use unspin_wire::{Fairness, Injection};

use super::Simulated;
use crate::workload::Workload;

/// The pCPUs of a topology.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a number of pCPUs, or a list such as [0, 2]")]
pub enum Pcpus {
    /// So many of the host's CPUs, the first ones that this process may use.
    Count(u32),
    /// These ones.
    List(Vec<u32>),
}

impl Pcpus {
    /// How many.
    pub fn count(&self) -> u32 {
        match self {
            Pcpus::Count(count) => *count,
            Pcpus::List(list) => list.len() as u32,
        }
    }

    /// A CPU that the list names more than once.
    pub(super) fn repeated(&self) -> Option<u32> {
        let Pcpus::List(list) = self else { return None };
        let mut known = BTreeSet::new();
        list.iter().copied().find(|cpu| !known.insert(*cpu))
    }

    /// Their numbers, out of the CPUs that this process may use.
    pub fn resolve(&self, allowed: &[u32]) -> Result<Vec<u32>, String> {
        let list = match self {
            Pcpus::Count(count) => allowed.iter().copied().take(*count as usize).collect(),
            Pcpus::List(list) => list.clone(),
        };
        let missing: Vec<&u32> = list.iter().filter(|cpu| !allowed.contains(cpu)).collect();
        if list.len() < self.count() as usize || !missing.is_empty() {
            let offered = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            return Err(match self {
                Pcpus::Count(count) => format!(
                    "{count} pCPUs are asked for, this machine offers {}: CPUs {offered}",
                    allowed.len()
                ),
                Pcpus::List(_) => {
                    format!("pCPUs {missing:?} are not there, this machine offers CPUs {offered}")
                }
            });
        }
        Ok(list)
    }
}

/// The spinlock of a flat guest's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spinlock {
    /// Test-and-set: what Linux takes on a hypervisor without PV spinlocks.
    #[default]
    Tas,
    /// The FIFO qspinlock of bare metal.
    Native,
}

/// Another VM on the same pCPUs.
#[derive(Debug, Clone)]
pub struct Neighbour {
    /// Its name.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// What it runs while the subject runs.
    pub workload: Workload,
}

/// An L1 host between: the pCPUs are its emulated CPUs, and its KVM runs the subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Nested {
    /// Memory of the L1 in MiB.
    pub memory_mib: u64,
    /// PV spinlocks offered to the subject.
    pub pv_spinlocks: bool,
    /// Steal time offered to the subject.
    pub steal_time: bool,
    /// PAUSE exits on.
    pub pause_exits: bool,
    /// Further KVM features taken away, by QEMU's names, such as `kvm-pv-ipi`.
    pub without: Vec<String>,
    /// Boot parameters added to the L1's command line.
    pub host_params: String,
}

impl Nested {
    /// A regime by name: `pv`, `ple` or `abandoned`.
    pub fn regime(name: &str, memory_mib: u64) -> Option<Nested> {
        let (pv, pause_exits) = match name {
            "pv" => (true, true),
            "ple" => (false, true),
            "abandoned" => (false, false),
            _ => return None,
        };
        Some(Nested {
            memory_mib,
            pv_spinlocks: pv,
            steal_time: pv,
            pause_exits,
            without: Vec::new(),
            host_params: String::new(),
        })
    }

    /// QEMU's `-cpu` argument of the subject.
    pub fn cpu(&self) -> String {
        let mut cpu = String::from("host");
        for (offered, name) in
            [(self.pv_spinlocks, "kvm-pv-unhalt"), (self.steal_time, "kvm-steal-time")]
        {
            if !offered {
                cpu.push_str(&format!(",-{name}"));
            }
        }
        for name in &self.without {
            cpu.push_str(&format!(",-{name}"));
        }
        cpu
    }

    /// Boot parameters of the L1. Its KVM shadows the subject's page tables, because
    /// QEMU's emulation of nested paging corrupts the L1's memory now and then: short
    /// trials lost 1 of 12 to 5 of 10 runs with QEMU 7.2, and 4 of 12 with 11.1.
    pub fn l1_boot_params(&self) -> String {
        format!("kvm_amd.npt=0 {}", self.host_params).trim().to_owned()
    }

    /// Boot parameters of the subject: without PV spinlocks, Linux takes the
    /// native qspinlock only with `nopvspin`, else test-and-set.
    pub fn boot_params(&self) -> &'static str {
        if self.pv_spinlocks { "" } else { "nopvspin" }
    }
}

/// What keeps a topology from an accelerator: the place in the file, and what to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusals {
    /// What virtual time has not.
    pub virtual_time: Option<(Range<usize>, String)>,
    /// What only virtual time has.
    pub real_time: Option<(Range<usize>, String)>,
}

/// A checked topology.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Its name in results.
    pub name: String,
    /// The subject's vCPUs.
    pub vcpus: u32,
    /// The pCPUs that all VMs share.
    pub pcpus: Spanned<Pcpus>,
    /// The subject's memory in MiB.
    pub memory_mib: u64,
    /// The accelerator that it asks for, its own or the experiment's.
    pub accel: Option<Accel>,
    /// Its host where time is virtual.
    pub simulated: Simulated,
    /// Where it cannot run.
    pub refusals: Refusals,
    /// The subject's spinlock, where it is flat; test-and-set when absent and time is real.
    pub spinlock: Option<Spinlock>,
    /// Who shares with whom.
    pub fairness: Fairness,
    /// Each vCPU held to one pCPU: where there are fewer, neighbours share one.
    pub pinned: bool,
    /// Other VMs, real ones.
    pub neighbours: Vec<Neighbour>,
    /// An L1 between.
    pub nested: Option<Nested>,
    /// pCPU time taken away at known times.
    pub injection: Option<Injection>,
    /// The guest schedulers used here; all of the experiment's when absent.
    pub schedulers: Option<Vec<String>>,
    /// The workloads that run here; all of the experiment's when absent.
    pub workloads: Option<Vec<String>>,
}

impl Topology {
    /// Whether a workload runs here.
    pub fn has_workload(&self, name: &str) -> bool {
        self.workloads.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
    }

    /// Checks that an injector takes time from one of the vCPUs: the first of these pCPUs have one
    /// each. Otherwise its intervals would be compared with those of another vCPU.
    pub(super) fn check_injection(&self, pcpus: &[u32]) -> Result<(), String> {
        let held = &pcpus[..pcpus.len().min(self.vcpus as usize)];
        match &self.injection {
            Some(injection) if !held.contains(&injection.pcpu) => Err(format!(
                "the injector's pCPU {} has no vCPU: its `pcpu` is one of {held:?}",
                injection.pcpu
            )),
            _ => Ok(()),
        }
    }

    /// Whether its host could be simulated.
    pub(super) fn may_be_in_virtual_time(&self) -> bool {
        let fits = self.pcpus.get_ref().count() <= super::SIMULATED_PCPUS_MAX;
        fits && self.refusals.virtual_time.is_none()
    }

    /// Whether its host is simulated.
    pub fn in_virtual_time(&self) -> bool {
        self.accel == Some(Accel::Vt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcpus_come_from_what_the_process_may_use() {
        assert_eq!(Pcpus::Count(2).resolve(&[3, 5, 7]), Ok(vec![3, 5]));
        assert!(Pcpus::Count(4).resolve(&[0, 1]).unwrap_err().contains("4 pCPUs are asked for"));
        assert!(Pcpus::List(vec![1, 9]).resolve(&[0, 1]).is_err());
    }

    #[test]
    fn regimes_take_away_what_their_names_say() {
        assert_eq!(Nested::regime("pv", 1).unwrap().cpu(), "host");
        let abandoned = Nested::regime("abandoned", 1).unwrap();
        assert_eq!(abandoned.cpu(), "host,-kvm-pv-unhalt,-kvm-steal-time");
        assert_eq!(abandoned.boot_params(), "nopvspin");
        assert!(!abandoned.pause_exits && Nested::regime("ple", 1).unwrap().pause_exits);
        assert!(Nested::regime("x", 1).is_none());
    }
}

//! Topologies: the VMs that share pCPUs, and how they share them.

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
    /// The number of CPUs to take, from the first that this process may use.
    Count(u32),
    /// These CPUs of the host.
    List(Vec<u32>),
}

impl Pcpus {
    /// Returns the number of pCPUs.
    pub fn count(&self) -> u32 {
        match self {
            Pcpus::Count(count) => *count,
            Pcpus::List(list) => list.len() as u32,
        }
    }

    /// Returns a CPU that the list contains more than once, if any.
    pub(super) fn repeated(&self) -> Option<u32> {
        let Pcpus::List(list) = self else { return None };
        let mut known = BTreeSet::new();
        list.iter().copied().find(|cpu| !known.insert(*cpu))
    }

    /// Returns the numbers of the pCPUs, taken from the CPUs that this process may use.
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

/// The spinlock that a flat guest's kernel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spinlock {
    /// Test-and-set, which Linux uses on a hypervisor without PV spinlocks.
    #[default]
    Tas,
    /// The FIFO qspinlock, which Linux uses on bare metal.
    Native,
}

/// Another VM on the same pCPUs.
#[derive(Debug, Clone)]
pub struct Neighbour {
    /// Name of the neighbour.
    pub name: String,
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// The workload that it runs while the subject runs.
    pub workload: Workload,
}

/// An L1 host below the subject. The pCPUs are the L1's emulated CPUs, and its KVM runs the
/// subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Nested {
    /// Memory of the L1 in MiB.
    pub memory_mib: u64,
    /// Whether the subject is offered PV spinlocks.
    pub pv_spinlocks: bool,
    /// Whether the subject is offered steal time.
    pub steal_time: bool,
    /// Whether the L1's KVM uses PAUSE exits.
    pub pause_exits: bool,
    /// More KVM features to withhold, by QEMU's names, such as `kvm-pv-ipi`.
    pub without: Vec<String>,
    /// Boot parameters to add to the L1's command line.
    pub host_params: String,
}

impl Nested {
    /// Returns a regime by its name: `pv`, `ple` or `abandoned`.
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

    /// Returns QEMU's `-cpu` argument for the subject.
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

    /// Returns the boot parameters of the L1. Its KVM shadows the subject's page tables, because
    /// QEMU's emulation of nested paging sometimes corrupts the L1's memory. With nested paging,
    /// short trials lost 1 of 12 to 5 of 10 runs with QEMU 7.2, and 4 of 12 with 11.1.
    pub fn l1_boot_params(&self) -> String {
        format!("kvm_amd.npt=0 {}", self.host_params).trim().to_owned()
    }

    /// Returns the boot parameters of the subject. Without PV spinlocks, Linux takes the native
    /// qspinlock only with `nopvspin`, else test-and-set.
    pub fn boot_params(&self) -> &'static str {
        if self.pv_spinlocks { "" } else { "nopvspin" }
    }
}

/// The reasons why a topology cannot use an accelerator: the place in the file, and the remedy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusals {
    /// A key that virtual time does not support.
    pub virtual_time: Option<(Range<usize>, String)>,
    /// A key that only virtual time supports.
    pub real_time: Option<(Range<usize>, String)>,
}

/// A topology whose values have been checked.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Name of the topology in results.
    pub name: String,
    /// Number of the subject's vCPUs.
    pub vcpus: u32,
    /// pCPUs that all VMs share.
    pub pcpus: Spanned<Pcpus>,
    /// Memory of the subject in MiB.
    pub memory_mib: u64,
    /// Accelerator that the topology or, failing that, the experiment asks for.
    pub accel: Option<Accel>,
    /// The simulated host, for virtual time.
    pub simulated: Simulated,
    /// Reasons why the topology cannot use an accelerator.
    pub refusals: Refusals,
    /// Spinlock of a flat subject. If absent, it is test-and-set in real time.
    pub spinlock: Option<Spinlock>,
    /// The units between which the host divides pCPU time.
    pub fairness: Fairness,
    /// Whether each vCPU is pinned to one pCPU. If vCPUs outnumber pCPUs, consecutive vCPUs share
    /// one.
    pub pinned: bool,
    /// Neighbours that are real VMs.
    pub neighbours: Vec<Neighbour>,
    /// The L1 below the subject, if the topology is nested.
    pub nested: Option<Nested>,
    /// Intervals in which an injector takes pCPU time away.
    pub injection: Option<Injection>,
    /// Names of the guest schedulers to use here; all of the experiment's if absent.
    pub schedulers: Option<Vec<String>>,
    /// Names of the workloads to run here; all of the experiment's if absent.
    pub workloads: Option<Vec<String>>,
}

impl Topology {
    /// Returns whether the topology runs a workload.
    pub fn has_workload(&self, name: &str) -> bool {
        self.workloads.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
    }

    /// Checks that an injector takes time from one of the vCPUs, which are pinned to the first of
    /// these pCPUs. Otherwise its intervals would be compared with the off time of another vCPU.
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

    /// Returns whether the topology's host can be simulated.
    pub(super) fn may_be_in_virtual_time(&self) -> bool {
        let fits = self.pcpus.get_ref().count() <= super::SIMULATED_PCPUS_MAX;
        fits && self.refusals.virtual_time.is_none()
    }

    /// Returns whether the topology runs in virtual time.
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

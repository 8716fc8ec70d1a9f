//! A simulated host: what QEMU is asked to pretend in virtual time.

use serde::{Deserialize, Serialize};

use super::{Fairness, Job};
use crate::clock::Moment;

/// The name of the virtio-serial port that an unattended guest writes its replies to.
pub const OUT_PORT_NAME: &str = "unspin.out";

/// What a guest without a control channel does: one job, then it powers off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    /// [`super::PROTOCOL`] of the lab.
    pub protocol: u32,
    /// The job, with its setup and its agent.
    pub job: Job,
}

/// An instant that the guest marked in the record, as both sides saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// Virtual time, nanoseconds, as QEMU answered.
    pub virtual_ns: u64,
    /// The guest's clocks just before.
    pub before: Moment,
    /// The guest's CLOCK_MONOTONIC just after, nanoseconds.
    pub after_ns: u64,
}

/// The simulated host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VirtualHost {
    /// Simulated pCPUs.
    pub pcpus: u32,
    /// Nanoseconds that each pCPU runs in a round.
    pub quantum_ns: u64,
    /// The host's scheduler.
    pub scheduler: HostScheduler,
    /// Who shares the pCPUs with whom.
    pub fairness: Fairness,
    /// What exits cost.
    pub prices: Prices,
    /// What the host's KVM offers the guest.
    pub help: Help,
    /// Seed of everything random: the guest's numbers, its addresses, the host's ties.
    pub seed: u64,
    /// Virtual nanoseconds after which QEMU gives up.
    pub until_ns: u64,
    /// Modelled VMs on the same pCPUs.
    pub neighbours: Vec<VirtualNeighbour>,
}

/// A host scheduler that QEMU knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostScheduler {
    /// Earliest eligible virtual deadline first: Linux since 6.6.
    #[default]
    Eevdf,
    /// Completely fair scheduling: Linux before 6.6.
    Cfs,
}

impl HostScheduler {
    /// QEMU's name of it.
    pub fn as_str(self) -> &'static str {
        match self {
            HostScheduler::Eevdf => "eevdf",
            HostScheduler::Cfs => "cfs",
        }
    }
}

/// A table of what each exit costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prices {
    /// Exits cost nothing.
    Free,
    /// A VM on Intel VMX.
    Vmx,
    /// A VM on AMD SVM.
    Svm,
    /// A confidential VM under AMD SEV-ES.
    SevEs,
    /// A confidential VM under Intel TDX.
    Tdx,
}

impl Prices {
    /// QEMU's name of the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Prices::Free => "free",
            Prices::Vmx => "vmx",
            Prices::Svm => "svm",
            Prices::SevEs => "sev-es",
            Prices::Tdx => "tdx",
        }
    }
}

/// What a host's KVM does for a guest that spins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Help {
    /// PV spinlocks (KVM_FEATURE_PV_UNHALT).
    pub pv_spinlocks: bool,
    /// Steal time (KVM_FEATURE_STEAL_TIME).
    pub steal_time: bool,
    /// PAUSE exits (PLE on Intel, the pause filter on AMD).
    pub pause_exits: bool,
}

/// A modelled VM: vCPUs without a guest, which only use pCPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VirtualNeighbour {
    /// Its name in results.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: u32,
    /// When its vCPUs want to run.
    pub model: NeighbourModel,
    /// Nanoseconds of work at a time.
    pub work_ns: u64,
    /// Nanoseconds of sleep between.
    pub sleep_ns: u64,
}

/// When a modelled vCPU wants to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourModel {
    /// Always.
    Greedy,
    /// Work and sleep of fixed length in turn.
    Periodic,
    /// Work and sleep of random length, with these means.
    Burst,
    /// Once: sleep first, then work.
    At,
}

impl NeighbourModel {
    /// QEMU's name of it.
    pub fn as_str(self) -> &'static str {
        match self {
            NeighbourModel::Greedy => "greedy",
            NeighbourModel::Periodic => "periodic",
            NeighbourModel::Burst => "burst",
            NeighbourModel::At => "at",
        }
    }
}

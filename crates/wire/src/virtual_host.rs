//! The simulated host, which QEMU emulates in virtual time.

use serde::{Deserialize, Serialize};

use super::{Fairness, Job};
use crate::clock::Moment;

/// Name of the virtio-serial port to which an unattended guest writes its replies.
pub const OUT_PORT_NAME: &str = "unspin.out";

/// Errand of a guest without a control channel: it runs one job and powers off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    /// [`super::PROTOCOL`] of the lab.
    pub protocol: u32,
    /// The job, with its setup and its agent.
    pub job: Job,
}

/// Kind of a guest's mark in the record, by the number that the guest passes to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A job begins.
    Begin = 1,
    /// A job ended.
    End = 2,
    /// All results are written; the guest powers off next.
    Done = 3,
}

/// An instant that the guest marked in the record, as both sides saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// Virtual time in nanoseconds, as QEMU answered.
    pub virtual_ns: u64,
    /// Readings of the guest's clocks just before.
    pub before: Moment,
    /// The guest's CLOCK_MONOTONIC just after, in nanoseconds.
    pub after_ns: u64,
}

/// The simulated host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VirtualHost {
    /// Number of simulated pCPUs.
    pub pcpus: u32,
    /// Nanoseconds that each pCPU runs in a round.
    pub quantum_ns: u64,
    /// Number of instructions that a pCPU executes in a nanosecond.
    pub instructions: u32,
    /// The host's scheduler.
    pub scheduler: HostScheduler,
    /// How VMs share the pCPUs.
    pub fairness: Fairness,
    /// Costs of exits.
    pub prices: Prices,
    /// Percentage of these prices that the guest pays.
    #[serde(default = "all_of_it")]
    pub price_percent: u32,
    /// Features that the host's KVM offers the guest.
    pub help: Help,
    /// Kind of confidential VM that the guest detects, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cvm: Option<Cvm>,
    /// Limits of the guest's pCPU time.
    #[serde(default, skip_serializing_if = "CpuLimits::is_none")]
    pub cpu: CpuLimits,
    /// Seed of everything random: the guest's numbers, its addresses, the host's ties.
    pub seed: u64,
    /// Virtual nanoseconds after which QEMU gives up.
    pub until_ns: u64,
    /// Modelled VMs on the same pCPUs.
    pub neighbours: Vec<VirtualNeighbour>,
}

/// Limits of a VM's pCPU time, as its cgroup's `cpu.weight` and `cpu.max` would set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuLimits {
    /// Weight of the VM, 1 to 10000; `None` is 100, the weight of all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Maximum pCPU time; `None` is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<CpuMax>,
}

/// Maximum time for which a VM may run in a period, on all pCPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuMax {
    /// Time in microseconds.
    pub quota_us: u64,
    /// Length of the period in microseconds.
    pub period_us: u64,
}

impl CpuLimits {
    /// Returns whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == CpuLimits::default()
    }
}

fn all_of_it() -> u32 {
    100
}

/// A confidential VM whose platform QEMU emulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cvm {
    /// The protocol of AMD SEV-ES, without encryption.
    SevEsEmulated,
}

impl std::fmt::Display for Cvm {
    /// Writes the name for labels, so that nobody takes it for a real SEV-ES guest.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cvm::SevEsEmulated => f.write_str("emulated SEV-ES"),
        }
    }
}

/// A host scheduler that QEMU simulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostScheduler {
    /// Earliest eligible virtual deadline first: Linux since 6.6.
    #[default]
    Eevdf,
    /// Completely fair scheduling: Linux before 6.6.
    Cfs,
}

/// A table of the costs of exits.
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

/// Support of a host's KVM for a guest that spins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Help {
    /// Kick for a halted vCPU, which PV spinlocks need (KVM_FEATURE_PV_UNHALT).
    pub pv_unhalt: bool,
    /// Interrupts to several vCPUs by one hypercall (KVM_FEATURE_PV_SEND_IPI).
    pub pv_ipi: bool,
    /// Steal time, and the features that it makes possible: the guest knows which vCPUs are
    /// preempted, delays their TLB flushes, and directs yields (KVM_FEATURE_STEAL_TIME and two
    /// more).
    pub steal_time: bool,
    /// Interception of PAUSE.
    pub pause_exits: PauseExits,
    /// Shortest loop that exits, in nanoseconds (VMX) or PAUSEs (SVM). `None` is KVM's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_window: Option<u32>,
    /// Target of the yield after a pause loop.
    pub boost: Boost,
    /// Payment for a yield to a vCPU that is not eligible.
    pub debooster: Debooster,
    /// The host's handling of the guest's critical sections.
    pub critical: Critical,
    /// The parts of the guest's answers to reflected pause loops that the host uses.
    #[serde(default, skip_serializing_if = "Vnae::is_off")]
    pub vnae: Vnae,
}

/// The hardware that detects a loop of PAUSEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PauseExits {
    /// No hardware: PAUSE does not exit.
    #[default]
    Off,
    /// Intel's pause-loop exiting.
    Vmx,
    /// AMD's pause filter.
    Svm,
}

/// A version of kvm_vcpu_on_spin(), by the vCPU that it yields to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Boost {
    /// The host yields to no vCPU.
    #[serde(rename = "off")]
    Off,
    /// Linux 2.6.33: the host sleeps for a while.
    #[serde(rename = "2009")]
    Y2009,
    /// Linux 2.6.39: the next vCPU.
    #[serde(rename = "2011")]
    Y2011,
    /// Linux 3.6: not a vCPU that is in a pause loop itself.
    #[serde(rename = "2012")]
    Y2012,
    /// Linux 3.9: only if the host is overcommitted.
    #[serde(rename = "2013")]
    Y2013,
    /// Linux 4.14: a vCPU that was preempted in the kernel.
    #[serde(rename = "2017")]
    Y2017,
    /// Linux 5.3: or one that has a pending interrupt.
    #[serde(rename = "2019")]
    Y2019,
    /// Current Linux.
    #[default]
    #[serde(rename = "mainline")]
    Mainline,
    /// Only a vCPU that can hold what the loop waits for.
    #[serde(rename = "strict")]
    Strict,
    /// As mainline, but first a vCPU that was preempted in a critical section (eCS).
    #[serde(rename = "ecs")]
    Ecs,
}

/// Payment for a directed yield whose target is not eligible, see `policy/host/yield.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Debooster {
    /// Nobody pays, as in mainline.
    #[default]
    Off,
    /// The virtual time of the yielding vCPU rises until the target is eligible.
    Penalty,
    /// The virtual time that the yielding vCPU forfeits goes to the target.
    Transfer,
    /// The yielding vCPU pays nothing: the target gets the lag that it lacks, and all others lose
    /// lag.
    Credit,
}

/// A host's handling of critical sections that its guest announces (eCS, USENIX ATC '18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Critical {
    /// The host ignores critical sections.
    #[default]
    Off,
    /// The host counts preemptions in critical sections.
    Count,
    /// The host counts them, and lets a vCPU in a critical section run for one more tick, once.
    Extend,
}

/// The part that a host uses of a guest's answers to reflected pause loops. The guest has encrypted
/// state, and the host reflects pause loops into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vnae {
    /// The host reflects no pause loops.
    #[default]
    Off,
    /// The host uses no part: this measures the cost of reflection.
    None,
    /// The host uses the privilege level.
    Cpl,
    /// The host uses the vCPU that the guest names.
    Vcpu,
    /// The host uses both.
    Both,
    /// The host uses a random vCPU instead of the named one.
    Sham,
}

impl Vnae {
    fn is_off(&self) -> bool {
        *self == Vnae::Off
    }
}

/// A modelled VM: vCPUs without a guest, which only use pCPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VirtualNeighbour {
    /// Name in results.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Model of when the vCPUs want to run.
    pub model: NeighbourModel,
    /// Nanoseconds of work at a time.
    pub work_ns: u64,
    /// Nanoseconds of sleep in between.
    pub sleep_ns: u64,
    /// Virtual time of the begin in nanoseconds.
    pub phase_ns: u64,
    /// Begin and end of each period in which the vCPUs want to run, ascending, in virtual
    /// nanoseconds.
    pub times_ns: Vec<(u64, u64)>,
}

/// Model of when a modelled vCPU wants to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourModel {
    /// The vCPU always wants to run.
    Greedy,
    /// The vCPU wants to run until it has had its work in pCPU time, then it sleeps.
    Periodic,
    /// The vCPU wants to run for a fixed time, whatever it gets, then it sleeps.
    Burst,
    /// The vCPU wants to run at given times.
    At,
}

/// Returns QEMU's name of an option's value: the name that files use.
pub fn option_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("an option's value is a name, not {other:?}"),
    }
}

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

/// What a guest marks in the record, by the number that it passes to the host.
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
    /// Instructions that a pCPU executes in a nanosecond.
    pub instructions: u32,
    /// The host's scheduler.
    pub scheduler: HostScheduler,
    /// Who shares the pCPUs with whom.
    pub fairness: Fairness,
    /// What exits cost.
    pub prices: Prices,
    /// The percentage of these prices that is paid.
    #[serde(default = "all_of_it")]
    pub price_percent: u32,
    /// What the host's KVM offers the guest.
    pub help: Help,
    /// What the guest takes itself for, if it is a confidential one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cvm: Option<Cvm>,
    /// What the guest may use.
    #[serde(default, skip_serializing_if = "CpuLimits::is_none")]
    pub cpu: CpuLimits,
    /// Seed of everything random: the guest's numbers, its addresses, the host's ties.
    pub seed: u64,
    /// Virtual nanoseconds after which QEMU gives up.
    pub until_ns: u64,
    /// Modelled VMs on the same pCPUs.
    pub neighbours: Vec<VirtualNeighbour>,
}

/// What a VM may use of the pCPUs, as its cgroup's `cpu.weight` and `cpu.max` would have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuLimits {
    /// Its weight, 1 to 10000; `None`: 100, which is that of all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The most that it gets; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<CpuMax>,
}

/// How long a VM may run in a period, all pCPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuMax {
    /// So long, microseconds.
    pub quota_us: u64,
    /// The period, microseconds.
    pub period_us: u64,
}

impl CpuLimits {
    /// Whether nothing is limited.
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
    /// As labels say it, lest anybody takes it for the real thing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cvm::SevEsEmulated => f.write_str("emulated SEV-ES"),
        }
    }
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

/// What a host's KVM does for a guest that spins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Help {
    /// A kick for a halted vCPU: what PV spinlocks need (KVM_FEATURE_PV_UNHALT).
    pub pv_unhalt: bool,
    /// Interrupts to several vCPUs by one hypercall (KVM_FEATURE_PV_SEND_IPI).
    pub pv_ipi: bool,
    /// Steal time, and with it what it makes possible: preempted vCPUs are known, their TLB
    /// flushes wait, and a yield can be directed (KVM_FEATURE_STEAL_TIME and two more).
    pub steal_time: bool,
    /// How PAUSE is intercepted.
    pub pause_exits: PauseExits,
    /// The shortest loop that exits: nanoseconds (VMX) or PAUSEs (SVM). `None`: KVM's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_window: Option<u32>,
    /// Whom a pause loop yields to.
    pub boost: Boost,
    /// What a yield costs who is boosted.
    pub debooster: Debooster,
    /// What the host does with the guest's critical sections.
    pub critical: Critical,
    /// What the host uses of the guest's answers to reflected pause loops.
    #[serde(default, skip_serializing_if = "Vnae::is_off")]
    pub vnae: Vnae,
}

/// The hardware that finds a loop of PAUSEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PauseExits {
    /// None.
    #[default]
    Off,
    /// Intel's pause-loop exiting.
    Vmx,
    /// AMD's pause filter.
    Svm,
}

/// A version of kvm_vcpu_on_spin().
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Boost {
    /// Nobody.
    #[serde(rename = "off")]
    Off,
    /// Linux 2.6.33: sleep for a while.
    #[serde(rename = "2009")]
    Y2009,
    /// Linux 2.6.39: the next vCPU.
    #[serde(rename = "2011")]
    Y2011,
    /// Linux 3.6: not who is in a pause loop itself.
    #[serde(rename = "2012")]
    Y2012,
    /// Linux 3.9: only where the host is overcommitted.
    #[serde(rename = "2013")]
    Y2013,
    /// Linux 4.14: who was preempted in the kernel.
    #[serde(rename = "2017")]
    Y2017,
    /// Linux 5.3: or who has an interrupt.
    #[serde(rename = "2019")]
    Y2019,
    /// Linux now.
    #[default]
    #[serde(rename = "mainline")]
    Mainline,
    /// Only who can have what is spun for.
    #[serde(rename = "strict")]
    Strict,
    /// As mainline, but first one that was preempted in a critical section (eCS).
    #[serde(rename = "ecs")]
    Ecs,
}

/// What a yield costs who is boosted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Debooster {
    /// Nothing.
    #[default]
    Off,
    /// Its own later time.
    Penalty,
    /// The time passes from one to the other.
    Transfer,
    /// Nothing to it, but lag to all others.
    Credit,
}

/// What a host does with what its guest says about critical sections (eCS, USENIX ATC '18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Critical {
    /// It knows of none.
    #[default]
    Off,
    /// It counts preemptions in critical sections.
    Count,
    /// It counts, and leaves a vCPU in a critical section one tick more, once.
    Extend,
}

/// What a host uses of the answers of a guest with encrypted state to pause loops that it
/// reflects into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vnae {
    /// It reflects none.
    #[default]
    Off,
    /// Nothing: what reflection costs.
    None,
    /// The privilege level.
    Cpl,
    /// The vCPU that the guest names.
    Vcpu,
    /// Both.
    Both,
    /// A vCPU drawn by lot instead of the named one.
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
    /// Virtual time of its begin.
    pub phase_ns: u64,
    /// From when until when it wants to run, ascending, virtual nanoseconds.
    pub times_ns: Vec<(u64, u64)>,
}

/// When a modelled vCPU wants to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NeighbourModel {
    /// Always.
    Greedy,
    /// For so much pCPU time, then it sleeps.
    Periodic,
    /// For so long, whatever it gets, then it sleeps.
    Burst,
    /// At given times.
    At,
}

/// QEMU's name of an option's value: the one that files use.
pub fn option_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("an option's value is a name, not {other:?}"),
    }
}

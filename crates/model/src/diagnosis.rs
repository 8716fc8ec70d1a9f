//! What a machine is and what that means for spinning.

use serde::{Deserialize, Serialize};

/// The whole of it: the format of `unspin doctor --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What the machine is.
    pub machine: GuestMachine,
    /// Help against spinning that the hypervisor gives, or does not; empty on a machine
    /// that is not virtual.
    pub help: Vec<Help>,
    /// What this kernel and this user's rights allow to do about it.
    pub abilities: Vec<Ability>,
}

/// What the machine is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestMachine {
    /// Whether and how its memory is hidden from its host.
    pub confidential: Confidential,
    /// The hypervisor.
    pub hypervisor: Hypervisor,
    /// CPUs online.
    pub cpus: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The current clock source.
    pub clocksource: Option<String>,
    /// What the kernel's spinlocks do while they wait.
    pub spinlock: Spinlock,
    /// Steal time since boot, seconds, all CPUs together; `null` where /proc/stat has no such
    /// figure. 0 can mean that the kernel does not know.
    pub steal_s: Option<f64>,
}

/// A kind of confidential VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidential {
    /// None.
    Plain,
    /// AMD SEV: encrypted memory.
    Sev,
    /// AMD SEV-ES: and encrypted registers.
    SevEs,
    /// AMD SEV-SNP: and memory whose integrity is protected.
    SevSnp,
    /// AMD's, if any; which of them could not be found out.
    SevUnknown,
    /// Intel TDX.
    Tdx,
}

/// A hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hypervisor {
    /// None: not a virtual machine, or one that hides it.
    None,
    /// Linux KVM.
    Kvm,
    /// Microsoft Hyper-V, Azure.
    HyperV,
    /// VMware.
    Vmware,
    /// Xen.
    Xen,
    /// QEMU's software emulation.
    Tcg,
    /// Another one, with what it calls itself.
    Other(String),
}

/// What the kernel's spinlocks do while they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spinlock {
    /// A queue whose waiters halt after a while, and are woken (PV qspinlock).
    ParavirtualQueue,
    /// A queue whose waiters spin until it is their turn: one that is off stops all behind it.
    NativeQueue,
    /// Whoever comes first: a waiter that is off stops nobody, and nobody halts.
    TestAndSet,
    /// It cannot be told from what was read.
    Unknown,
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is there and used.
    Present,
    /// It is not.
    Absent,
    /// It cannot be told from inside.
    Unknown,
}

/// One kind of help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Help {
    /// Its name in the field.
    pub name: String,
    /// Whether it is there.
    pub state: State,
    /// What that means here.
    pub means: String,
}

/// Something that could be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ability {
    /// What.
    pub name: String,
    /// Whether it is possible here.
    pub possible: bool,
    /// What is missing and how to get it; empty where nothing is.
    pub missing: Vec<String>,
}

/// Whether this kernel would take a guest scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// It has sched_ext, and nobody uses it.
    Ready,
    /// `unspin run` is at work.
    Ours,
    /// Another scheduler is.
    Taken,
    /// It has no sched_ext.
    Absent,
}

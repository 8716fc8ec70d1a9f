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
    /// Which verbs work here.
    pub verbs: Vec<Verb>,
    /// How to get a kernel with sched_ext; absent where this one has it, or cpusets do.
    pub kernel_advice: Option<KernelAdvice>,
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
    /// The same as a share of CPU time since boot, idle time included, from 0 to 1.
    pub steal_share: Option<f64>,
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
    /// What was read does not decide it.
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
    /// It does not show from inside.
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

/// Whether a verb works on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verb {
    /// The verb, with the option that matters.
    pub verb: String,
    /// Whether it works.
    pub ready: Ready,
    /// What is missing and how to get it, or what it will not show.
    pub why: Vec<String>,
}

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
    /// All of it.
    Yes,
    /// With less to show.
    Partly,
    /// Not at all.
    No,
}

/// How to get a kernel with sched_ext.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelAdvice {
    /// The distribution, by its own name.
    pub distribution: String,
    /// Which of its kernels have sched_ext, as far as that is known.
    pub known: String,
    /// Commands, in order; empty where none is known.
    pub commands: Vec<String>,
    /// What helps without sched_ext.
    pub without: Vec<String>,
}

/// Whether `unspin run` could act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// There are cgroups with cpusets, or sched_ext that nobody uses.
    Ready,
    /// `unspin run` acts.
    Ours,
    /// There is sched_ext alone, and another scheduler is loaded.
    Taken,
    /// There is neither.
    Absent,
    /// The host's help makes it needless.
    Needless,
}

//! Properties of a machine, and what they mean for spinning.

use serde::{Deserialize, Serialize};

/// The whole diagnosis: the format of `unspin doctor --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Properties of the machine.
    pub machine: GuestMachine,
    /// Help against spinning that the hypervisor may give; empty on a machine that is not virtual.
    pub help: Vec<Help>,
    /// The verbs, and whether they work here.
    pub verbs: Vec<Verb>,
    /// How to get a kernel with sched_ext; absent if this one has it, or if cpusets do.
    pub kernel_advice: Option<KernelAdvice>,
}

/// Properties of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestMachine {
    /// Whether and how the machine's memory is hidden from its host.
    pub confidential: Confidential,
    /// The hypervisor.
    pub hypervisor: Hypervisor,
    /// Number of CPUs online.
    pub cpus: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// The current clock source.
    pub clocksource: Option<String>,
    /// Behaviour of waiters for the kernel's spinlocks.
    pub spinlock: Spinlock,
    /// Steal time since boot in seconds, all CPUs together; `null` if /proc/stat has no such
    /// figure. 0 can mean that the kernel does not know.
    pub steal_s: Option<f64>,
    /// Steal time as a share of CPU time since boot, idle time included, from 0 to 1.
    pub steal_share: Option<f64>,
}

/// A kind of confidential VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidential {
    /// Not a confidential VM.
    Plain,
    /// AMD SEV: encrypted memory.
    Sev,
    /// AMD SEV-ES: encrypted memory and registers.
    SevEs,
    /// AMD SEV-SNP: encrypted memory and registers, and memory with integrity protection.
    SevSnp,
    /// One of AMD's kinds, if any; which of them is not known.
    SevUnknown,
    /// Intel TDX.
    Tdx,
}

/// A hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hypervisor {
    /// None: not a virtual machine, or a hypervisor that hides.
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
    /// Another hypervisor, with the name that it reports.
    Other(String),
}

/// Behaviour of waiters for the kernel's spinlocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spinlock {
    /// A queue whose waiters halt after a while, until they are woken (PV qspinlock).
    ParavirtualQueue,
    /// A queue whose waiters spin until it is their turn: a waiter that is off stops all behind it.
    NativeQueue,
    /// The first to come takes the lock: a waiter that is off stops nobody, and no waiter halts.
    TestAndSet,
    /// Not known: what could be read does not decide it.
    Unknown,
}

/// Whether a kind of help is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The help is available and in use.
    Present,
    /// The help is not available.
    Absent,
    /// The guest cannot see whether the help is available.
    Unknown,
}

/// One kind of help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Help {
    /// Common name of the help.
    pub name: String,
    /// Whether the help is available.
    pub state: State,
    /// Meaning of the state on this machine.
    pub means: String,
}

/// Whether a verb works on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verb {
    /// The verb, with the option that matters.
    pub verb: String,
    /// Whether the verb works.
    pub ready: Ready,
    /// What the verb lacks and how to get it, or what it does not show.
    pub why: Vec<String>,
}

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
    /// The verb works in full.
    Yes,
    /// The verb works, but shows less.
    Partly,
    /// The verb does not work.
    No,
}

/// How to get a kernel with sched_ext.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelAdvice {
    /// Name that the distribution gives itself.
    pub distribution: String,
    /// Kernels of the distribution that have sched_ext, as far as known.
    pub known: String,
    /// Commands in order; empty if none are known.
    pub commands: Vec<String>,
    /// What helps without sched_ext.
    pub without: Vec<String>,
}

/// Whether `unspin run` could act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// cgroups with cpusets are available, or sched_ext without a scheduler loaded.
    Ready,
    /// `unspin run` acts.
    Ours,
    /// Only sched_ext is available, and another scheduler is loaded.
    Taken,
    /// Neither is available, or `unspin run` refuses to act, as in a container.
    Absent,
    /// The host's help makes `unspin run` unnecessary.
    Needless,
}

//! What a host is asked to do, and what it answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use unspin_model::{Recording, TruthSummary};

use super::{Failure, Fairness, Hello, Injection, Job, JobResult, TruthMode, VirtualHost, VmSpec};

/// What is asked of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HostRequest {
    /// Start these VMs and wait until each has said hello.
    Boot(Box<BootSpec>),
    /// Run the subject's job; the neighbours' jobs start before and stop after it.
    Run(Box<RunSpec>),
    /// Stop all VMs.
    Halt,
}

/// VMs that run together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BootSpec {
    /// The VMs, the subject first.
    pub vms: Vec<VmSpec>,
    /// Who shares with whom.
    pub fairness: Fairness,
    /// The machine between, where the subject is nested in an emulated one.
    pub l1: Option<Box<L1Spec>>,
    /// The simulated host, where time is virtual.
    pub virtual_host: Option<Box<VirtualHost>>,
}

/// The L1 of a nested machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct L1Spec {
    /// The block that it serves; the next block gets an L1 of its own.
    pub block: u32,
    /// The machine.
    pub vm: VmSpec,
}

/// VMs that are up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Booted {
    /// Their hellos, in the order of the request; none where a run boots its own VM.
    pub hellos: Vec<Hello>,
    /// Seconds from the subject's QEMU start to its hello.
    pub boot_s: f64,
}

/// One run, as a host carries it out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunSpec {
    /// The subject's job.
    pub job: Job,
    /// The neighbours' jobs in the order of their VMs.
    pub neighbours: Vec<Job>,
    /// How the ground truth is observed.
    pub truth: TruthMode,
    /// pCPU time to take away meanwhile.
    pub injection: Option<Injection>,
}

/// What a host answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HostReply {
    /// All VMs are up.
    Booted(Booted),
    /// The run is over.
    Ran(Box<RunOutput>),
    /// All VMs are stopped.
    Halted,
    /// It went wrong; the VMs are stopped.
    Failed(Failure),
}

/// What a run left.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunOutput {
    /// The subject's job; `None` when the guest stopped answering while it ran.
    pub job: Option<JobResult>,
    /// The neighbours' jobs.
    pub neighbours: Vec<Option<JobResult>>,
    /// vCPU-seconds that each neighbour was on a pCPU while the subject ran.
    pub neighbours_on_s: Vec<f64>,
    /// Ground truth in figures.
    pub truth: Option<TruthSummary>,
    /// Every change of state, where it was observed.
    pub recording: Option<Recording>,
    /// KVM's counters over the run.
    pub kvm: BTreeMap<String, u64>,
    /// CPU seconds that the host's side of the lab used.
    pub lab_cpu_s: f64,
    /// SHA-256 of what guest and host wrote, where time is virtual.
    #[serde(default)]
    pub digest: Option<String>,
    /// The boot that this run had for itself.
    #[serde(default)]
    pub booted: Option<Booted>,
}

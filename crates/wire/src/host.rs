//! Requests to a host, and its replies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use unspin_model::{Recording, TruthSummary};

use super::{Failure, Fairness, Hello, Injection, Job, JobResult, TruthMode, VirtualHost, VmSpec};

/// A request to a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HostRequest {
    /// Start these VMs and wait for the hello of each.
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
    /// How the VMs share the pCPUs.
    pub fairness: Fairness,
    /// The machine in between, if the subject is nested in an emulated one.
    pub l1: Option<Box<L1Spec>>,
    /// The simulated host, if time is virtual.
    pub virtual_host: Option<Box<VirtualHost>>,
}

/// The L1 of a nested machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct L1Spec {
    /// Block that the L1 serves; the next block gets another L1.
    pub block: u32,
    /// The machine.
    pub vm: VmSpec,
}

/// VMs that are up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Booted {
    /// Hellos of the VMs, in the order of the request; empty if a run boots its own VM.
    pub hellos: Vec<Hello>,
    /// Seconds from the subject's QEMU start to its hello.
    pub boot_s: f64,
}

/// One run that a host carries out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunSpec {
    /// The subject's job.
    pub job: Job,
    /// The neighbours' jobs, in the order of their VMs.
    pub neighbours: Vec<Job>,
    /// Method of observing the ground truth.
    pub truth: TruthMode,
    /// pCPU time to take away during the run.
    pub injection: Option<Injection>,
}

/// A reply of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HostReply {
    /// All VMs are up.
    Booted(Booted),
    /// The run is over.
    Ran(Box<RunOutput>),
    /// All VMs are stopped.
    Halted,
    /// The request failed; the VMs are stopped.
    Failed(Failure),
}

/// Results of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunOutput {
    /// Result of the subject's job; `None` if the guest stopped answering while the job ran.
    pub job: Option<JobResult>,
    /// Results of the neighbours' jobs.
    pub neighbours: Vec<Option<JobResult>>,
    /// vCPU-seconds that each neighbour was on a pCPU from the request to the answer; in virtual
    /// time, while the job ran.
    pub neighbours_on_s: Vec<f64>,
    /// Sums of the ground truth.
    pub truth: Option<TruthSummary>,
    /// Every change of state, if it was observed.
    pub recording: Option<Recording>,
    /// KVM's counters over the same time.
    pub kvm: BTreeMap<String, u64>,
    /// CPU seconds that the host's side of the lab used from the request to the answer.
    pub lab_cpu_s: f64,
    /// SHA-256 of the output of guest and host, if time is virtual.
    #[serde(default)]
    pub digest: Option<String>,
    /// The boot that served only this run.
    #[serde(default)]
    pub booted: Option<Booted>,
}

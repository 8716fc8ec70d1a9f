//! What the lab and a guest's init say to each other over virtio-serial: one
//! JSON value a line, requests with an id in, replies with that id out.
//!
//! An init can also be a host: the L1 of a nested machine starts the L2s with
//! the code that the build machine itself uses, asked for by [`HostRequest`].

pub mod clock;
pub mod guest;
mod host;
mod virtual_host;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use unspin_model::scheduler::Stats;
use unspin_model::{Accel, FailureKind};

pub use host::{BootSpec, Booted, HostReply, HostRequest, L1Spec, RunOutput, RunSpec};
pub use virtual_host::{
    Boost, CpuLimits, CpuMax, Critical, Cvm, Debooster, Errand, Help, HostScheduler, Mark, Marked,
    NeighbourModel, OUT_PORT_NAME, PauseExits, Prices, VirtualHost, VirtualNeighbour, Vnae,
    option_name,
};

use clock::Moment;

/// When a vCPU idled, from and until, in order. Where it did when the observation began or
/// ended, 0 and `u64::MAX`.
pub type IdleSpans = Vec<[u64; 2]>;

/// The name of the virtio-serial port that carries the channel.
pub const PORT_NAME: &str = "unspin.ctl";

/// Version of these messages, to be raised with every change of them. The lab and a guest's
/// init are two programs, and only one of them may have been built again.
pub const PROTOCOL: u32 = 2;

/// Seconds of the guest's time that a setup command may take.
pub const SETUP_LIMIT_S: u32 = 60;

/// What a guest says first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the guest.
    pub protocol: u32,
    /// `uname -r`.
    pub release: String,
    /// Online vCPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The spinlock kind in the kernel's own words.
    pub spinlock: String,
    /// Whether /sys/kernel/sched_ext exists.
    pub sched_ext: bool,
}

impl Hello {
    /// What keeps its guest from a run with so many vCPUs, in words.
    pub fn unfit(&self, vcpus: u32) -> Option<String> {
        if self.protocol != PROTOCOL {
            return Some(format!(
                "the guest speaks protocol {}, the lab {PROTOCOL}: build the whole workspace again",
                self.protocol
            ));
        }
        // An emulated CPU can fail to come up when its host starves it.
        let came_up = self.vcpus;
        (came_up != vcpus).then(|| format!("the guest brought up {came_up} of {vcpus} vCPUs"))
    }
}

/// A line to the guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// Pairs a reply with its request. 0 is the guest's [`Hello`].
    pub id: u64,
    /// The message.
    pub body: T,
}

/// What the lab asks of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// What time is it?
    Ping,
    /// Answer so many questions on the page of shared memory.
    ShareClock {
        /// How many.
        rounds: u64,
        /// As long as they may take, in seconds.
        limit_s: f64,
    },
    /// Run a job to its end.
    Run(Job),
    /// Start a job that runs until it is stopped.
    Start(Job),
    /// Stop a started job and return what it printed.
    Stop {
        /// The handle that [`Reply::Started`] gave.
        handle: u64,
    },
    /// Be a host: start VMs, run jobs on them, stop them.
    Host(Box<HostRequest>),
    /// Shut down.
    PowerOff,
}

/// What a guest answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The first message of a guest.
    Hello(Hello),
    /// The guest's clocks.
    Pong(Moment),
    /// The clock was shared.
    Shared,
    /// A job ended.
    Ran(JobResult),
    /// A job runs.
    Started {
        /// For [`Request::Stop`].
        handle: u64,
    },
    /// As a host.
    Host(Box<HostReply>),
    /// The request could not be carried out.
    Error(String),
}

/// A command to run in a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Commands to run before it, not timed.
    pub setup: Vec<Vec<String>>,
    /// vCPUs that it and its children are held to; all when absent.
    pub cpus: Option<Vec<u32>>,
    /// It is killed after this many seconds.
    pub time_limit_s: f64,
    /// A guest scheduler, or another agent, to start first and to stop at the end.
    pub scheduler: Option<Agent>,
    /// Whether the guest's kernel records when each vCPU idles meanwhile.
    #[serde(default)]
    pub trace_idle: bool,
}

/// A command that runs beside jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The session file that it writes. An agent that has one loads no scheduler; it
    /// lives as long as one job, and its file comes with the job's result.
    pub session: Option<String>,
    /// Where it answers once it is ready. One that does loads no scheduler, either.
    pub listens: Option<SocketAddr>,
    /// The unix socket where a guest scheduler serves its figures.
    #[serde(default)]
    pub stats: Option<PathBuf>,
}

impl Agent {
    /// Whether it is a guest scheduler.
    pub fn is_scheduler(&self) -> bool {
        self.session.is_none() && self.listens.is_none()
    }
}

/// How a job ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// Exit code, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// True when the time limit ended it.
    pub timed_out: bool,
    /// True when the kernel's out-of-memory killer struck meanwhile.
    pub out_of_memory: bool,
    /// True when the guest scheduler failed to start or went away.
    pub scheduler_failed: bool,
    /// Start and end on the guest's CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// What it printed, up to a limit.
    pub stdout: String,
    /// The end of what it printed on standard error.
    pub stderr: String,
    /// The agent's session file.
    #[serde(default, with = "base64_text")]
    pub session: Option<Vec<u8>>,
    /// The most memory that the agent beside it had, bytes; where there was one.
    #[serde(default)]
    pub agent_memory: Option<u64>,
    /// The guest scheduler's figures before and after it; if it serves them.
    #[serde(default)]
    pub stats: Option<Box<[Stats; 2]>>,
    /// When each vCPU idled; `None` where that was not traced, or not in full.
    #[serde(default)]
    pub idle: Option<Vec<IdleSpans>>,
    /// Its begin and its end in virtual time; empty on a host that keeps no record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Marked>,
}

/// Bytes as JSON text.
mod base64_text {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, out: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(out)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(input)?;
        text.map(|text| STANDARD.decode(text)).transpose().map_err(de::Error::custom)
    }
}

impl JobResult {
    /// Seconds it ran.
    pub fn elapsed_s(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }
}

/// A virtual machine to start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmSpec {
    /// Its name, unique on its host.
    pub name: String,
    /// vCPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Path of its bzImage on its host.
    pub kernel: String,
    /// Path of its initramfs on its host.
    pub initramfs: String,
    /// Boot parameters beyond the lab's own.
    pub boot_params: String,
    /// Accelerator.
    pub accel: Accel,
    /// QEMU's `-cpu` argument.
    pub cpu: String,
    /// The pCPUs that its vCPU threads may run on.
    pub pcpus: Vec<u32>,
    /// Whether each vCPU is held to one pCPU: where there are fewer, neighbours share one.
    pub pinned: bool,
    /// What its KVM must do, where it has one.
    pub pause_exits: Option<bool>,
    /// Seconds it may take to say hello.
    pub boot_limit_s: f64,
}

/// Who shares the pCPUs with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fairness {
    /// Every vCPU thread counts the same.
    #[default]
    PerThread,
    /// Every VM counts the same, however many vCPUs it has.
    PerVm,
}

/// How the ground truth is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TruthMode {
    /// Every change, from sched_switch; totals where that does not work.
    #[default]
    Events,
    /// Totals only, from schedstat.
    Totals,
    /// Not at all.
    Off,
}

/// A schedule of pCPU time to take away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// The pCPU taken away.
    pub pcpu: u32,
    /// Lengths in microseconds, taken in turn.
    pub lengths_us: Vec<u64>,
    /// Pause between two of them in microseconds.
    pub gap_us: u64,
    /// Milliseconds from the run's start to the first pause: an agent that is to see all of
    /// them must have begun.
    #[serde(default)]
    pub after_ms: u64,
    /// How many in all.
    pub count: u32,
}

/// Why a host could not do it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What failed.
    pub kind: FailureKind,
    /// In words, with the end of the console log.
    pub detail: String,
}

impl Failure {
    /// A failure of a kind with its reason.
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Failure { kind, detail: detail.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_of_another_protocol_or_with_fewer_vcpus_is_unfit() {
        let hello = Hello { protocol: PROTOCOL, vcpus: 4, ..Hello::default() };
        assert_eq!(hello.unfit(4), None);
        assert_eq!(hello.unfit(6).unwrap(), "the guest brought up 4 of 6 vCPUs");
        let older = Hello { protocol: PROTOCOL - 1, ..hello };
        assert!(older.unfit(4).unwrap().contains("build the whole workspace again"));
    }
}

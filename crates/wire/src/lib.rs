//! Messages between the lab and a guest's init over virtio-serial. Each message is one JSON value a
//! line: a request carries an id, and its reply carries the same id.
//!
//! An init can also be a host: the L1 of a nested machine starts the L2s with the code that the
//! build machine itself uses, on a [`HostRequest`].

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

/// Begin and end of each period for which a vCPU idled, in order, in nanoseconds. They are 0 and
/// `u64::MAX` if the vCPU idled when the observation began or ended.
pub type IdleSpans = Vec<[u64; 2]>;

/// Name of the virtio-serial port that carries the channel.
pub const PORT_NAME: &str = "unspin.ctl";

/// Version of these messages. Raise it with every change of them: the lab and a guest's init are
/// two programs, and perhaps only one of them was built again.
pub const PROTOCOL: u32 = 2;

/// Seconds of the guest's time that a setup command may take.
pub const SETUP_LIMIT_S: u32 = 60;

/// First message of a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the guest.
    pub protocol: u32,
    /// Release of the guest's kernel (`uname -r`).
    pub release: String,
    /// Number of online vCPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kind of spinlock, in the kernel's own words.
    pub spinlock: String,
    /// Whether /sys/kernel/sched_ext exists.
    pub sched_ext: bool,
}

impl Hello {
    /// Returns why the guest is unfit for a run with `vcpus` vCPUs, if it is.
    pub fn unfit(&self, vcpus: u32) -> Option<String> {
        if self.protocol != PROTOCOL {
            return Some(format!(
                "the guest speaks protocol {}, the lab {PROTOCOL}: build the whole workspace again",
                self.protocol
            ));
        }
        // An emulated CPU can fail to come up if its host starves it.
        let came_up = self.vcpus;
        (came_up != vcpus).then(|| format!("the guest brought up {came_up} of {vcpus} vCPUs"))
    }
}

/// A line to or from the guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// Number that pairs a reply with its request. 0 is the guest's [`Hello`].
    pub id: u64,
    /// The message.
    pub body: T,
}

/// A request of the lab to a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Read the clocks.
    Ping,
    /// Answer questions on the page of shared memory.
    ShareClock {
        /// Number of questions.
        rounds: u64,
        /// Maximum time for all of them in seconds.
        limit_s: f64,
    },
    /// Run a job to its end.
    Run(Job),
    /// Start a job that runs until the lab stops it.
    Start(Job),
    /// Stop a started job and return its output.
    Stop {
        /// Handle from [`Reply::Started`].
        handle: u64,
    },
    /// Act as a host: start VMs, run jobs on them, stop them.
    Host(Box<HostRequest>),
    /// Shut down.
    PowerOff,
}

/// A reply of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The first message of a guest.
    Hello(Hello),
    /// The guest's clocks.
    Pong(Moment),
    /// The clock was shared.
    Shared,
    /// The job ended.
    Ran(JobResult),
    /// The job runs.
    Started {
        /// Handle for [`Request::Stop`].
        handle: u64,
    },
    /// The reply to [`Request::Host`].
    Host(Box<HostReply>),
    /// The guest could not carry out the request.
    Error(String),
}

/// A command to run in a guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Commands to run before the job, not timed.
    pub setup: Vec<Vec<String>>,
    /// vCPUs to which the job and its children are pinned; all if absent.
    pub cpus: Option<Vec<u32>>,
    /// Seconds after which the init kills the job.
    pub time_limit_s: f64,
    /// Guest scheduler, or another agent, to start before the job and to stop after it.
    pub scheduler: Option<Agent>,
    /// Whether the guest's kernel records when each vCPU idles during the job.
    #[serde(default)]
    pub trace_idle: bool,
}

/// A command that runs during jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Session file that the agent writes. An agent with a session file loads no scheduler. It runs
    /// for one job only, and its file comes with the job's result.
    pub session: Option<String>,
    /// Address at which the agent answers once it is ready. An agent with an address does not load
    /// a scheduler, either.
    pub listens: Option<SocketAddr>,
    /// Unix socket at which a guest scheduler serves its figures.
    #[serde(default)]
    pub stats: Option<PathBuf>,
}

impl Agent {
    /// Returns whether the agent is a guest scheduler.
    pub fn is_scheduler(&self) -> bool {
        self.session.is_none() && self.listens.is_none()
    }
}

/// End of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// Exit code, if the job exited.
    pub exit_code: Option<i32>,
    /// Signal that ended the job, if one did.
    pub signal: Option<i32>,
    /// Whether the time limit ended the job.
    pub timed_out: bool,
    /// Whether the kernel's out-of-memory killer struck during the job.
    pub out_of_memory: bool,
    /// Whether the guest scheduler failed to start, or went away.
    pub scheduler_failed: bool,
    /// Start, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Standard output, up to a limit.
    pub stdout: String,
    /// The last part of standard error.
    pub stderr: String,
    /// Content of the agent's session file.
    #[serde(default, with = "base64_text")]
    pub session: Option<Vec<u8>>,
    /// Peak memory of the agent in bytes, if the job had one.
    #[serde(default)]
    pub agent_memory: Option<u64>,
    /// Figures of the guest scheduler before and after the job, if it serves them.
    #[serde(default)]
    pub stats: Option<Box<[Stats; 2]>>,
    /// Idle periods of each vCPU; `None` if they were not traced, or not completely.
    #[serde(default)]
    pub idle: Option<Vec<IdleSpans>>,
    /// Begin and end of the job in virtual time; empty on a host that keeps no record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Marked>,
}

/// Encoding of bytes as JSON text.
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
    /// Returns the seconds for which the job ran.
    pub fn elapsed_s(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }
}

/// A virtual machine to start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VmSpec {
    /// Name of the VM, unique on its host.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Path of the bzImage on the host.
    pub kernel: String,
    /// Path of the initramfs on the host.
    pub initramfs: String,
    /// Boot parameters beyond the lab's own.
    pub boot_params: String,
    /// Accelerator.
    pub accel: Accel,
    /// QEMU's `-cpu` argument.
    pub cpu: String,
    /// pCPUs that the vCPU threads may run on.
    pub pcpus: Vec<u32>,
    /// Whether each vCPU is pinned to one pCPU; if there are fewer pCPUs, neighbours share one.
    pub pinned: bool,
    /// Whether PAUSE must exit to the host's KVM; `None` leaves KVM as it is.
    pub pause_exits: Option<bool>,
    /// Seconds within which the VM must say hello.
    pub boot_limit_s: f64,
}

/// How VMs share the pCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fairness {
    /// Every vCPU thread has the same weight.
    #[default]
    PerThread,
    /// Every VM has the same weight, regardless of its number of vCPUs.
    PerVm,
}

/// Method of observing the ground truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TruthMode {
    /// Observe every change, with sched_switch; only totals if that does not work.
    #[default]
    Events,
    /// Observe only totals, with schedstat.
    Totals,
    /// Do not observe.
    Off,
}

/// A schedule of pCPU time to take away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// Number of the pCPU to take away.
    pub pcpu: u32,
    /// Lengths in microseconds, used one after the other.
    pub lengths_us: Vec<u64>,
    /// Pause between two intervals in microseconds.
    pub gap_us: u64,
    /// Milliseconds from the run's start to the first pause. An agent must have begun before that
    /// to see all intervals.
    #[serde(default)]
    pub after_ms: u64,
    /// Total number of intervals.
    pub count: u32,
}

/// Reason why a host could not carry out a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Description, with the end of the console log.
    pub detail: String,
}

impl Failure {
    /// Creates a failure of a kind with its description.
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

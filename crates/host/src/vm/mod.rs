//! A virtual machine: a QEMU process, its monitor, and its control channel.

mod args;
mod channel;
mod console;
mod process;
mod qmp;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use unspin_model::FailureKind;

pub use args::{BOOT_PARAMS, cpu_model, qemu_args};
pub use channel::Channel;
pub use console::{Verdict, classify, explain};
pub use process::spawn;
use process::{cpu_set, end};

use unspin_wire::clock::Moment;
use unspin_wire::{Failure, Hello, Job, JobResult, Reply, Request, SETUP_LIMIT_S, VmSpec};

use crate::clock_page::ClockPage;

/// QEMU's program name.
pub const QEMU: &str = "qemu-system-x86_64";

/// Returns the QEMU that runs VMs on this machine: the program that UNSPIN_QEMU names, else the one
/// on PATH.
pub fn qemu_program() -> OsString {
    std::env::var_os("UNSPIN_QEMU").map_or_else(|| QEMU.into(), from_anywhere)
}

/// Makes a program's path absolute, because QEMU starts in its VM's folder, where a relative path
/// would name another file. A name without a folder stays as it is, for a search in PATH.
fn from_anywhere(program: OsString) -> OsString {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let path = is_path.then(|| std::path::absolute(&program)).and_then(Result::ok);
    path.map_or(program, PathBuf::into_os_string)
}

/// How long a guest may take to answer beyond a job's own time limit before it counts as hung.
const ANSWER_GRACE: Duration = Duration::from_secs(20);
/// Number of questions by which the clocks are compared, and their time limit.
const CLOCK_ROUNDS: u64 = 1_000;
const CLOCK_LIMIT: Duration = Duration::from_secs(3);
/// Time slice of QEMU's own threads, the shortest that the kernel accepts.
const QEMU_SLICE: Duration = Duration::from_micros(100);
const POWER_OFF_GRACE: Duration = Duration::from_secs(5);

/// A running virtual machine. Dropping it kills QEMU.
pub struct Vm {
    /// The specification that it was started from.
    pub spec: VmSpec,
    /// The guest's first message.
    pub hello: Hello,
    /// Host thread of each vCPU, by index.
    pub vcpu_threads: Vec<i32>,
    /// Seconds from QEMU's start to the hello.
    pub boot_s: f64,
    qemu: Child,
    channel: Channel,
    console: PathBuf,
}

impl Vm {
    /// Starts QEMU in `folder` and waits for the guest's hello. Calls `placed` with QEMU's process
    /// ID before the guest has run far, so that the caller can put QEMU into its cgroup.
    pub fn start(
        spec: &VmSpec,
        folder: &Path,
        placed: impl FnOnce(u32) -> Result<(), Failure>,
    ) -> Result<Vm, Failure> {
        let console = folder.join("console.log");
        let started = Instant::now();
        let mut qemu = start_qemu(spec, folder)?;
        let up = placed(qemu.id())
            .and_then(|()| Channel::connect(&folder.join("ctl.sock"), &mut qemu, spec, &console));
        let (channel, hello) = match up {
            Ok(up) => up,
            Err(failure) => {
                end(&mut qemu);
                if failure.kind == FailureKind::Interrupted {
                    return Err(failure);
                }
                return Err(explain(failure, &console, folder));
            }
        };
        let boot_s = started.elapsed().as_secs_f64();
        let mut vm = Vm {
            spec: spec.clone(),
            hello,
            vcpu_threads: Vec::new(),
            boot_s,
            qemu,
            channel,
            console,
        };
        vm.check_hello()?;
        vm.vcpu_threads = qmp::vcpu_threads(&folder.join("qmp.sock"))
            .map_err(|e| Failure::new(FailureKind::QemuDied, format!("QEMU's monitor: {e:#}")))?;
        vm.pin()?;
        vm.hurry();
        Ok(vm)
    }

    fn check_hello(&self) -> Result<(), Failure> {
        match self.hello.unfit(self.spec.vcpus) {
            Some(why) => Err(Failure::new(FailureKind::BootTimeout, why)),
            None => Ok(()),
        }
    }

    /// Pins each vCPU to a pCPU if the topology requests that.
    fn pin(&self) -> Result<(), Failure> {
        if !self.spec.pinned {
            return Ok(());
        }
        let (vcpus, pcpus) = (self.vcpu_threads.len(), &self.spec.pcpus);
        for (vcpu, thread) in self.vcpu_threads.iter().enumerate() {
            let pcpu = pcpus[vcpu * pcpus.len().min(vcpus) / vcpus];
            let set = cpu_set(&[pcpu]);
            sched_setaffinity(Pid::from_raw(*thread), &set).map_err(|e| {
                Failure::new(FailureKind::Unavailable, format!("pin vCPU to pCPU {pcpu}: {e}"))
            })?;
        }
        Ok(())
    }

    /// Gives QEMU's own threads precedence over its vCPUs. One of these threads serves an emulated
    /// guest's timers. Without precedence, the timers wait for the end of a vCPU's time slice,
    /// which never happens under KVM. Schedulers since Linux 6.12 (EEVDF) consider a short slice;
    /// older ones consider niceness. The calls need root; without it, timers are late.
    fn hurry(&self) {
        let wish = nix::libc::sched_attr {
            size: size_of::<nix::libc::sched_attr>() as u32,
            sched_policy: nix::libc::SCHED_OTHER as u32,
            sched_flags: 0,
            sched_nice: -20,
            sched_priority: 0,
            sched_runtime: QEMU_SLICE.as_nanos() as u64,
            sched_deadline: 0,
            sched_period: 0,
        };
        for thread in self.own_threads() {
            // SAFETY: the structure contains its own size, and the kernel only reads it.
            unsafe { nix::libc::syscall(nix::libc::SYS_sched_setattr, thread, &raw const wish, 0) };
        }
    }

    /// Returns QEMU's threads that are not vCPUs.
    fn own_threads(&self) -> Vec<i32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid()));
        let threads = tasks.into_iter().flatten();
        let threads = threads.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
        threads.filter(|thread: &i32| !self.vcpu_threads.contains(thread)).collect()
    }

    /// Keeps QEMU's threads that are not vCPUs off a pCPU, so that only the injector disturbs the
    /// vCPU there. Needs a second CPU that this process may use.
    pub fn clear(&self, pcpu: u32) -> Result<(), Failure> {
        let fail = |e: &dyn std::fmt::Display| {
            Failure::new(FailureKind::Unavailable, format!("keep QEMU off pCPU {pcpu}: {e}"))
        };
        let mut elsewhere = sched_getaffinity(Pid::from_raw(0)).map_err(|e| fail(&e))?;
        elsewhere.unset(pcpu as usize).map_err(|e| fail(&e))?;
        for thread in self.own_threads() {
            match sched_setaffinity(Pid::from_raw(thread), &elsewhere) {
                // A worker thread may have ended.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(e) => return Err(fail(&e)),
            }
        }
        Ok(())
    }

    /// Returns whether QEMU still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.qemu.try_wait(), Ok(None))
    }

    /// Returns QEMU's process ID.
    pub fn pid(&self) -> u32 {
        self.qemu.id()
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&mut self, request: Request, limit: Duration) -> Result<Reply, Failure> {
        let reply = self.channel.ask(request, limit);
        reply.map_err(|failure| self.explain(failure))
    }

    /// Runs a job. Returns `None` if the time limit is over and the guest no longer answers.
    pub fn run(&mut self, job: &Job) -> Result<Option<JobResult>, Failure> {
        let scheduler = Duration::from_secs(if job.scheduler.is_some() { 80 } else { 0 });
        let beside = setup_limit(job) + scheduler + ANSWER_GRACE;
        let limit = Duration::from_secs_f64(job.time_limit_s) + beside;
        match self.channel.ask(Request::Run(job.clone()), limit) {
            Ok(Reply::Ran(result)) => Ok(Some(result)),
            Ok(other) => Err(unexpected(&other)),
            Err(failure) => {
                let failure = self.explain(failure);
                if failure.kind == FailureKind::GuestHang { Ok(None) } else { Err(failure) }
            }
        }
    }

    /// Starts a job that runs until [`Vm::stop`].
    pub fn start_job(&mut self, job: &Job) -> Result<u64, Failure> {
        let limit = setup_limit(job) + Duration::from_secs(60);
        match self.ask(Request::Start(job.clone()), limit)? {
            Reply::Started { handle } => Ok(handle),
            other => Err(unexpected(&other)),
        }
    }

    /// Stops a started job.
    pub fn stop(&mut self, handle: u64) -> Result<JobResult, Failure> {
        match self.ask(Request::Stop { handle }, Duration::from_secs(60))? {
            Reply::Ran(result) => Ok(result),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the host's clocks before, the guest's clocks, and the host's clocks after.
    pub fn ping(&mut self) -> Result<[Moment; 3], Failure> {
        let before = Moment::now();
        let reply = self.ask(Request::Ping, ANSWER_GRACE)?;
        let after = Moment::now();
        match reply {
            Reply::Pong(guest) => Ok([before, guest, after]),
            other => Err(unexpected(&other)),
        }
    }

    /// Compares the guest's clock with the host's many times, on a page that both share.
    pub fn share_clock(&mut self) -> Result<Vec<(u64, u64, u64)>, Failure> {
        let fail = |e: std::io::Error| {
            Failure::new(FailureKind::Unavailable, format!("the page shared with the guest: {e}"))
        };
        let page = ClockPage::of_vm(self.console.parent().unwrap_or(Path::new(".")));
        let page = page.map_err(fail)?;
        page.reset();
        let request =
            Request::ShareClock { rounds: CLOCK_ROUNDS, limit_s: CLOCK_LIMIT.as_secs_f64() };
        std::thread::scope(|scope| {
            let answers = scope.spawn(move || page.ask(CLOCK_ROUNDS, CLOCK_LIMIT));
            match self.ask(request, CLOCK_LIMIT + ANSWER_GRACE)? {
                Reply::Shared => Ok(answers.join().unwrap_or_default()),
                other => Err(unexpected(&other)),
            }
        })
    }

    /// Shuts the guest down. If the guest does not power off in time, kills QEMU.
    pub fn shut_down(mut self) {
        if self.channel.send(Request::PowerOff).is_ok() {
            let asked = Instant::now();
            while asked.elapsed() < POWER_OFF_GRACE {
                if matches!(self.qemu.try_wait(), Ok(Some(_))) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        end(&mut self.qemu);
    }

    /// Adds the evidence from the console and from QEMU's end to a failure.
    fn explain(&mut self, failure: Failure) -> Failure {
        if failure.kind == FailureKind::Interrupted {
            return failure;
        }
        // A panicking guest prints for a while before QEMU exits.
        std::thread::sleep(Duration::from_millis(100));
        let ended = self.qemu.try_wait().ok().flatten();
        let failure = match ended {
            Some(status) => {
                Failure::new(failure.kind, format!("{}; QEMU: {status}", failure.detail))
            }
            None => failure,
        };
        let folder = self.console.parent().map(Path::to_owned).unwrap_or_default();
        let mut failure = explain(failure, &self.console, &folder);
        if ended.is_some() && failure.kind == FailureKind::GuestHang {
            failure.kind = FailureKind::QemuDied;
        }
        failure
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        end(&mut self.qemu);
    }
}

fn start_qemu(spec: &VmSpec, folder: &Path) -> Result<Child, Failure> {
    let fail = |e: std::io::Error| {
        Failure::new(FailureKind::Unavailable, format!("{}: {e}", folder.display()))
    };
    fs::create_dir_all(folder).map_err(fail)?;
    for socket in ["ctl.sock", "qmp.sock"] {
        let _ = fs::remove_file(folder.join(socket));
    }
    process::spawn(&qemu_program(), &qemu_args(spec), folder, &spec.pcpus)
}

/// Returns the time limit of a job's setup. The guest ends and reports each setup command before
/// that, so a hanging setup is not mistaken for a job that does not finish.
fn setup_limit(job: &Job) -> Duration {
    Duration::from_secs(u64::from(SETUP_LIMIT_S)) * job.setup.len() as u32
}

fn unexpected(reply: &Reply) -> Failure {
    match reply {
        Reply::Error(text) => Failure::new(FailureKind::WorkloadFailed, text.clone()),
        other => Failure::new(FailureKind::BadReply, format!("unexpected reply {other:?}")),
    }
}

/// Returns a guest's answer to a question that a run can do without, or `None` if the guest did not
/// answer or refused. A malformed reply and Ctrl-C stay failures, so that no missing answer goes
/// unnoticed.
pub fn if_answered<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) => match failure.kind {
            FailureKind::BadReply | FailureKind::Interrupted => Err(failure),
            _ => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_jobs_failure_and_another_reply_a_bad_one() {
        assert_eq!(unexpected(&Reply::Error("no".into())).kind, FailureKind::WorkloadFailed);
        assert_eq!(unexpected(&Reply::Shared).kind, FailureKind::BadReply);
    }

    #[test]
    fn a_path_to_qemu_leads_there_from_every_folder() {
        let of = |program: &str| PathBuf::from(from_anywhere(program.into()));
        let here = std::env::current_dir().unwrap();
        assert_eq!(of("./build/qemu"), here.join("build/qemu"));
        assert_eq!(of("/opt/qemu"), PathBuf::from("/opt/qemu"));
        assert_eq!(of("my-qemu"), PathBuf::from("my-qemu"), "PATH has it");
    }

    #[test]
    fn each_setup_command_has_its_limit() {
        let commands = |count| Job { setup: vec![vec!["true".into()]; count], ..Job::default() };
        let limit_s = |count| setup_limit(&commands(count)).as_secs();
        assert_eq!([0, 1, 3].map(limit_s), [0, 60, 180]);
    }

    #[test]
    fn a_malformed_answer_and_an_interruption_are_not_a_missing_answer() {
        let answer = |kind| if_answered::<()>(Err(Failure::new(kind, "")));
        for kind in [FailureKind::GuestHang, FailureKind::WorkloadFailed, FailureKind::QemuDied] {
            assert_eq!(answer(kind).unwrap(), None, "{kind:?}");
        }
        for kind in [FailureKind::BadReply, FailureKind::Interrupted] {
            assert_eq!(answer(kind).unwrap_err().kind, kind);
        }
    }
}

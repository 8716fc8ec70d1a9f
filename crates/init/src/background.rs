//! Commands in their own cgroups, so that everything a command leaves behind ends with it.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use unspin_wire::clock::mono_ns;
use unspin_wire::{Job, JobResult, SETUP_LIMIT_S};

const STDOUT_LIMIT: usize = 4 << 20;
const STDERR_LIMIT: usize = 16 << 10;
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Maximum time between the end of a command and the end of its output. A process that moved to
/// another cgroup holds the output open for as long as it lives.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Processes that some thread waits for; every other process that dies is an orphan.
static WAITED_FOR: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Default::default);
static NEXT_CGROUP: AtomicU64 = AtomicU64::new(0);

/// A running command, whose output is being collected.
pub struct Background {
    pid: i32,
    exited: mpsc::Receiver<std::io::Result<ExitStatus>>,
    stdout: Collector,
    stderr: Collector,
    cgroup: PathBuf,
    start_ns: u64,
    oom_kills_before: u64,
}

impl Background {
    /// Runs the setup commands, then starts the job.
    pub fn start(job: &Job) -> anyhow::Result<Background> {
        run_setups(job)?;
        Background::launch(job)
    }

    /// Starts the job; its setup commands have run.
    pub fn launch(job: &Job) -> anyhow::Result<Background> {
        Background::launch_in(new_cgroup()?, job)
    }

    fn launch_in(cgroup: PathBuf, job: &Job) -> anyhow::Result<Background> {
        let oom_kills_before = oom_kills();
        let start_ns = mono_ns();
        let mut child = spawn(&job.argv, job, &cgroup)?;
        let stdout = collect(child.stdout.take(), STDOUT_LIMIT, Keep::Head);
        let stderr = collect(child.stderr.take(), STDERR_LIMIT, Keep::Tail);
        let pid = child.id() as i32;
        let exited = watch(child);
        Ok(Background { pid, exited, stdout, stderr, cgroup, start_ns, oom_kills_before })
    }

    /// Returns the peak memory of the command's first process until now in bytes.
    pub fn peak_memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    /// Asks the command to end (SIGINT), waits, and returns its result.
    pub fn stop(self) -> JobResult {
        // Programs that fork share the process group; stress-ng prints on SIGINT.
        let _ = kill(Pid::from_raw(-self.pid), Signal::SIGINT);
        self.wait(STOP_GRACE, || {})
    }

    /// Waits until the command exits or the limit is over; calls `ended` at that instant.
    pub fn wait(self, limit: Duration, ended: impl FnOnce()) -> JobResult {
        let status = self.exited.recv_timeout(limit).ok();
        let end_ns = mono_ns();
        ended();
        kill_cgroup(&self.cgroup);
        let timed_out = status.is_none();
        let status = status.or_else(|| self.exited.recv().ok()).and_then(Result::ok);
        let output_until = Instant::now() + OUTPUT_GRACE;
        let result = JobResult {
            exit_code: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            timed_out,
            out_of_memory: oom_kills() > self.oom_kills_before,
            start_ns: self.start_ns,
            end_ns,
            stdout: self.stdout.text(output_until),
            stderr: self.stderr.text(output_until),
            scheduler_failed: false,
            session: None,
            agent_memory: None,
            stats: None,
            idle: None,
            marks: Vec::new(),
        };
        let _ = fs::remove_dir(&self.cgroup);
        result
    }
}

/// Runs the setup commands of a job, one after the other.
pub fn run_setups(job: &Job) -> anyhow::Result<()> {
    job.setup.iter().try_for_each(|command| run_setup(command, job))
}

fn run_setup(command: &[String], job: &Job) -> anyhow::Result<()> {
    let setup = Job { argv: command.to_vec(), cpus: job.cpus.clone(), ..Job::default() };
    let limit = Duration::from_secs(u64::from(SETUP_LIMIT_S));
    end_setup(Background::launch(&setup)?, command, limit)
}

/// Waits for the end of the command itself, not of its output. A child that the command leaves in
/// the background holds the output open, and ends with the cgroup.
fn end_setup(setup: Background, command: &[String], limit: Duration) -> anyhow::Result<()> {
    let ended = setup.wait(limit, || {});
    let command = command.join(" ");
    if ended.timed_out {
        let limit_s = limit.as_secs();
        bail!(
            "setup `{command}` did not end within {limit_s} s: shorten it, or make what goes on a \
             part of the workload's command"
        );
    }
    if ended.exit_code != Some(0) {
        bail!("setup `{command}`: {}", ended.stderr);
    }
    Ok(())
}

/// Starts a program in its own session and cgroup, pinned to the job's vCPUs.
fn spawn(argv: &[String], job: &Job, cgroup: &std::path::Path) -> anyhow::Result<Child> {
    let (program, args) = argv.split_first().context("empty command")?;
    let procs = fs::OpenOptions::new().write(true).open(cgroup.join("cgroup.procs"))?;
    let cpus = job.cpus.as_deref().map(cpu_set).transpose()?;
    let mut command = Command::new(program);
    command.args(args).current_dir("/tmp").env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin").env("HOME", "/root");
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only async-signal-safe system calls are
    // made: write, setsid and sched_setaffinity; nothing allocates.
    unsafe {
        command.pre_exec(move || {
            if nix::libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                return Err(std::io::Error::last_os_error());
            }
            nix::unistd::setsid()?;
            if let Some(cpus) = &cpus {
                sched_setaffinity(Pid::from_raw(0), cpus)?;
            }
            Ok(())
        });
    }
    let mut waited = lock(&WAITED_FOR);
    let child = command.spawn().with_context(|| format!("start `{program}`"))?;
    waited.insert(child.id() as i32);
    Ok(child)
}

fn cpu_set(cpus: &[u32]) -> anyhow::Result<CpuSet> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu as usize).with_context(|| format!("vCPU {cpu}"))?;
    }
    Ok(set)
}

fn new_cgroup() -> anyhow::Result<PathBuf> {
    let number = NEXT_CGROUP.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(format!("/sys/fs/cgroup/job-{number}"));
    fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
    Ok(path)
}

fn kill_cgroup(path: &std::path::Path) {
    let _ = fs::write(path.join("cgroup.kill"), "1");
    let populated =
        || fs::read_to_string(path.join("cgroup.events")).is_ok_and(|s| s.contains("populated 1"));
    for _ in 0..200 {
        if !populated() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn watch(mut child: Child) -> mpsc::Receiver<std::io::Result<ExitStatus>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let pid = child.id() as i32;
        let status = child.wait();
        forget(pid);
        let _ = sender.send(status);
    });
    receiver
}

fn forget(pid: i32) {
    lock(&WAITED_FOR).remove(&pid);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Head,
    Tail,
}

/// Content of a stream so far; a thread reads the stream to its end.
struct Collector {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Channel that closes at the stream's end.
    ended: mpsc::Receiver<()>,
}

impl Collector {
    /// Returns the content until the stream's end, or until a time.
    fn text(self, until: Instant) -> String {
        let _ = self.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        String::from_utf8_lossy(&lock(&self.kept)).into_owned()
    }
}

/// Keeps at most `limit` bytes of a stream. If that cuts off the stream's end, adds a line that
/// says so.
fn collect(stream: Option<impl Read + Send + 'static>, limit: usize, keep: Keep) -> Collector {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (shared, (end, ended)) = (kept.clone(), mpsc::channel::<()>());
    std::thread::spawn(move || {
        let _end = end;
        let Some(mut stream) = stream else { return };
        let (mut chunk, mut cut) = ([0_u8; 16384], false);
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            let mut kept = lock(&shared);
            if keep == Keep::Tail {
                kept.extend_from_slice(&chunk[..n]);
                let excess = kept.len().saturating_sub(limit);
                kept.drain(..excess);
            } else if !cut {
                let fits = n.min(limit - kept.len());
                kept.extend_from_slice(&chunk[..fits]);
                cut = fits < n;
                if cut {
                    let line = format!("\nunspin init: the output is cut after {limit} bytes\n");
                    kept.extend_from_slice(line.as_bytes());
                }
            }
        }
    });
    Collector { kept, ended }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn oom_kills() -> u64 {
    let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// Reaps dead children of dead parents: PID 1 must wait for them.
pub fn reap_orphans() {
    let waited = lock(&WAITED_FOR);
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, peek) {
        let pid = match status {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) => pid,
            _ => return,
        };
        if waited.contains(&pid.as_raw()) || waitpid(pid, None).is_err() {
            return;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::thread::JoinHandle;

    use super::*;

    /// Starts a script. A folder plays its cgroup: when `cgroup.kill` appears, a thread kills the
    /// script's process group and removes the folder.
    pub(crate) fn launch(script: &str) -> anyhow::Result<(Background, JoinHandle<()>)> {
        let number = NEXT_CGROUP.fetch_add(1, Ordering::Relaxed);
        let name = format!("unspin-init-test-{}-{number}", std::process::id());
        let cgroup = std::env::temp_dir().join(name);
        fs::create_dir(&cgroup)?;
        fs::write(cgroup.join("cgroup.procs"), "")?;
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let job = Background::launch_in(cgroup.clone(), &Job { argv, ..Job::default() })?;
        let group = Pid::from_raw(-job.pid);
        let killer = std::thread::spawn(move || {
            while !cgroup.join("cgroup.kill").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = kill(group, Signal::SIGKILL);
            let _ = fs::remove_dir_all(&cgroup);
        });
        Ok((job, killer))
    }

    /// Runs a script as a setup command.
    fn set_up(script: &str, limit: Duration) -> anyhow::Result<()> {
        let (setup, killer) = launch(script)?;
        let command = ["sh", "-c", script].map(str::to_owned);
        let ended = end_setup(setup, &command, limit);
        killer.join().expect("the killer's end");
        ended
    }

    #[test]
    fn what_left_the_cgroup_and_holds_the_output_does_not_hold_the_result() {
        let started = Instant::now();
        let (job, _) = launch("setsid sleep 60 & echo done").unwrap();
        let result = job.wait(Duration::from_secs(60), || {});
        assert_eq!((result.exit_code, result.stdout.as_str()), (Some(0), "done\n"));
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn output_that_is_cut_says_so() {
        let text = |bytes: &'static [u8], keep| {
            collect(Some(bytes), 4, keep).text(Instant::now() + Duration::from_secs(60))
        };
        assert_eq!(text(b"1234", Keep::Head), "1234");
        let cut = "1234\nunspin init: the output is cut after 4 bytes\n";
        assert_eq!(text(b"12345", Keep::Head), cut);
        assert_eq!(text(b"12345", Keep::Tail), "2345");
    }

    #[test]
    fn a_setup_ends_with_its_command_and_not_with_what_that_leaves_behind() {
        let started = Instant::now();
        set_up("sleep 120 &", Duration::from_secs(60)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_setup_that_hangs_or_fails_says_so() {
        let hangs = set_up("sleep 120", Duration::from_millis(100)).unwrap_err().to_string();
        assert!(hangs.contains("`sh -c sleep 120` did not end within 0 s"), "{hangs}");
        let fails = set_up("echo full >&2; exit 3", Duration::from_secs(60)).unwrap_err();
        assert_eq!(fails.to_string(), "setup `sh -c echo full >&2; exit 3`: full\n");
    }
}

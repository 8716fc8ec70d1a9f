//! The simulated host: QEMU runs the guest in virtual time. Each run boots its own guest, so a cell
//! and a seed determine every byte of the output.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use unspin_host::{Host, interrupt, vm};
use unspin_model::FailureKind;
use unspin_model::class::chain;
use unspin_model::identity::Identity;
use unspin_sources::InUse;
use unspin_sources::qemu::{self, Qemu};
use unspin_trace::virtual_time::{EVENT_BYTES, Event, HEADER_BYTES};
use unspin_wire::guest::ERRAND_FILE;
use unspin_wire::{
    BootSpec, Booted, Envelope, Errand, Failure, Hello, JobResult, PROTOCOL, Reply, RunOutput,
    RunSpec, VirtualHost, VmSpec,
};

use crate::image::Image;
use args::{IGVM_FILE, RECORD_FILE, RESULTS_FILE};
pub use args::{kernel_params, virtual_args};
use patience::Patience;

mod args;
pub mod cvm;
mod outcome;
mod patience;
mod twice;

pub use twice::{Difference, twice};

const LOOK_AGAIN: Duration = Duration::from_millis(50);
const SHOW_AGAIN: Duration = Duration::from_secs(1);
/// Upper limit of real seconds in which QEMU can run, for a virtual second of one pCPU that
/// executes one instruction a nanosecond. A quiet machine takes half of the claim
/// `vt.speed.vcpu_second`, 3.4 s.
const REAL_S_MAX: f64 = 25.0;
/// Real seconds that QEMU may take in addition, to start and to exit.
const REAL_SLACK_S: f64 = 60.0;
/// Real time in which QEMU can run, and within which a record must grow. The time of an idle guest
/// jumps to its next timer, so a guest that makes progress fills QEMU's write buffer of 4 KiB
/// within seconds.
const STANDSTILL: Duration = Duration::from_secs(600);
/// Upper limit of a guest's replies in bytes. A session of 64 MiB takes a sixth of it.
const REPLIES_LIMIT: u64 = 512 << 20;
/// Length in bytes of the part of a malformed reply that an error shows.
const MALFORMED_SHOWN: usize = 200;
/// Exit status of QEMU after it reaches the limit of virtual time.
const UNTIL_STATUS: i32 = 3;

/// A QEMU with virtual pCPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VtQemu {
    /// Path of the program.
    pub program: PathBuf,
    /// Folders that hold the firmware.
    pub firmware: Vec<PathBuf>,
    /// Identity of everything in this QEMU that decides what a guest observes.
    pub behaviour: String,
}

/// The QEMU that runs guests in virtual time. UNSPIN_VT_QEMU names a program of one's own
/// and UNSPIN_VT_FIRMWARE its firmware's folders, with `:` between them; without, it is the
/// lab's QEMU, built if it is not in the cache, with the right to use it.
///
/// # Errors
/// [`FailureKind::Unavailable`] where the program cannot be read or built.
pub fn vt_qemu(
    report: &mut dyn FnMut(unspin_sources::Progress),
) -> Result<(VtQemu, Option<InUse>), Failure> {
    let unavailable = |detail: String| Failure::new(FailureKind::Unavailable, detail);
    if let Some(program) = std::env::var_os("UNSPIN_VT_QEMU").map(PathBuf::from) {
        let firmware = std::env::var_os("UNSPIN_VT_FIRMWARE").unwrap_or_default();
        let own = own_qemu(&program, &firmware)
            .map_err(|e| unavailable(format!("UNSPIN_VT_QEMU={}: {e}", program.display())));
        return Ok((own?, None));
    }
    let (qemu, in_use) = qemu::ensure(&qemu::Source::Pinned, report)
        .map_err(|e| unavailable(chain(&e).to_string()))?;
    let Qemu { program, firmware, behaviour, .. } = qemu;
    Ok((VtQemu { program, firmware: vec![firmware], behaviour }, Some(in_use)))
}

/// Returns the user's own QEMU, with absolute paths: QEMU starts in the folder of its run, where a
/// relative path would lead elsewhere.
fn own_qemu(program: &Path, firmware: &OsStr) -> io::Result<VtQemu> {
    let program = std::path::absolute(program)?;
    let folders = std::env::split_paths(firmware).filter(|folder| !folder.as_os_str().is_empty());
    let firmware = folders.map(std::path::absolute).collect::<io::Result<Vec<PathBuf>>>()?;
    let behaviour = behaviour(fs::read(&program)?, &program, &firmware);
    Ok(VtQemu { program, firmware, behaviour })
}

/// Returns the identity of the user's own program and its firmware. The firmware is looked up in
/// these folders and then next to the program.
fn behaviour(mut bytes: Vec<u8>, program: &Path, firmware: &[PathBuf]) -> String {
    let beside = program.parent().and_then(Path::parent).map(|folder| folder.join("share/qemu"));
    for name in qemu::firmware_names() {
        let mut folders = firmware.iter().chain(&beside);
        bytes.extend(
            folders.find_map(|folder| fs::read(folder.join(name)).ok()).unwrap_or_default(),
        );
    }
    Identity::of_bytes(&bytes).to_string()
}

/// Options of simulated hosts.
#[derive(Clone)]
pub struct VtOptions<'a> {
    /// The QEMU that they run.
    pub qemu: VtQemu,
    /// Whether each run is carried out twice. Runs whose results differ then fail.
    pub twice: bool,
    /// Receives the virtual time in nanoseconds that a run has reached, about once a second.
    pub reached: &'a (dyn Fn(u64) + Sync),
}

/// A simulated host.
pub struct VtHost<'a> {
    folder: PathBuf,
    options: VtOptions<'a>,
    boot: Option<BootSpec>,
}

impl<'a> VtHost<'a> {
    /// Makes a host that keeps the files of its run in `folder`.
    pub fn new(folder: PathBuf, options: VtOptions<'a>) -> VtHost<'a> {
        VtHost { folder, options, boot: None }
    }
}

impl Host for VtHost<'_> {
    /// Only stores the specification. The run boots it, with its job in the initramfs.
    fn boot(&mut self, spec: &BootSpec) -> Result<Booted, Failure> {
        self.boot = Some(spec.clone());
        Ok(Booted::default())
    }

    fn run(&mut self, spec: &RunSpec) -> Result<RunOutput, Failure> {
        let no_boot = || Failure::new(FailureKind::Unavailable, "nothing is booted");
        let boot = self.boot.as_ref().ok_or_else(no_boot)?;
        if !self.options.twice {
            return carry_out(&self.options, boot, spec, &self.folder);
        }
        match twice(&self.options, boot, spec, &self.folder)? {
            (output, None) => Ok(output),
            (_, Some(difference)) => {
                Err(Failure::new(FailureKind::InvariantBroken, difference.to_string()))
            }
        }
    }

    fn halt(&mut self) {
        self.boot = None;
    }
}

/// Boots the guest, runs the job, and reads what guest and host wrote into `folder`.
pub fn carry_out(
    options: &VtOptions,
    boot: &BootSpec,
    run: &RunSpec,
    folder: &Path,
) -> Result<RunOutput, Failure> {
    let (vm, host) = subject(boot)?;
    let vm = prepare(vm, run, folder)?;
    if host.cvm.is_some() {
        cvm::write(&vm, folder)?;
    }
    let (qemu, limit) = (&options.qemu, real_limit(host));
    let mut process = vm::spawn(
        qemu.program.as_os_str(),
        &virtual_args(&vm, host, run.injection.as_ref(), &qemu.firmware),
        folder,
        &[],
    )?;
    let status =
        wait(&mut process, limit, folder, options.reached).map_err(|failure| {
            match failure.kind {
                FailureKind::Interrupted => failure,
                _ => explain(failure, folder),
            }
        })?;
    let replies = Replies::read(folder)?;
    let _ = fs::remove_file(&vm.initramfs);
    let _ = fs::remove_file(folder.join(IGVM_FILE));
    outcome::judge(&Ended { status, replies }, (&vm, host), run, folder)
}

/// Returns the only VM of a boot and its simulated host.
fn subject(boot: &BootSpec) -> Result<(&VmSpec, &VirtualHost), Failure> {
    let unfit = |detail: &str| Failure::new(FailureKind::Unavailable, detail);
    let host = boot.virtual_host.as_deref().ok_or_else(|| unfit("no simulated host is given"))?;
    match boot.vms.as_slice() {
        [vm] => Ok((vm, host)),
        vms => Err(unfit(&format!("{} VMs; in virtual time a neighbour is a model", vms.len()))),
    }
}

/// Removes the previous run's files from the folder and writes the initramfs with the job.
fn prepare(vm: &VmSpec, run: &RunSpec, folder: &Path) -> Result<VmSpec, Failure> {
    let fail = |e: &dyn Error| {
        let detail = format!("{}: {}", folder.display(), chain(e));
        Failure::new(FailureKind::Unavailable, detail)
    };
    fs::create_dir_all(folder).map_err(|e| fail(&e))?;
    for file in [RESULTS_FILE, RECORD_FILE, "console.log"] {
        let _ = fs::remove_file(folder.join(file));
    }
    let errand = Errand { protocol: PROTOCOL, job: run.job.clone() };
    let errand = serde_json::to_vec(&errand).map_err(|e| fail(&e))?;
    let initramfs = std::path::absolute(folder.join("initramfs")).map_err(|e| fail(&e))?;
    Image::write_extended(Path::new(&vm.initramfs), &initramfs, ERRAND_FILE, errand)
        .map_err(|e| fail(&e))?;
    Ok(VmSpec { initramfs: initramfs.display().to_string(), ..vm.clone() })
}

/// Returns the limit of real time for a run. The limit grows with the instructions that the run may
/// execute. It only catches runs that QEMU's own limit does not end.
fn real_limit(host: &VirtualHost) -> Duration {
    let virtual_s = host.until_ns as f64 / 1e9;
    let rate = f64::from(host.pcpus) * f64::from(host.instructions);
    Duration::from_secs_f64(REAL_SLACK_S + virtual_s * REAL_S_MAX * rate)
}

fn wait(
    qemu: &mut Child,
    limit: Duration,
    folder: &Path,
    reached: &dyn Fn(u64),
) -> Result<ExitStatus, Failure> {
    let record = folder.join(RECORD_FILE);
    let mut patience = Patience::with(qemu.id());
    let (mut shown, mut growth) = (Instant::now(), Growth::default());
    let failure = loop {
        match qemu.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => break Failure::new(FailureKind::QemuDied, error.to_string()),
        }
        if interrupt::requested() {
            break Failure::new(FailureKind::Interrupted, "interrupted");
        }
        if shown.elapsed() > SHOW_AGAIN {
            shown = Instant::now();
            reached(last_event_ns(&record).unwrap_or(0));
            let passed = patience.passed();
            if passed > limit {
                let detail =
                    format!("QEMU did not end within {} s in which it could run", limit.as_secs());
                break Failure::new(FailureKind::TooSlow, detail);
            }
            if growth.has_ended(fs::metadata(&record).map_or(0, |about| about.len()), passed) {
                let detail = format!(
                    "virtual time did not go on: QEMU wrote no event for {} s in which it could run",
                    STANDSTILL.as_secs()
                );
                break Failure::new(FailureKind::GuestHang, detail);
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    };
    let _ = qemu.kill();
    let _ = qemu.wait();
    Err(failure)
}

/// The length of a growing record, and when it was first seen.
#[derive(Default)]
struct Growth {
    bytes: u64,
    since: Duration,
}

impl Growth {
    /// Returns whether the length has not changed for longer than [`STANDSTILL`].
    fn has_ended(&mut self, bytes: u64, now: Duration) -> bool {
        if bytes != self.bytes {
            (self.bytes, self.since) = (bytes, now);
        }
        now.saturating_sub(self.since) > STANDSTILL
    }
}

/// Returns the virtual time of the last whole event in a record that QEMU is still writing.
fn last_event_ns(record: &Path) -> Option<u64> {
    let mut file = fs::File::open(record).ok()?;
    let events = file.metadata().ok()?.len().checked_sub(HEADER_BYTES as u64)? / EVENT_BYTES as u64;
    let last = HEADER_BYTES as u64 + events.checked_sub(1)? * EVENT_BYTES as u64;
    file.seek(SeekFrom::Start(last)).ok()?;
    let mut bytes = [0; EVENT_BYTES];
    file.read_exact(&mut bytes).ok()?;
    Some(Event::from_bytes(&bytes, last).ok()?.t_ns)
}

fn explain(failure: Failure, folder: &Path) -> Failure {
    vm::explain(failure, &folder.join("console.log"), folder)
}

/// The exit status of a QEMU, and the replies of its guest.
struct Ended {
    status: ExitStatus,
    replies: Replies,
}

/// The replies that the guest wrote.
#[derive(Default)]
struct Replies {
    hello: Option<Hello>,
    job: Option<JobResult>,
}

impl Replies {
    /// Reads the replies. There are none if QEMU exited before it made the file. A line without a
    /// newline comes from a guest that was stopped while it wrote; it is ignored.
    fn read(folder: &Path) -> Result<Replies, Failure> {
        let path = folder.join(RESULTS_FILE);
        let length = fs::metadata(&path).map_or(0, |about| about.len());
        if length > REPLIES_LIMIT {
            return Err(bad_reply(&format!("{length} bytes, {REPLIES_LIMIT} at most are read")));
        }
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(|e| unreadable(&path, &e))?,
        };
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let mut replies = Replies::default();
        for line in lines.filter(|line| line.ends_with(b"\n")) {
            match serde_json::from_slice::<Envelope<Reply>>(line).map(|envelope| envelope.body) {
                Ok(Reply::Hello(hello)) => replies.hello = Some(hello),
                Ok(Reply::Ran(result)) => replies.job = Some(result),
                Ok(other) => return Err(bad_reply(&format!("{other:?}"))),
                Err(error) => {
                    let start = String::from_utf8_lossy(&line[..line.len().min(MALFORMED_SHOWN)]);
                    return Err(bad_reply(&format!("{error}: {}", start.trim_end())));
                }
            }
        }
        Ok(replies)
    }
}

/// Makes the failure for a file that this machine cannot read. The run is not at fault.
fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FailureKind::Unavailable, format!("{}: {error}", path.display()))
}

fn bad_reply(what: &str) -> Failure {
    Failure::new(FailureKind::BadReply, format!("{RESULTS_FILE}: {what}"))
}

#[cfg(test)]
mod tests;

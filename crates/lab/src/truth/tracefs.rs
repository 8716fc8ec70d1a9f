//! A private tracing instance: its own buffer, so that other users of tracefs
//! neither see nor disturb it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::ring::{self, Layout};
use super::states::ThreadEvent;

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const WAKES: [&str; 2] = ["sched_waking", "sched_wakeup"];
const BUFFER_KB: &str = "8192";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A tracing instance; removed when dropped.
pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Makes an instance. Needs root and tracefs, which is mounted if it is not.
    pub fn create(purpose: &str) -> io::Result<Instance> {
        let root = mounted_root()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("unspin-{purpose}-{}-{number}", std::process::id());
        let path = root.join("instances").join(name);
        fs::create_dir(&path)?;
        Ok(Instance { path })
    }

    /// Writes a control file.
    pub fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.path.join(file), value)
    }

    /// Reads a control file.
    pub fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(file))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.path);
    }
}

fn mounted_root() -> io::Result<PathBuf> {
    let find = || MOUNT_POINTS.iter().map(Path::new).find(|root| root.join("instances").is_dir());
    if find().is_none() {
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tracefs"), MOUNT_POINTS[0], Some("tracefs"), flags, None::<&str>)?;
    }
    find().map(Path::to_owned).ok_or_else(|| io::Error::other("no tracefs"))
}

/// sched_switch, sched_waking and sched_wakeup of some threads.
pub struct SwitchTrace {
    instance: Instance,
}

impl SwitchTrace {
    /// Starts tracing the threads.
    pub fn start(threads: &[i32]) -> io::Result<SwitchTrace> {
        let instance = Instance::create("truth")?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", BUFFER_KB)?;
        instance.write(
            "events/sched/sched_switch/filter",
            &filter(threads, &["prev_pid", "next_pid"]),
        )?;
        for event in WAKES {
            instance.write(&format!("events/sched/{event}/filter"), &filter(threads, &["pid"]))?;
            instance.write(&format!("events/sched/{event}/enable"), "1")?;
        }
        instance.write("events/sched/sched_switch/enable", "1")?;
        instance.write("tracing_on", "1")?;
        Ok(SwitchTrace { instance })
    }

    /// Ends tracing; the events in time order, and how many were lost.
    pub fn finish(self) -> io::Result<(Vec<ThreadEvent>, u64)> {
        self.instance.write("tracing_on", "0")?;
        let format = |event| self.instance.read(&format!("events/sched/{event}/format"));
        let [waking, wakeup] = WAKES;
        let layout = Layout::parse(&format("sched_switch")?, &format(waking)?, &format(wakeup)?)
            .ok_or_else(|| io::Error::other("unknown format of sched_switch"))?;
        let (mut events, mut lost) = (Vec::new(), 0);
        for folder in fs::read_dir(self.instance.path.join("per_cpu"))?.flatten() {
            lost += overrun(&folder.path());
            for page in read_pages(&folder.path().join("trace_pipe_raw"))? {
                ring::parse_page(&page, &layout, &mut events);
            }
        }
        events.sort_by_key(|event| event.t_ns);
        Ok((events, lost))
    }
}

fn filter(threads: &[i32], fields: &[&str]) -> String {
    let terms = threads.iter().flat_map(|tid| fields.iter().map(move |f| format!("{f} == {tid}")));
    terms.collect::<Vec<_>>().join(" || ")
}

fn overrun(folder: &Path) -> u64 {
    let stats = fs::read_to_string(folder.join("stats")).unwrap_or_default();
    let count = stats.lines().find_map(|line| line.strip_prefix("overrun: "));
    count.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// The buffer's pages. Each read returns at most one.
fn read_pages(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut file =
        fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    let mut pages = Vec::new();
    let mut buffer = vec![0_u8; ring::PAGE_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(pages),
            Ok(n) => pages.push(buffer[..n].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(pages),
            Err(error) => return Err(error),
        }
    }
}

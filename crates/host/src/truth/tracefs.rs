//! A private tracing instance with a buffer of its own, so that other users of tracefs neither see
//! nor disturb it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::ring;

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const BUFFER_KB: &str = "8192";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A tracing instance, removed when this value is dropped.
pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Makes an instance. Needs root and tracefs, and mounts tracefs if necessary. Removes the
    /// instances of processes that were killed, because these still record.
    pub fn create(purpose: &str) -> io::Result<Instance> {
        let instances = mounted_root()?.join("instances");
        for folder in fs::read_dir(&instances)?.flatten() {
            let owner = folder.file_name().to_str().and_then(owner);
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                drop(Instance { path: folder.path() });
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("unspin-{purpose}-{}-{number}", std::process::id());
        let path = instances.join(name);
        fs::create_dir(&path)?;
        Ok(Instance { path })
    }

    /// Makes an instance that records events with times of CLOCK_MONOTONIC.
    pub fn recording(purpose: &str) -> io::Result<Instance> {
        let instance = Instance::create(purpose)?;
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", BUFFER_KB)?;
        Ok(instance)
    }

    /// Writes a control file.
    pub fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.path.join(file), value)
    }

    /// Reads a control file.
    pub fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(file))
    }

    /// Calls `each` with all records and their times, CPU by CPU. Returns the number of lost
    /// records.
    pub fn drain(&self, mut each: impl FnMut(u64, &[u8])) -> io::Result<u64> {
        let mut lost = 0;
        for folder in fs::read_dir(self.path.join("per_cpu"))?.flatten() {
            lost += overrun(&folder.path());
            for page in read_pages(&folder.path().join("trace_pipe_raw"))? {
                ring::parse_page(&page, &mut each);
            }
        }
        Ok(lost)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns the filter for events that have one of these threads in one of these fields.
pub fn of_threads(fields: &[&str], threads: &[i32]) -> String {
    let terms = threads.iter().flat_map(|tid| fields.iter().map(move |f| format!("{f} == {tid}")));
    terms.collect::<Vec<_>>().join(" || ")
}

/// Returns the process that made the instance of this name, or `None` if unspin did not.
fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("unspin-")?.rsplit('-');
    parts.next()?.parse::<u32>().ok()?;
    parts.next()?.parse().ok()
}

fn mounted_root() -> io::Result<PathBuf> {
    let find = || MOUNT_POINTS.iter().map(Path::new).find(|root| root.join("instances").is_dir());
    if find().is_none() {
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tracefs"), MOUNT_POINTS[0], Some("tracefs"), flags, None::<&str>)?;
    }
    find().map(Path::to_owned).ok_or_else(|| io::Error::other("no tracefs"))
}

fn overrun(folder: &Path) -> u64 {
    let stats = fs::read_to_string(folder.join("stats")).unwrap_or_default();
    let count = stats.lines().find_map(|line| line.strip_prefix("overrun: "));
    count.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// Returns the buffer's pages. Each read returns at most one.
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

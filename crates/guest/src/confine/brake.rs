//! A brake for the tasks of cgroups, for as long as it takes to limit them or to lift the limit.
//!
//! The kernel applies `cpuset.cpus` task by task, and takes a run queue's lock for each. In a
//! collapse the holder of such a lock is often a vCPU that the host has preempted: to limit 400
//! tasks took half a second. `cpu.max` takes one such lock a vCPU. Tasks whose quota is used up
//! leave the run queues when they return to user space, nobody contends any more, and the sets
//! are written in a few milliseconds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::cpusets;
use super::error::CpusetError;
use super::journal::Journal;
use super::spare;

/// The controller's name.
pub(super) const CONTROLLER: &str = "cpu";
const MAX: &str = "cpu.max";
/// About the shortest quota in a long period, 1 ms of 100 ms, as the kernel writes it. systemd
/// writes the very shortest for `CPUQuota=1%`, which would pass for a brake that was left on.
const STOP: &str = "1001 100000";

/// The brake of a hierarchy.
pub(super) struct Brake {
    root: PathBuf,
}

/// Some cgroups are being braked; they are released when this is dropped, if not before.
pub(super) struct Braked {
    root: PathBuf,
    /// Each with what its limit was.
    groups: Vec<(String, String)>,
    /// Dropped after the release.
    _stops: IgnoreStops,
}

/// What stops a process by default: Ctrl-Z, and use of the terminal from the background. SIGSTOP
/// cannot be held off.
const STOPS: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// The terminal stops nobody for as long as this is there: stopped while it brakes, this process
/// would hold the guest up until somebody continues it, and the shell that could is braked, too.
///
/// It is a handler, because a command that starts meanwhile would ignore the signals for good.
struct IgnoreStops(Vec<(Signal, SigAction)>);

extern "C" fn nothing(_: libc::c_int) {}

impl IgnoreStops {
    fn now() -> IgnoreStops {
        let handler = SigHandler::Handler(nothing);
        let ignore = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        let hold_off = |signal| {
            // SAFETY: the handler does nothing, and the old action comes back as it was.
            let old = unsafe { sigaction(signal, &ignore) }.ok()?;
            Some((signal, old))
        };
        IgnoreStops(STOPS.into_iter().filter_map(hold_off).collect())
    }
}

impl Drop for IgnoreStops {
    fn drop(&mut self) {
        for (signal, old) in &self.0 {
            // SAFETY: as above.
            let _ = unsafe { sigaction(*signal, old) };
        }
    }
}

impl Brake {
    /// Gets it ready, with the controller. The kernel patches its code when the first quota
    /// comes and when the last one goes, which takes tens of milliseconds in a collapse: so an
    /// empty cgroup always has one.
    /// None where that fails: a limit then comes later.
    pub(super) fn prepare(root: &Path, journal: &mut Journal) -> Option<Brake> {
        let folder = spare::make(root).ok()?;
        if !cpusets::lists(root, cpusets::CONTROL, CONTROLLER).ok()? {
            journal.enable(CONTROLLER).ok()?;
            fs::write(root.join(cpusets::CONTROL), format!("+{CONTROLLER}")).ok()?;
        }
        fs::write(folder.join(MAX), STOP).ok()?;
        Some(Brake { root: root.to_owned() })
    }

    /// Stops the tasks of some cgroups as soon as they are in user space. A cgroup that is not in
    /// the journal is not stopped.
    pub(super) fn stop(&self, groups: &[String], journal: &mut Journal) -> Braked {
        // One whose release has failed is released now: the journal has its quota.
        let quota = |group: &String| {
            let quota = says(&self.root, group)?;
            if quota != STOP {
                return Some((group.clone(), quota));
            }
            let noted = journal.quotas().find(|(noted, _)| noted == group);
            let _ = noted.map(|(_, quota)| release(&self.root, group, quota));
            None
        };
        let stops = IgnoreStops::now();
        let mut groups: Vec<_> = groups.iter().filter_map(quota).collect();
        match journal.note_quotas(&groups) {
            Ok(()) => groups.retain(|(group, _)| write(&self.root, group, STOP).is_ok()),
            Err(_) => groups.clear(),
        }
        Braked { root: self.root.clone(), groups, _stops: stops }
    }
}

impl Braked {
    /// What fails here is left to [`release_all`].
    pub(super) fn release(mut self) -> Result<(), CpusetError> {
        let groups = std::mem::take(&mut self.groups);
        release_each(&self.root, groups.iter().map(|(group, quota)| (&**group, &**quota)))
    }
}

impl Drop for Braked {
    fn drop(&mut self) {
        for (group, quota) in &self.groups {
            let _ = release(&self.root, group, quota);
        }
    }
}

/// Releases what a release has failed for, or a killed process has left.
pub(super) fn release_all(root: &Path, journal: &Journal) -> Result<(), CpusetError> {
    release_each(root, journal.quotas())
}

/// All that can be; the error is that of the last one that cannot.
fn release_each<'a>(
    root: &Path,
    groups: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), CpusetError> {
    let mut done = Ok(());
    for (group, quota) in groups {
        if let Err(error) = release(root, group, quota) {
            let file = root.join(group).join(MAX);
            done = Err(CpusetError::Braked(file, quota.to_owned(), error));
        }
    }
    done
}

/// Whether a cgroup is set to anything that would go with the controller.
pub(super) fn is_used(root: &Path, group: &str) -> bool {
    let is_set = |(file, default): (&str, &str)| {
        let text = fs::read_to_string(root.join(group).join(file)).unwrap_or_default();
        ![default, ""].contains(&text.trim())
    };
    let defaults = [
        (MAX, "max 100000"),
        ("cpu.max.burst", "0"),
        ("cpu.weight", "100"),
        ("cpu.idle", "0"),
        ("cpu.uclamp.min", "0.00"),
        ("cpu.uclamp.max", "max"),
    ];
    defaults.into_iter().any(is_set)
}

/// Unless somebody else has set it since. A file that cannot be read, for want of descriptors say,
/// is written all the same: the brake must not stay on.
fn release(root: &Path, group: &str, quota: &str) -> io::Result<()> {
    let elses = says(root, group).is_some_and(|now| now != STOP);
    if elses || !root.join(group).join(MAX).exists() {
        return Ok(());
    }
    write(root, group, quota)
}

/// A cgroup's quota and period; none where the controller is not enabled.
fn says(root: &Path, group: &str) -> Option<String> {
    Some(fs::read_to_string(root.join(group).join(MAX)).ok()?.trim().to_owned())
}

fn write(root: &Path, group: &str, quota: &str) -> io::Result<()> {
    fs::write(root.join(group).join(MAX), quota)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_starts_meanwhile_can_be_stopped() {
        let stops = IgnoreStops::now();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        drop(stops);
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let status = status.unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        assert_eq!(ignored & 1 << (libc::SIGTSTP - 1), 0, "{ignored:x}");
    }

    #[test]
    fn the_terminal_stops_nobody_who_brakes() {
        let stops = IgnoreStops::now();
        let held_off = stops.0.iter().map(|(signal, _)| *signal);
        assert!(held_off.eq([Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU]));
    }

    #[test]
    fn a_release_that_fails_says_what_to_write_and_goes_on_with_the_others() {
        let name = format!("unspin-brake-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&root);
        // Nobody can write into a folder.
        fs::create_dir_all(root.join("first/cpu.max")).unwrap();
        fs::create_dir_all(root.join("second")).unwrap();
        fs::write(root.join("second/cpu.max"), STOP).unwrap();
        let groups = ["first", "second"].map(|group| (group.to_owned(), "max 100000".to_owned()));
        let braked =
            Braked { root: root.clone(), groups: groups.to_vec(), _stops: IgnoreStops(vec![]) };
        let error = braked.release().unwrap_err().to_string();
        assert!(error.contains("first/cpu.max") && error.contains("`max 100000`"), "{error}");
        assert_eq!(says(&root, "second").as_deref(), Some("max 100000"));
        fs::remove_dir_all(&root).unwrap();
    }
}

//! Stops the tasks of cgroups while a limit is set or lifted.
//!
//! The kernel applies `cpuset.cpus` task by task, and takes a run queue's lock for each task. In a
//! collapse the holder of such a lock is often a vCPU that the host has preempted: to limit 400
//! tasks took half a second. `cpu.max` takes only one such lock per vCPU. Tasks whose quota is used
//! up leave the run queues when they return to user space. The contention then ends, and the sets
//! are written in a few milliseconds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::cpusets;
use super::error::CpusetError;
use super::journal::Journal;
use super::{root as root_cgroup, spare};

/// The name of the controller.
pub(super) const CONTROLLER: &str = "cpu";
const MAX: &str = "cpu.max";
/// The brake's quota: about the shortest quota in a long period, 1 ms of 100 ms, in the kernel's
/// notation. It is not the very shortest, which systemd writes for `CPUQuota=1%`: that quota would
/// look like a brake that was left on.
const STOP: &str = "1001 100000";

/// The brake for the cgroups of a hierarchy.
pub(super) struct Brake {
    root: PathBuf,
}

/// Cgroups that are being braked. Dropping this releases them, if nobody has before.
pub(super) struct Braked {
    root: PathBuf,
    /// The cgroups, each with its `cpu.max` before the brake.
    groups: Vec<(String, String)>,
    /// Restored only after the release, because fields drop after `drop` has run.
    _stops: IgnoreStops,
}

/// The signals that stop a process by default: Ctrl-Z, and use of the terminal from the background.
/// SIGSTOP cannot be held off.
const STOPS: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// Keeps the terminal from stopping this process while the value lives. A process stopped while it
/// brakes would hold the guest up until somebody continues it, and the shell that could do so is
/// braked, too.
///
/// The signals get a handler instead of being ignored: a command that starts meanwhile would
/// inherit the ignored signals for good.
struct IgnoreStops(Vec<(Signal, SigAction)>);

extern "C" fn nothing(_: libc::c_int) {}

impl IgnoreStops {
    fn now() -> IgnoreStops {
        let handler = SigHandler::Handler(nothing);
        let ignore = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        let hold_off = |signal| {
            // SAFETY: the handler does nothing, and `drop` restores the old action unchanged.
            let old = unsafe { sigaction(signal, &ignore) }.ok()?;
            Some((signal, old))
        };
        IgnoreStops(STOPS.into_iter().filter_map(hold_off).collect())
    }
}

impl Drop for IgnoreStops {
    fn drop(&mut self) {
        for (signal, old) in &self.0 {
            // SAFETY: the action is the one that `now` replaced, unchanged.
            let _ = unsafe { sigaction(*signal, old) };
        }
    }
}

impl Brake {
    /// Enables the controller and prepares the brake. The kernel patches its own code when the
    /// first quota appears and when the last one goes, which takes tens of milliseconds in a
    /// collapse. So an empty cgroup keeps a quota all the time. Returns `None` if this fails: a
    /// limit then takes effect later.
    pub(super) fn prepare(root: &Path, journal: &mut Journal) -> Option<Brake> {
        let folder = spare::make(root).ok()?;
        if !root_cgroup::lists(root, cpusets::CONTROL, CONTROLLER).ok()? {
            journal.enable(CONTROLLER).ok()?;
            fs::write(root.join(cpusets::CONTROL), format!("+{CONTROLLER}")).ok()?;
        }
        fs::write(folder.join(MAX), STOP).ok()?;
        Some(Brake { root: root.to_owned() })
    }

    /// Stops the tasks of cgroups as soon as they are in user space. A cgroup that cannot be noted
    /// in the journal is not stopped.
    pub(super) fn stop(&self, groups: &[String], journal: &mut Journal) -> Braked {
        // A cgroup that still has the brake's quota is one whose release has failed. Release it
        // now: the journal has its real quota.
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
    /// Releases the cgroups. [`release_all`] tries again those for which this fails.
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

/// Releases cgroups that an earlier release has failed for, or that a killed process has left
/// braked.
pub(super) fn release_all(root: &Path, journal: &Journal) -> Result<(), CpusetError> {
    release_each(root, journal.quotas())
}

/// Releases all cgroups that it can. The error is that of the last cgroup for which this fails.
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

/// Returns whether a cgroup has any setting that would be lost with the controller.
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

/// Restores a cgroup's quota, unless somebody else has changed it since. A file that cannot be
/// read, for want of file descriptors for example, is written all the same: the brake must not stay
/// on.
fn release(root: &Path, group: &str, quota: &str) -> io::Result<()> {
    let elses = says(root, group).is_some_and(|now| now != STOP);
    if elses || !root.join(group).join(MAX).exists() {
        return Ok(());
    }
    write(root, group, quota)
}

/// Returns a cgroup's quota and period; `None` if the controller is not enabled.
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
        // A write to a folder always fails.
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

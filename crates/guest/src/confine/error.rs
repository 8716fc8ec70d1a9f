//! The errors that keep unspin from limiting vCPUs.

use std::io;
use std::path::PathBuf;

use unspin_model::class::{Class, Classified};

use crate::sense::{SenseError, passes};

/// The errors that keep unspin from limiting vCPUs.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Spins or off intervals cannot be seen.
    #[error(transparent)]
    Sense(#[from] SenseError),
    /// Tasks cannot be limited.
    #[error(transparent)]
    Cpuset(#[from] CpusetError),
    /// A limit cannot be set or lifted.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The control thread does not start.
    #[error("start a thread: {0}")]
    Thread(io::Error),
}

impl ConfineError {
    /// Returns whether a scheduler in place of the kernel's can limit vCPUs here instead.
    pub fn has_another_way(&self) -> bool {
        match self {
            // Neither sees a vCPU that is off, and `run.bpf.c` names the kernel's timers, too. It
            // also reads more of the kernel's memory.
            ConfineError::Sense(
                SenseError::Ticks(_) | SenseError::NoTimers | SenseError::LockedDown(_),
            ) => false,
            ConfineError::Sense(error) => error.class() == Class::Unavailable,
            ConfineError::Cpuset(error) => matches!(error, CpusetError::NoController(_)),
            ConfineError::Limit(_) | ConfineError::Thread(_) => false,
        }
    }
}

impl Classified for ConfineError {
    fn class(&self) -> Class {
        match self {
            ConfineError::Sense(error) => error.class(),
            ConfineError::Cpuset(error) => error.class(),
            ConfineError::Limit(_) | ConfineError::Thread(_) => Class::Failed,
        }
    }
}

/// The errors of setting or lifting a limit.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// Cgroups do not set or lift the limit.
    #[error(transparent)]
    Cpuset(#[from] CpusetError),
    /// The scheduler rejects the number of vCPUs.
    #[error("the scheduler does not take the number of vCPUs: {0}")]
    Queues(io::Error),
    /// The scheduler's tasks wait, and no vCPU runs them.
    #[error(
        "nobody ran the tasks that waited, so all vCPUs are used for a second \
         (do real-time tasks have those that were in use?)"
    )]
    Stuck,
    /// The kernel does not list the online vCPUs.
    #[error("the kernel does not say which vCPUs are online: {0}")]
    Unknown(io::Error),
}

/// The errors of limiting tasks with cgroups.
#[derive(Debug, thiserror::Error)]
pub enum CpusetError {
    /// No hierarchy of version 2 has the cpuset controller.
    #[error(
        "{0} offers no cpuset controller of cgroup version 2 (a hybrid set-up has it in version 1): \
         boot with `systemd.unified_cgroup_hierarchy=1`"
    )]
    NoController(PathBuf),
    /// A container, or its part of the hierarchy.
    #[error(
        "this is a container or a chroot, in which the cgroups of {0} are not to be limited: run \
         unspin in the guest itself, with the guest's own root folder"
    )]
    Container(PathBuf),
    /// A limit, once lifted, would let tasks onto CPUs that the kernel keeps free.
    #[error(
        "isolcpus= keeps vCPUs {0} free: a change of cpusets would let tasks onto them, and the \
         kernel loads no sched_ext scheduler"
    )]
    Isolated(String),
    /// The controller cannot be enabled.
    #[error("cannot enable the cpuset controller in {0}: {1} (are the cgroups mounted read-only?)")]
    Enable(PathBuf, io::Error),
    /// Another process limits vCPUs.
    #[error(
        "another `unspin run` limits vCPUs: `sudo unspin run --status` shows it; stop it by Ctrl-C \
             where it runs, or by `systemctl stop unspin` (its lock is {0})"
    )]
    Taken(PathBuf),
    /// The journal cannot be written, so no limit would be lifted after a crash.
    #[error("cannot write the journal {0}: {1}; without it, unspin limits nothing")]
    Journal(PathBuf, io::Error),
    /// Something may be limited, but the journal that lists it cannot be read.
    #[error(
        "cannot read {0}, where limits are noted that may be in force: {1}. Lift them by hand, in \
         the cgroups below /sys/fs/cgroup: the set of all vCPUs into cpuset.cpus, `member` into \
         unspin.spare/cpuset.cpus.partition, `max 100000` into a cpu.max that says `1001 100000`. \
         Then remove the file"
    )]
    Unreadable(PathBuf, io::Error),
    /// A cgroup cannot be limited.
    #[error("cannot write vCPUs into {0}: {1}")]
    Limit(PathBuf, io::Error),
    /// A file of the hierarchy cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    /// A limit cannot be lifted.
    #[error("cannot lift the limit in {0}: {1}; write the set of all vCPUs there by hand")]
    Lift(PathBuf, io::Error),
    /// The partition cannot be undone, so vCPUs stay isolated.
    #[error(
        "cannot give back the vCPUs of {0}: {1}; write `member` into its cpuset.cpus.partition by hand"
    )]
    Partition(PathBuf, io::Error),
    /// A brake cannot be released, so its tasks stay stopped. The release is tried again.
    #[error("cannot write `{1}` into {0}, which holds tasks up: {2}; write it there by hand")]
    Braked(PathBuf, String, io::Error),
}

impl Classified for CpusetError {
    fn class(&self) -> Class {
        match self {
            CpusetError::Limit(..)
            | CpusetError::Read(..)
            | CpusetError::Lift(..)
            | CpusetError::Partition(..)
            | CpusetError::Braked(..)
            | CpusetError::Taken(_)
            | CpusetError::Unreadable(..) => Class::Failed,
            CpusetError::Enable(_, error) | CpusetError::Journal(_, error) if passes(error) => {
                Class::Failed
            }
            _ => Class::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::sense::PASSING;

    #[test]
    fn a_scheduler_is_tried_only_where_it_may_work() {
        let without_ticks = SenseError::Ticks("hyperv clockevent".into());
        assert!(!ConfineError::from(without_ticks).has_another_way());
        assert!(!ConfineError::from(SenseError::NoTimers).has_another_way());
        let locked_down = libbpf_rs::Error::from_raw_os_error(Errno::EINVAL as i32);
        assert!(!ConfineError::from(SenseError::LockedDown(locked_down)).has_another_way());
        assert!(ConfineError::from(SenseError::NoSlowPaths).has_another_way());
        assert!(ConfineError::from(CpusetError::NoController("/cg".into())).has_another_way());
        assert!(!ConfineError::from(CpusetError::Isolated("2-3".into())).has_another_way());
    }

    #[test]
    fn what_may_pass_is_worth_another_start() {
        let classes = |errno: Errno| {
            let error = || io::Error::from_raw_os_error(errno as i32);
            let errors = [
                CpusetError::Journal("j".into(), error()),
                CpusetError::Enable("e".into(), error()),
            ];
            errors.map(|error| ConfineError::from(error).class())
        };
        for errno in PASSING {
            assert_eq!(classes(errno), [Class::Failed; 2], "{errno}");
        }
        for errno in [Errno::EROFS, Errno::EPERM, Errno::EACCES, Errno::ENOENT] {
            assert_eq!(classes(errno), [Class::Unavailable; 2], "{errno}");
        }
    }
}

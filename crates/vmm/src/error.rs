//! Errors that keep a VM from starting, and the ways in which a run ends.

use std::fmt;
use std::io;
use std::path::PathBuf;

use unspin_cvm::build::BuildError;
use unspin_cvm::image::ReadError;
use unspin_model::class::{Class, Classified};

use crate::load::igvm::IgvmError;

/// The reason why a VM could not be started.
#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    /// /dev/kvm cannot be opened.
    #[error("cannot open /dev/kvm: load kvm_amd or kvm_intel, and run as root or in the group kvm")]
    Unavailable(#[source] io::Error),
    /// KVM does not emulate SEV-ES.
    #[error(
        "this KVM emulates no SEV-ES: boot `unspin lab kernel build --source lab-es` with \
         kvm_amd.es_emu=1 kvm_amd.npt=0"
    )]
    NoEsEmu,
    /// KVM does not pass GHCBs to this program.
    #[error(
        "this KVM keeps GHCBs to itself: boot `unspin lab kernel build --source lab-es` of this \
         version, or leave --ghcb out"
    )]
    NoGhcb,
    /// KVM refused a step, or this machine has too little memory.
    #[error("cannot {what}")]
    Host {
        /// The step, as in "cannot `what`".
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that the command line names cannot be used.
    #[error("cannot {what} {path}", path = path.display())]
    File {
        /// `open`, `read` or `create`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A disk image has a size that a disk cannot have.
    #[error("{path}: has {bytes} bytes, and a disk is a positive multiple of 512", path = path.display())]
    DiskSize {
        /// The file.
        path: PathBuf,
        /// The file's size in bytes.
        bytes: u64,
    },
    /// A tap interface cannot be used.
    #[error("cannot attach to the tap interface {name}: {}", advice(name, *pairs, source))]
    Tap {
        /// The interface.
        name: String,
        /// The number of queue pairs that the command line asks for.
        pairs: u16,
        /// The system's reason.
        source: io::Error,
    },
    /// Kernel, initramfs, command line and memory do not fit together.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The IGVM file cannot be read.
    #[error("{path}", path = path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The error that reading it gave.
        source: ReadError,
    },
    /// The IGVM file is not for this VM.
    #[error("{path}", path = path.display())]
    Igvm {
        /// The file.
        path: PathBuf,
        /// The mismatch between file and VM.
        source: IgvmError,
    },
    /// The command line asks for more vCPUs than KVM runs.
    #[error("{asked} vCPUs are more than the {max} that this KVM runs")]
    Vcpus {
        /// The number that the command line asks for.
        asked: u8,
        /// KVM's limit.
        max: usize,
    },
    /// The command line asks for more devices than the PCI bus has numbers.
    #[error(
        "{asked} devices are too many: --console, --disk and --net together have room for {max}"
    )]
    Devices {
        /// The number that the command line asks for.
        asked: usize,
        /// The bus's limit.
        max: usize,
    },
    /// The range to grant ahead is not memory of the guest.
    #[error(
        "--page-access pregrant={:#x}-{:#x} is not memory of the guest: name a range in it, end \
         excluded",
        range.start,
        range.end
    )]
    Pregrant {
        /// The range, in guest-physical addresses.
        range: std::ops::Range<u64>,
    },
    /// A seccomp filter cannot be made or installed.
    #[error("cannot confine a thread; --no-seccomp runs without filters")]
    Seccomp(#[from] seccompiler::Error),
}

/// Returns the advice for a tap interface that cannot be used.
fn advice(name: &str, pairs: u16, error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::EBUSY) {
        return "another program uses it".into();
    }
    // The kernel refuses to open a multi-queue interface with a single queue, and the reverse.
    let more = if pairs > 1 { " multi_queue" } else { "" };
    format!("create it with `ip tuntap add {name} mode tap user USER{more}`")
}

impl Classified for VmmError {
    fn class(&self) -> Class {
        match self {
            VmmError::Unavailable(_) | VmmError::NoEsEmu | VmmError::NoGhcb => Class::Unavailable,
            VmmError::Build(error) => error.class(),
            VmmError::Vcpus { .. }
            | VmmError::DiskSize { .. }
            | VmmError::Devices { .. }
            | VmmError::Pregrant { .. } => Class::Usage,
            _ => Class::Failed,
        }
    }
}

/// Adds to an error the step that the system refused.
pub trait Step<T> {
    /// Returns the same result, with `what` (as in "cannot `what`") in its error.
    fn step(self, what: &'static str) -> Result<T, VmmError>;
}

impl<T> Step<T> for Result<T, kvm_ioctls::Error> {
    fn step(self, what: &'static str) -> Result<T, VmmError> {
        self.map_err(|error| {
            let source = io::Error::from_raw_os_error(error.errno());
            VmmError::Host { what, source }
        })
    }
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, what: &'static str) -> Result<T, VmmError> {
        self.map_err(|source| VmmError::Host { what, source })
    }
}

/// How a VM ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The guest powered off by ACPI.
    PoweredOff,
    /// The guest reset its machine. This program does not start it again.
    Reset,
    /// A vCPU cannot go on: after a triple fault, or after a KVM exit that this program cannot
    /// handle.
    Crashed(String),
    /// The user ended the VM by SIGINT, SIGTERM or SIGHUP, or by Ctrl-A x at the terminal.
    Interrupted,
    /// This program failed.
    Failed(String),
}

impl Ended {
    /// Returns the program's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Ended::PoweredOff => 0,
            Ended::Failed(_) => 1,
            Ended::Reset => 3,
            Ended::Crashed(_) => 4,
            Ended::Interrupted => 130,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::PoweredOff => f.write_str("the guest powered off"),
            Ended::Reset => f.write_str("the guest reset its machine"),
            Ended::Crashed(why) | Ended::Failed(why) => f.write_str(why),
            Ended::Interrupted => f.write_str("interrupted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taps_error_names_the_command_that_creates_it() {
        let text = |pairs, errno| {
            let source = io::Error::from_raw_os_error(errno);
            VmmError::Tap { name: "tap0".into(), pairs, source }.to_string()
        };
        let command = "create it with `ip tuntap add tap0 mode tap user USER";
        assert!(text(1, libc::EPERM).ends_with(&format!("{command}`")));
        assert!(text(2, libc::EINVAL).ends_with(&format!("{command} multi_queue`")));
        assert!(text(1, libc::EBUSY).ends_with("tap0: another program uses it"));
    }
}

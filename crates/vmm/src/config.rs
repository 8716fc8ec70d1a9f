//! The configuration of a VM.

use std::path::PathBuf;

use crate::access::Policy;
use crate::ghcb::Way;

/// The most vCPUs, so that each APIC ID fits into one byte and differs from the broadcast, 255.
pub const VCPUS_MAX: u8 = 254;
/// The most queue pairs of a network interface.
pub const QUEUE_PAIRS_MAX: u16 = 8;

/// The code that the guest starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A Linux kernel, started at its 64-bit entry.
    Linux {
        /// The bzImage.
        kernel: PathBuf,
        /// The initramfs, if there is one.
        initramfs: Option<PathBuf>,
        /// The command line.
        append: String,
    },
    /// An IGVM file for the platform `native`, or for `sev-es` if KVM emulates it.
    Igvm(PathBuf),
}

/// A raw disk image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The file or block device.
    pub path: PathBuf,
    /// Whether the guest may only read it.
    pub read_only: bool,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Net {
    /// The host's tap interface, which must exist or be creatable.
    pub tap: String,
    /// Pairs of queues, 1 to [`QUEUE_PAIRS_MAX`].
    pub queue_pairs: u16,
    /// The guest's hardware address; without one, it follows from the tap interface's name.
    pub mac: Option<[u8; 6]>,
}

/// The configuration of a VM.
#[derive(Debug, Clone)]
pub struct Config {
    /// The code that the guest starts with.
    pub source: Source,
    /// Number of vCPUs, 1 to [`VCPUS_MAX`].
    pub vcpus: u8,
    /// Memory in bytes, a multiple of 2 MiB.
    pub memory_bytes: u64,
    /// Disks, in the order of the guest's names for them.
    pub disks: Vec<Disk>,
    /// Network interfaces.
    pub nets: Vec<Net>,
    /// The file that receives the output of a virtio console.
    pub console: Option<PathBuf>,
    /// How devices get access to pages.
    pub access: Policy,
    /// Pages to revoke each second; 0 for none.
    pub revoke_per_s: u32,
    /// The file that receives the counters of page access and of GHCBs when the VM ends.
    pub stats: Option<PathBuf>,
    /// Whether the IGVM file is for SEV-ES, which KVM emulates.
    pub es_emu: bool,
    /// Who reads the guest's GHCBs, and how.
    pub ghcb: Way,
    /// Whether KVM notifies devices itself, by an eventfd for each queue. Otherwise a notification
    /// is an exit, which this program answers.
    pub ioeventfd: bool,
    /// Whether seccomp confines the threads.
    pub seccomp: bool,
}

impl Config {
    /// Returns the number of devices on the PCI bus.
    pub fn devices(&self) -> usize {
        usize::from(self.console.is_some()) + self.disks.len() + self.nets.len()
    }
}

//! The host's side of a network interface: a Linux tap interface.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// The other end of a queue pair. Each packet begins with a header of [`HEADER_BYTES`].
pub trait Link: Send + Sync {
    /// Returns the file that packets are read from and written to, without waiting.
    fn fd(&self) -> RawFd;

    /// Sets the offloads that the reader of packets can handle: the bits `TUN_F_*` of
    /// linux/if_tun.h.
    fn set_offload(&self, flags: u32) -> io::Result<()>;

    /// Enables or disables packets through this queue.
    fn set_enabled(&self, enabled: bool) -> io::Result<()>;
}

/// Bytes of `struct virtio_net_hdr_v1`.
pub const HEADER_BYTES: usize = 12;
/// The reader completes checksums.
pub const TUN_F_CSUM: u32 = 1;
/// The reader accepts TCP segments over IPv4 that are larger than a packet.
pub const TUN_F_TSO4: u32 = 2;
/// The reader accepts TCP segments over IPv6 that are larger than a packet.
pub const TUN_F_TSO6: u32 = 4;

const IFF_TAP: i16 = 2;
const IFF_MULTI_QUEUE: i16 = 0x100;
const IFF_ATTACH_QUEUE: i16 = 0x200;
const IFF_DETACH_QUEUE: i16 = 0x400;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
const TUNSETIFF: u64 = 0x4004_54ca;
/// A request that a running device makes.
pub const TUNSETOFFLOAD: u64 = 0x4004_54d0;
const TUNSETVNETHDRSZ: u64 = 0x4004_54d8;
/// A request that a running device makes.
pub const TUNSETQUEUE: u64 = 0x4004_54d9;
/// The most bytes of an interface's name: IFNAMSIZ, without the zero at the end.
pub const NAME_BYTES_MAX: usize = 15;

/// A queue of a tap interface.
#[derive(Debug)]
pub struct Tap(File);

/// The part of `struct ifreq` that tap interfaces need.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES_MAX + 1],
    flags: i16,
    rest: [u8; 22],
}

impl Tap {
    /// Attaches a queue to the interface with this name.
    pub fn open(name: &str, multi_queue: bool) -> io::Result<Tap> {
        let mut request = Request { name: [0; 16], flags: IFF_TAP, rest: [0; 22] };
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request.flags |= IFF_NO_PI | IFF_VNET_HDR;
        if multi_queue {
            request.flags |= IFF_MULTI_QUEUE;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let fd = file.as_raw_fd();
        // SAFETY: the request is an ifreq, which the kernel reads and writes.
        checked(unsafe { libc::ioctl(fd, TUNSETIFF, &mut request) })?;
        let bytes = HEADER_BYTES as libc::c_int;
        // SAFETY: the kernel reads an int.
        checked(unsafe { libc::ioctl(fd, TUNSETVNETHDRSZ, &bytes) })?;
        Ok(Tap(file))
    }
}

impl Link for Tap {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn set_offload(&self, flags: u32) -> io::Result<()> {
        // SAFETY: the argument is a number.
        checked(unsafe { libc::ioctl(self.fd(), TUNSETOFFLOAD, libc::c_ulong::from(flags)) })
    }

    fn set_enabled(&self, enabled: bool) -> io::Result<()> {
        let flags = if enabled { IFF_ATTACH_QUEUE } else { IFF_DETACH_QUEUE };
        let request = Request { name: [0; 16], flags, rest: [0; 22] };
        // SAFETY: the request is an ifreq, which the kernel reads.
        match checked(unsafe { libc::ioctl(self.fd(), TUNSETQUEUE, &request) }) {
            // The queue is in that state already.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            result => result,
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns a locally administered hardware address, which depends on the interface's name alone.
pub fn mac(name: &str) -> [u8; 6] {
    // FNV-1a, 64 bits.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_le_bytes();
    [2, a, b, c, d, e]
}

//! virtio-net (virtio 1.2, 5.1): pairs of queues, each of which uses one queue of a tap interface.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::ring::{Chain, Ring, Served, drain};
use super::tap::{HEADER_BYTES, Link, TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6};
use super::{Description, F_COMMON, Left, QUEUE_SIZE, Worker};
use crate::sandbox::Kind;

const DEVICE: u16 = 1;
/// PCI class: an Ethernet controller.
const CLASS: u32 = 0x02_0000;
/// Offloads of the device: it completes checksums, and splits TCP segments.
const F_CSUM: u64 = 1 << 0;
const F_HOST_TSO4: u64 = 1 << 11;
const F_HOST_TSO6: u64 = 1 << 12;
/// The same offloads of the driver.
const F_GUEST_CSUM: u64 = 1 << 1;
const F_GUEST_TSO4: u64 = 1 << 7;
const F_GUEST_TSO6: u64 = 1 << 8;
const F_MAC: u64 = 1 << 5;
const F_CTRL_VQ: u64 = 1 << 17;
const F_MQ: u64 = 1 << 22;
/// Features, each with the feature that it requires (virtio 1.2, 5.1.3.1).
const NEEDS: &[(u64, u64)] = &[
    (F_HOST_TSO4, F_CSUM),
    (F_HOST_TSO6, F_CSUM),
    (F_GUEST_TSO4, F_GUEST_CSUM),
    (F_GUEST_TSO6, F_GUEST_CSUM),
    (F_MQ, F_CTRL_VQ),
];
const CONFIG_BYTES: usize = 10;
/// The virtio header, an Ethernet header with a VLAN tag, and the largest IP packet.
const PACKET_BYTES_MAX: u64 = HEADER_BYTES as u64 + 18 + 65_535;

/// Indices of a worker's queues.
const RECEIVE: usize = 0;
const SEND: usize = 1;
const CONTROL: usize = 2;

/// Class and command of a control request that sets the number of pairs in use.
const SET_PAIRS: [u8; 2] = [4, 0];
const ACK_OK: u8 = 0;
const ACK_ERROR: u8 = 1;

/// A pair of queues. The first pair's worker serves the control queue, too.
pub struct Pair {
    links: Arc<Vec<Box<dyn Link>>>,
    index: usize,
    /// Whether the driver uses one pair only, so that its control queue has the index of the second
    /// pair's receive queue.
    first_is_control: bool,
}

/// Returns the interface's pairs, and the properties that the driver sees.
pub fn pairs(links: Vec<Box<dyn Link>>, mac: [u8; 6]) -> (Description, Vec<Pair>) {
    let count = links.len();
    let mut features = F_COMMON | F_CSUM | F_HOST_TSO4 | F_HOST_TSO6 | F_MAC;
    features |= F_GUEST_CSUM | F_GUEST_TSO4 | F_GUEST_TSO6;
    let mut queues = 2 * count as u16;
    if count > 1 {
        features |= F_CTRL_VQ | F_MQ;
        queues += 1;
    }
    let mut config = vec![0; CONFIG_BYTES];
    config[..6].copy_from_slice(&mac);
    config[8..].copy_from_slice(&(count as u16).to_le_bytes());
    let description =
        Description { device: DEVICE, class: CLASS, features, needs: NEEDS, config, queues };
    let links = Arc::new(links);
    let pair = |index| Pair { links: Arc::clone(&links), index, first_is_control: false };
    (description, (0..count).map(pair).collect())
}

/// Returns the device's queues that the worker of `pair` serves, if the interface has `pairs`
/// pairs.
pub fn queues(pair: usize, pairs: usize) -> Vec<usize> {
    let mut queues = vec![2 * pair, 2 * pair + 1];
    if pair == 0 && pairs > 1 {
        queues.push(2 * pairs);
    }
    queues
}

impl Pair {
    fn fd(&self) -> RawFd {
        self.links[self.index].fd()
    }

    /// Passes the packets that have arrived to the driver.
    fn receive(&self, ring: &mut Ring) -> Left {
        let window = ring.window();
        let mut chain = Chain::default();
        let mut left = Left::More;
        ring.disarm(&window);
        for _ in 0..QUEUE_SIZE {
            if !ring.pop(&window, &mut chain) {
                if ring.rearm(&window) {
                    continue;
                }
                // The driver notifies the device of its next buffers.
                left = Left::Nothing;
                break;
            }
            let written = match self.read(&mut chain) {
                Ok(written) => written,
                // The tap interface dropped a packet that its header cannot describe. The interface
                // signals only once that it has packets, and may have more.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    ring.unpop(&window);
                    continue;
                }
                Err(_) => {
                    // The interface has no packet, or its queue is not in use.
                    ring.unpop(&window);
                    left = Left::Nothing;
                    break;
                }
            };
            ring.push(&window, chain.head, written);
        }
        ring.notify(&window);
        drop(chain);
        ring.end(window);
        left
    }

    fn read(&self, chain: &mut Chain) -> io::Result<u32> {
        if chain.malformed || chain.writable.bytes() < HEADER_BYTES as u64 {
            return Ok(0);
        }
        let written = chain.writable.read_from(self.fd())?;
        // The packet is in one chain. The tap interface does not write that field.
        chain.writable.skip(HEADER_BYTES - 2);
        chain.writable.put(&1u16.to_le_bytes());
        Ok(written as u32)
    }

    /// Sends a packet. A packet that the tap interface refuses is lost, as on a wire.
    fn send(&self, chain: &mut Chain) -> Served {
        let bytes = chain.readable.bytes();
        if bytes <= HEADER_BYTES as u64 || bytes > PACKET_BYTES_MAX {
            return Served::default();
        }
        let _ = chain.readable.write_to(self.fd());
        Served { written: 0, moved: bytes }
    }

    fn control(&self, chain: &mut Chain) -> Served {
        let command = chain.readable.take::<2>();
        let pairs = chain.readable.take::<2>().map(u16::from_le_bytes);
        let result = match (command, pairs) {
            (Some(SET_PAIRS), Some(pairs)) if !self.first_is_control => {
                self.set_pairs(pairs.into())
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        let ack = if result.is_ok() { ACK_OK } else { ACK_ERROR };
        Served { written: chain.writable.put(&[ack]) as u32, moved: 0 }
    }

    fn set_pairs(&self, pairs: usize) -> io::Result<()> {
        if !(1..=self.links.len()).contains(&pairs) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // An interface with a single queue cannot detach it.
        let mut links = self.links.iter().enumerate().filter(|_| self.links.len() > 1);
        links.try_for_each(|(index, link)| link.set_enabled(index < pairs))
    }
}

impl Worker for Pair {
    fn kind(&self) -> Kind {
        Kind::Net
    }

    fn start(&mut self, features: u64) -> io::Result<()> {
        let offloads =
            [(F_GUEST_CSUM, TUN_F_CSUM), (F_GUEST_TSO4, TUN_F_TSO4), (F_GUEST_TSO6, TUN_F_TSO6)];
        let accepted = offloads.into_iter().filter(|(feature, _)| features & feature != 0);
        let flags = accepted.map(|(_, flag)| flag).sum();
        self.first_is_control = self.index == 1 && features & F_MQ == 0;
        if self.index == 0 {
            self.links[0].set_offload(flags)?;
            self.set_pairs(1)?;
        }
        Ok(())
    }

    fn handle(&mut self, queue: usize, rings: &mut [Option<Ring>]) -> Left {
        let queue_is = if self.first_is_control && queue == RECEIVE { CONTROL } else { queue };
        match (&mut rings[queue], queue_is) {
            (Some(ring), RECEIVE) => self.receive(ring),
            (Some(ring), SEND) => drain(ring, |chain| self.send(chain)),
            (Some(ring), CONTROL) => drain(ring, |chain| self.control(chain)),
            _ => Left::Nothing,
        }
    }

    fn backend(&self) -> Option<RawFd> {
        Some(self.fd())
    }

    fn ready(&mut self, rings: &mut [Option<Ring>]) -> Left {
        self.handle(RECEIVE, rings)
    }
}

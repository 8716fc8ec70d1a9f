//! virtio over PCI (virtio 1.2, 4.1), without the legacy interface.
//!
//! At fixed offsets, the function's memory has the common configuration, the device's
//! configuration, a notification address for each queue, and MSI-X's tables. Without MSI-X, the
//! device raises no interrupts.

mod common;

use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

use super::config::Config;
use super::msix::{self, Msix};
use crate::access::DeviceMemory;
use crate::virtio::Description;
use crate::virtio::ring::{Interrupt, Ring};
use crate::virtio::thread::Handle;
use common::{Change, Common};

/// Bytes of a function's memory.
pub const BAR_BYTES: u32 = 0x4000;
/// Bytes between the notification addresses of two queues.
pub const NOTIFY_BYTES: u32 = 4;
/// Offset of the first queue's notification address.
pub const NOTIFY: u32 = 0x2000;
const COMMON: u32 = 0;
const ISR: u32 = 0x800;
const DEVICE: u32 = 0x1000;
const TABLE: u32 = 0x3000;
const PENDING: u32 = 0x3800;

const VENDOR: u16 = 0x1af4;
/// The base of device numbers: a device of type N has the number 0x1040 + N.
const DEVICE_ID: u16 = 0x1040;
const REVISION: u8 = 1;
const VENDOR_CAPABILITY: u8 = 9;
/// Types of structures in virtio's capabilities.
const CFG_COMMON: u8 = 1;
const CFG_NOTIFY: u8 = 2;
const CFG_ISR: u8 = 3;
const CFG_DEVICE: u8 = 4;
const CFG_PCI: u8 = 5;

/// A part of the device that has a thread, and the queues that it serves.
#[derive(Debug)]
pub struct Part {
    /// The part's thread.
    pub handle: Handle,
    /// The queues' indices in the device.
    pub queues: Vec<usize>,
}

/// A virtio device as a PCI function.
#[derive(Debug)]
pub struct Function {
    config: Config,
    /// Offset of MSI-X's capability.
    msix_at: usize,
    /// Offset of the capability that is a window from configuration space into device memory.
    window_at: usize,
    msix: Arc<Msix>,
    common: Common,
    description: Description,
    parts: Vec<Part>,
    kicks: Vec<EventFd>,
    memory: DeviceMemory,
}

impl Function {
    /// Returns a device with its memory from `bar` on. `kicks` has an event for each queue, which a
    /// write to the queue's notification address raises. `msix` has a vector for each queue and one
    /// more.
    pub fn new(
        bar: u32,
        description: Description,
        parts: Vec<Part>,
        kicks: Vec<EventFd>,
        msix: Arc<Msix>,
        memory: impl Into<DeviceMemory>,
    ) -> Function {
        let id = DEVICE_ID + description.device;
        let mut config = Config::new(VENDOR, id, description.class, REVISION);
        config.set_bar(bar, BAR_BYTES);
        let device_bytes = description.config.len() as u32;
        let notify_bytes = u32::from(description.queues) * NOTIFY_BYTES;
        add(&mut config, CFG_COMMON, COMMON, common::BYTES as u32, &[], &[]);
        add(&mut config, CFG_NOTIFY, NOTIFY, notify_bytes, &NOTIFY_BYTES.to_le_bytes(), &[]);
        add(&mut config, CFG_ISR, ISR, 1, &[], &[]);
        add(&mut config, CFG_DEVICE, DEVICE, device_bytes, &[], &[]);
        // The writable fields behind length and type: which memory, the offset in it, and the
        // length.
        let window = [&[0, 0, 0xff, 0, 0, 0][..], &[0xff; 12]].concat();
        let window_at = add(&mut config, CFG_PCI, 0, 0, &[0; 4], &window);
        let body =
            [&(msix.vectors() - 1).to_le_bytes()[..], &TABLE.to_le_bytes(), &PENDING.to_le_bytes()]
                .concat();
        let control = (msix::ENABLE | msix::FUNCTION_MASK).to_le_bytes();
        let msix_at = config.add_capability(msix::CAPABILITY, &body, &control);
        let Description { features, needs, queues, .. } = description;
        let common = Common::new(features, needs, queues, msix.vectors());
        let memory = memory.into();
        Function { config, msix_at, window_at, msix, common, description, parts, kicks, memory }
    }

    /// Reads configuration space.
    pub fn read_config(&mut self, at: usize, data: &mut [u8]) {
        match self.window(at, data.len()) {
            Some(offset) => self.read(offset, data),
            None => self.config.read(at, data),
        }
    }

    /// Writes configuration space.
    pub fn write_config(&mut self, at: usize, data: &[u8]) {
        match self.window(at, data.len()) {
            Some(offset) => self.write(offset, data),
            None => {
                self.config.write(at, data);
                self.msix.set_control(self.config.word(self.msix_at + 2));
            }
        }
    }

    /// Returns the offset in memory that the window selects, if the access is to the window and has
    /// the length that the driver set.
    fn window(&self, at: usize, bytes: usize) -> Option<usize> {
        if at != self.window_at + 16 {
            return None;
        }
        let mut fields = [0; 12];
        self.config.read(self.window_at + 4, &mut fields);
        let [bar, offset, length] =
            [0, 4, 8].map(|at| u32::from_le_bytes(std::array::from_fn(|index| fields[at + index])));
        let inside = offset.checked_add(length).is_some_and(|end| end <= BAR_BYTES);
        let there = bar & 0xff == 0 && inside && length as usize == bytes;
        there.then_some(offset as usize)
    }

    /// Reads device memory.
    pub fn read(&mut self, at: usize, data: &mut [u8]) {
        data.fill(0);
        match at as u32 {
            COMMON..ISR => self.common.read(at, data),
            DEVICE..NOTIFY => {
                let from = self.description.config.get(at - DEVICE as usize..).unwrap_or_default();
                data.iter_mut().zip(from).for_each(|(byte, value)| *byte = *value);
            }
            TABLE..PENDING => self.msix.read_table(at - TABLE as usize, data),
            PENDING.. => self.msix.read_pending(at - PENDING as usize, data),
            _ => {}
        }
    }

    /// Writes device memory.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        match at as u32 {
            COMMON..ISR => match self.common.write(at, data) {
                Change::None => {}
                Change::Start => self.start(),
                Change::Reset => self.reset(),
            },
            // If KVM raises the events itself, only what it does not recognize arrives here.
            NOTIFY..TABLE => {
                let queue = (at - NOTIFY as usize) / NOTIFY_BYTES as usize;
                if let Some(kick) = self.kicks.get(queue) {
                    let _ = kick.write(1);
                }
            }
            TABLE..PENDING => self.msix.write_table(at - TABLE as usize, data),
            _ => {}
        }
    }

    /// Stops the device after it has finished its requests in flight.
    pub fn reset(&mut self) {
        if self.common.is_started() {
            self.parts.iter().for_each(|part| part.handle.stop());
        }
        self.common.reset();
    }

    /// Starts the device, because the driver is ready.
    fn start(&mut self) {
        let mut rings = Vec::new();
        for queue in 0..usize::from(self.description.queues) {
            match self.ring(queue) {
                Ok(ring) => rings.push(ring),
                Err(()) => return self.set_broken(),
            }
        }
        let features = self.common.accepted();
        for part in &self.parts {
            let own = part.queues.iter().map(|queue| rings[*queue].take()).collect();
            if part.handle.start(features, own).is_err() {
                // The parts that have started would serve half a device.
                self.parts.iter().for_each(|part| part.handle.stop());
                return self.set_broken();
            }
        }
    }

    /// Marks the device as needing a reset. An interrupt notifies a driver that was ready (virtio
    /// 1.2, 2.1.2).
    fn set_broken(&mut self) {
        self.common.set_broken();
        self.msix.raise(self.common.config_vector());
    }

    /// Returns a queue's ring, if the driver enabled the queue. Fails if the queue is not in
    /// memory.
    fn ring(&self, queue: usize) -> Result<Option<Ring>, ()> {
        let Some((queue, vector)) = self.common.queue(queue) else { return Ok(None) };
        let msix = Arc::clone(&self.msix);
        let interrupt: Interrupt = Arc::new(move || msix.raise(vector));
        Ring::new(queue, self.memory.clone(), interrupt).map(Some).ok_or(())
    }
}

/// Adds a virtio capability, which locates a structure in memory.
fn add(
    config: &mut Config,
    kind: u8,
    offset: u32,
    bytes: u32,
    more: &[u8],
    writable: &[u8],
) -> usize {
    let length = 16 + more.len() as u8;
    let body = [&[length, kind, 0, 0, 0, 0][..], &offset.to_le_bytes(), &bytes.to_le_bytes(), more];
    config.add_capability(VENDOR_CAPABILITY, &body.concat(), writable)
}

//! The common configuration structure (virtio 1.2, 4.1.4.3) and the device's status (2.1).

use virtio_queue::{Queue, QueueT};

use crate::virtio::{F_EVENT_IDX, F_VERSION_1, QUEUE_SIZE};

/// Bytes of the structure.
pub const BYTES: usize = 56;

const FEATURES_OK: u8 = 8;
const DRIVER_OK: u8 = 4;
/// The device is broken and can only be reset.
const NEEDS_RESET: u8 = 64;
/// The vector number that selects no interrupt.
const NO_VECTOR: u16 = 0xffff;

const DEVICE_FEATURE_SELECT: usize = 0;
const DEVICE_FEATURE: usize = 4;
const DRIVER_FEATURE_SELECT: usize = 8;
const DRIVER_FEATURE: usize = 12;
const CONFIG_VECTOR: usize = 16;
const NUM_QUEUES: usize = 18;
const STATUS: usize = 20;
const QUEUE_SELECT: usize = 22;
const SIZE: usize = 24;
const VECTOR: usize = 26;
const ENABLE: usize = 28;
const NOTIFY_OFF: usize = 30;
const DESC: usize = 32;
const DESC_HIGH: usize = 36;
const DRIVER: usize = 40;
const DRIVER_HIGH: usize = 44;
const USED: usize = 48;
const USED_HIGH: usize = 52;

/// The action that a write to the structure requires of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// No action.
    None,
    /// The driver is ready: start the device.
    Start,
    /// Return to the initial state.
    Reset,
}

/// The structure's state.
#[derive(Debug)]
pub struct Common {
    offered: u64,
    needs: &'static [(u64, u64)],
    accepted: u64,
    device_select: u32,
    driver_select: u32,
    config_vector: u16,
    status: u8,
    select: u16,
    vectors: u16,
    queues: Vec<(Queue, u16)>,
}

impl Common {
    /// Returns the structure of a device that offers the features `offered`. In `needs`, each
    /// feature is paired with one that it requires. `vectors` is the number of interrupts.
    pub fn new(offered: u64, needs: &'static [(u64, u64)], queues: u16, vectors: u16) -> Common {
        // The size is a power of two, so `Queue::new` cannot fail.
        let queue = || (Queue::new(QUEUE_SIZE).expect("a power of two"), NO_VECTOR);
        Common {
            offered,
            needs,
            accepted: 0,
            device_select: 0,
            driver_select: 0,
            config_vector: NO_VECTOR,
            status: 0,
            select: 0,
            vectors,
            queues: (0..queues).map(|_| queue()).collect(),
        }
    }

    /// Returns to the state from before the driver arrived.
    pub fn reset(&mut self) {
        let queues = self.queues.len() as u16;
        *self = Common::new(self.offered, self.needs, queues, self.vectors);
    }

    /// Returns whether the driver has become ready since the last reset.
    pub fn is_started(&self) -> bool {
        self.status & DRIVER_OK != 0
    }

    /// Marks the device as unusable until a reset, after an error of the driver.
    pub fn set_broken(&mut self) {
        self.status |= NEEDS_RESET;
    }

    /// Returns the number of the interrupt for configuration changes.
    pub fn config_vector(&self) -> u16 {
        self.config_vector
    }

    /// Returns the features that the driver accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns a queue that the driver enabled, with the number of its interrupt.
    pub fn queue(&self, index: usize) -> Option<(Queue, u16)> {
        let (queue, vector) = self.queues.get(index).filter(|(queue, _)| queue.ready())?;
        // `Queue` is not `Clone`, but its state can be copied.
        let mut queue = Queue::try_from(queue.state()).ok()?;
        queue.set_event_idx(self.accepted & F_EVENT_IDX != 0);
        Some((queue, *vector))
    }

    /// Reads a part of the structure.
    pub fn read(&self, at: usize, data: &mut [u8]) {
        let mut image = [0; BYTES];
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        let half = |features: u64, select: u32| match select {
            0 => features as u32,
            1 => (features >> 32) as u32,
            _ => 0,
        };
        put(DEVICE_FEATURE_SELECT, &self.device_select.to_le_bytes());
        put(DEVICE_FEATURE, &half(self.offered, self.device_select).to_le_bytes());
        put(DRIVER_FEATURE_SELECT, &self.driver_select.to_le_bytes());
        put(DRIVER_FEATURE, &half(self.accepted, self.driver_select).to_le_bytes());
        put(CONFIG_VECTOR, &self.config_vector.to_le_bytes());
        put(NUM_QUEUES, &(self.queues.len() as u16).to_le_bytes());
        put(STATUS, &[self.status]);
        put(QUEUE_SELECT, &self.select.to_le_bytes());
        if let Some((queue, vector)) = self.queues.get(usize::from(self.select)) {
            put(SIZE, &queue.size().to_le_bytes());
            put(VECTOR, &vector.to_le_bytes());
            put(ENABLE, &u16::from(queue.ready()).to_le_bytes());
            put(NOTIFY_OFF, &self.select.to_le_bytes());
            put(DESC, &queue.desc_table().to_le_bytes());
            put(DRIVER, &queue.avail_ring().to_le_bytes());
            put(USED, &queue.used_ring().to_le_bytes());
        }
        let from = image.get(at..).unwrap_or_default();
        data.iter_mut().zip(from).for_each(|(byte, value)| *byte = *value);
    }

    /// Writes a field, or a half of a field of eight bytes. Other writes are ignored.
    pub fn write(&mut self, at: usize, data: &[u8]) -> Change {
        match *data {
            [value] if at == STATUS => return self.set_status(value),
            [a, b] => self.write_word(at, u16::from_le_bytes([a, b])),
            [a, b, c, d] => self.write_half(at, u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] if at >= DESC => {
                self.write_half(at, u32::from_le_bytes([a, b, c, d]));
                self.write_half(at + 4, u32::from_le_bytes([e, f, g, h]));
            }
            _ => {}
        }
        Change::None
    }

    fn set_status(&mut self, value: u8) -> Change {
        if value == 0 {
            return Change::Reset;
        }
        let mut added = value & !self.status;
        if added & FEATURES_OK != 0 && !self.can_accept() {
            added &= !FEATURES_OK;
        }
        // A driver may not be ready before the features are agreed.
        if added & DRIVER_OK != 0 && (self.status | added) & FEATURES_OK == 0 {
            added &= !DRIVER_OK;
        }
        self.status |= added & !NEEDS_RESET;
        if added & DRIVER_OK != 0 { Change::Start } else { Change::None }
    }

    /// Returns whether the device works with the features that the driver has accepted.
    fn can_accept(&self) -> bool {
        let has = |feature: u64| self.accepted & feature != 0;
        let mut needs = self.needs.iter();
        self.accepted & !self.offered == 0
            && has(F_VERSION_1)
            && needs.all(|(feature, needed)| !has(*feature) || has(*needed))
    }

    fn write_word(&mut self, at: usize, value: u16) {
        let vector = if value < self.vectors { value } else { NO_VECTOR };
        match at {
            CONFIG_VECTOR => self.config_vector = vector,
            QUEUE_SELECT => self.select = value,
            _ => {}
        }
        let Some((queue, queue_vector)) = self.selected() else { return };
        match at {
            SIZE => queue.set_size(value),
            VECTOR => *queue_vector = vector,
            ENABLE if value == 1 => queue.set_ready(true),
            _ => {}
        }
    }

    fn write_half(&mut self, at: usize, value: u32) {
        let shift = match (at, self.driver_select) {
            (DEVICE_FEATURE_SELECT, _) => return self.device_select = value,
            (DRIVER_FEATURE_SELECT, _) => return self.driver_select = value,
            (DRIVER_FEATURE, 0) => 0,
            (DRIVER_FEATURE, 1) => 32,
            _ => return self.write_address(at, value),
        };
        if self.status & FEATURES_OK == 0 {
            self.accepted &= !(u64::from(u32::MAX) << shift);
            self.accepted |= u64::from(value) << shift;
        }
    }

    fn write_address(&mut self, at: usize, value: u32) {
        let Some((queue, _)) = self.selected() else { return };
        let value = Some(value);
        match at {
            DESC => queue.set_desc_table_address(value, None),
            DESC_HIGH => queue.set_desc_table_address(None, value),
            DRIVER => queue.set_avail_ring_address(value, None),
            DRIVER_HIGH => queue.set_avail_ring_address(None, value),
            USED => queue.set_used_ring_address(value, None),
            USED_HIGH => queue.set_used_ring_address(None, value),
            _ => {}
        }
    }

    /// Returns the selected queue if it can be changed.
    fn selected(&mut self) -> Option<&mut (Queue, u16)> {
        if self.is_started() {
            return None;
        }
        self.queues.get_mut(usize::from(self.select)).filter(|(queue, _)| !queue.ready())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_accepted_only_with_what_it_needs() {
        let accepts = |features: u64| {
            let mut common = Common::new(F_VERSION_1 | 3, &[(2, 1)], 1, 2);
            for (half, shift) in [(0u32, 0), (1, 32)] {
                common.write(DRIVER_FEATURE_SELECT, &half.to_le_bytes());
                common.write(DRIVER_FEATURE, &((features >> shift) as u32).to_le_bytes());
            }
            common.write(STATUS, &[3 | FEATURES_OK]);
            let mut status = [0];
            common.read(STATUS, &mut status);
            status[0] & FEATURES_OK != 0
        };
        assert!([0, 1, 3].into_iter().all(|more| accepts(F_VERSION_1 | more)));
        assert!(!accepts(F_VERSION_1 | 2), "without what it needs");
        assert!(!accepts(F_VERSION_1 | 4), "not offered");
        assert!(!accepts(3), "without the standard");
    }
}

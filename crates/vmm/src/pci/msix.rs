//! MSI-X (PCI 3.0, 6.8.2): a table of messages in a device's memory, one for each interrupt.

use std::fmt;
use std::sync::Mutex;

use super::routes::Message;
use crate::machine::lock;

/// The capability's number.
pub const CAPABILITY: u8 = 0x11;
/// Bytes of a table entry.
pub const ENTRY_BYTES: usize = 16;
/// Bit of message control: MSI-X is enabled.
pub const ENABLE: u16 = 1 << 15;
/// Bit of message control: all vectors are masked.
pub const FUNCTION_MASK: u16 = 1 << 14;
const VECTOR_MASK: u32 = 1;

/// An interrupt line: raises the interrupt, and changes its message. The line is KVM's, or a
/// test's.
pub trait Line: Send {
    /// Uses this message from now on.
    fn set(&self, message: Message);

    /// Raises the interrupt.
    fn raise(&self);
}

struct Vector {
    line: Box<dyn Line>,
    entry: [u8; ENTRY_BYTES],
    /// The message that the line uses.
    used: Option<Message>,
    pending: bool,
}

/// The table, which vCPUs write, and the interrupts, which the devices' threads raise.
pub struct Msix(Mutex<State>);

struct State {
    vectors: Vec<Vector>,
    control: u16,
}

impl fmt::Debug for Msix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        write!(f, "Msix({} vectors, control {:#x})", state.vectors.len(), state.control)
    }
}

impl Vector {
    fn new(line: Box<dyn Line>) -> Vector {
        let mut vector = Vector { line, entry: [0; ENTRY_BYTES], used: None, pending: false };
        vector.entry[12] = VECTOR_MASK as u8;
        vector
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|index| self.entry[at + index]))
    }

    fn is_masked(&self, control: u16) -> bool {
        control & ENABLE == 0 || control & FUNCTION_MASK != 0 || self.word(12) & VECTOR_MASK != 0
    }

    /// Brings the line up to date, if the vector is enabled and not masked.
    fn update(&mut self, control: u16) {
        if self.is_masked(control) {
            return;
        }
        let address = u64::from(self.word(4)) << 32 | u64::from(self.word(0));
        let message = Message { address, data: self.word(8) };
        if self.used.replace(message) != Some(message) {
            self.line.set(message);
        }
        if std::mem::take(&mut self.pending) {
            self.line.raise();
        }
    }
}

impl Msix {
    /// Returns a table with a vector for each line. All vectors are masked.
    pub fn new(lines: Vec<Box<dyn Line>>) -> Msix {
        let vectors = lines.into_iter().map(Vector::new).collect();
        Msix(Mutex::new(State { vectors, control: 0 }))
    }

    /// Returns the number of vectors.
    pub fn vectors(&self) -> u16 {
        lock(&self.0).vectors.len() as u16
    }

    /// Handles a driver's write to message control of the capability.
    pub fn set_control(&self, control: u16) {
        let mut state = lock(&self.0);
        if state.control != control {
            state.control = control;
            state.vectors.iter_mut().for_each(|vector| vector.update(control));
        }
    }

    /// Raises an interrupt, or keeps it pending while it is masked. Without MSI-X, it is lost.
    pub fn raise(&self, vector: u16) {
        let mut state = lock(&self.0);
        let control = state.control;
        let Some(vector) = state.vectors.get_mut(usize::from(vector)) else { return };
        if vector.is_masked(control) {
            vector.pending = control & ENABLE != 0;
        } else {
            vector.line.raise();
        }
    }

    /// Reads the table.
    pub fn read_table(&self, at: usize, data: &mut [u8]) {
        let state = lock(&self.0);
        for (byte, index) in data.iter_mut().zip(at..) {
            let vector = state.vectors.get(index / ENTRY_BYTES);
            *byte = vector.map_or(0, |vector| vector.entry[index % ENTRY_BYTES]);
        }
    }

    /// Writes the table.
    pub fn write_table(&self, at: usize, data: &[u8]) {
        let mut state = lock(&self.0);
        let control = state.control;
        let mut last = None;
        for (byte, index) in data.iter().zip(at..) {
            if let Some(vector) = state.vectors.get_mut(index / ENTRY_BYTES) {
                vector.entry[index % ENTRY_BYTES] = *byte;
                last = Some(index / ENTRY_BYTES);
            }
        }
        // An access of at most eight bytes, aligned or not, touches the entry it starts in and
        // `last` only.
        for index in [at / ENTRY_BYTES].into_iter().chain(last) {
            if let Some(vector) = state.vectors.get_mut(index) {
                vector.update(control);
            }
        }
    }

    /// Reads the pending bit array.
    pub fn read_pending(&self, at: usize, data: &mut [u8]) {
        let state = lock(&self.0);
        for (byte, index) in data.iter_mut().zip(at..) {
            let bits = state.vectors.iter().skip(8 * index).take(8).enumerate();
            *byte = bits.fold(0, |byte, (bit, vector)| byte | u8::from(vector.pending) << bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Default, Clone)]
    struct Log(Arc<Mutex<Vec<Option<Message>>>>);

    impl Line for Log {
        fn set(&self, message: Message) {
            lock(&self.0).push(Some(message));
        }

        fn raise(&self) {
            lock(&self.0).push(None);
        }
    }

    #[test]
    fn a_masked_interrupt_is_pending_until_it_is_unmasked() {
        let log = Log::default();
        let msix = Msix::new(vec![Box::new(log.clone())]);
        msix.raise(0);
        msix.set_control(ENABLE);
        msix.raise(0);
        let mut bits = [0; 8];
        msix.read_pending(0, &mut bits);
        assert_eq!(bits, [1, 0, 0, 0, 0, 0, 0, 0]);
        msix.write_table(0, &0xfee0_1000u64.to_le_bytes());
        msix.write_table(8, &0x41u32.to_le_bytes());
        assert_eq!(*lock(&log.0), []);
        msix.write_table(12, &0u32.to_le_bytes());
        let message = Some(Message { address: 0xfee0_1000, data: 0x41 });
        assert_eq!(*lock(&log.0), [message, None]);
        msix.raise(0);
        msix.set_control(ENABLE | FUNCTION_MASK);
        msix.raise(0);
        assert_eq!(lock(&log.0).len(), 3);
        msix.set_control(ENABLE);
        assert_eq!(*lock(&log.0), [message, None, None, None]);
        msix.raise(1);
        msix.write_table(14, &[0xff; 8]);
        msix.read_table(15, &mut [0; 8]);
    }
}

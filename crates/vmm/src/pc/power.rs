//! ACPI's power-management registers at port 0x600, which `unspin_cvm::acpi` describes, and the
//! keyboard controller's command that resets a PC.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use crate::error::Ended;

/// The first port of the registers.
pub const PM_BASE: u16 = 0x600;
/// The port after the last.
pub const PM_END: u16 = PM_BASE + 12;
/// The keyboard controller's status and command port.
pub const I8042_COMMAND: u16 = 0x64;

const PM1_ENABLE: u16 = 2;
const PM1_CONTROL: u16 = 4;
const PM_TIMER: u16 = 8;
/// PM1_CNT: the machine is in ACPI mode.
const SCI_EN: u16 = 1;
/// PM1_CNT: enter the sleeping state of the type in bits 10 to 12.
const SLP_EN: u16 = 1 << 13;
const SLP_TYP: u16 = 7 << 10;
/// The type that the DSDT names for S5.
const SLP_TYP_OFF: u16 = 0;
const TIMER_HZ: u128 = 3_579_545;
const TIMER_BITS: u32 = 24;
/// The command that pulses the processor's reset line.
const I8042_RESET: u8 = 0xfe;

/// The registers. No event sets a bit of PM1_STS, so the SCI is never raised.
#[derive(Debug)]
pub struct Power {
    start: Instant,
    enable: AtomicU16,
}

impl Default for Power {
    fn default() -> Self {
        Power { start: Instant::now(), enable: AtomicU16::new(0) }
    }
}

impl Power {
    /// Reads a register, or a part of it, at an offset from [`PM_BASE`].
    pub fn read(&self, offset: u16, data: &mut [u8]) {
        let mut registers = [0; (PM_END - PM_BASE) as usize];
        let mut put = |at: u16, bytes: &[u8]| {
            registers[usize::from(at)..][..bytes.len()].copy_from_slice(bytes);
        };
        put(PM1_ENABLE, &self.enable.load(Ordering::Relaxed).to_le_bytes());
        put(PM1_CONTROL, &SCI_EN.to_le_bytes());
        put(PM_TIMER, &self.timer().to_le_bytes());
        let from = registers.get(usize::from(offset)..).unwrap_or_default();
        for (byte, index) in data.iter_mut().zip(0..) {
            *byte = from.get(index).copied().unwrap_or(0);
        }
    }

    /// Writes a register. Returns how the VM ends, if the write ends it.
    pub fn write(&self, offset: u16, data: &[u8]) -> Option<Ended> {
        let &[low, high] = data else { return None };
        let value = u16::from_le_bytes([low, high]);
        match offset {
            PM1_ENABLE => self.enable.store(value, Ordering::Relaxed),
            PM1_CONTROL if value & SLP_EN != 0 && (value & SLP_TYP) >> 10 == SLP_TYP_OFF => {
                return Some(Ended::PoweredOff);
            }
            _ => {}
        }
        None
    }

    fn timer(&self) -> u32 {
        let ticks = self.start.elapsed().as_nanos() * TIMER_HZ / 1_000_000_000;
        ticks as u32 & ((1 << TIMER_BITS) - 1)
    }
}

/// Runs a command of the keyboard controller. Returns how the VM ends, if the command ends it.
pub fn i8042_command(data: &[u8]) -> Option<Ended> {
    (data == [I8042_RESET]).then_some(Ended::Reset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_type_of_s5_powers_off() {
        let power = Power::default();
        assert_eq!(power.write(PM1_CONTROL, &0x2001u16.to_le_bytes()), Some(Ended::PoweredOff));
        assert_eq!(power.write(PM1_CONTROL, &0x2401u16.to_le_bytes()), None);
        assert_eq!(power.write(PM1_CONTROL, &[1]), None);
        assert_eq!(i8042_command(&[0xfe]), Some(Ended::Reset));
        assert_eq!(i8042_command(&[0xfe, 0]), None);
    }

    #[test]
    fn registers_read_back_at_any_offset_and_size() {
        let power = Power::default();
        power.write(PM1_ENABLE, &[0x20, 1]);
        let mut word = [0; 4];
        power.read(0, &mut word);
        assert_eq!(word, [0, 0, 0x20, 1]);
        power.read(PM1_CONTROL, &mut word[..2]);
        assert_eq!(word[..2], [1, 0]);
        power.read(11, &mut word);
        assert_eq!(word, [0; 4]);
    }
}

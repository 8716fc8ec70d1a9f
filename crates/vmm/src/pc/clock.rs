//! The CMOS clock of a PC (MC146818): UTC, without alarms or interrupts. If the clock's status read
//! as all ones, Linux would find no clock and would give up only after a second.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::UNIX_EPOCH;

/// The port that selects a register. The data port is the next one.
pub const CLOCK: u16 = 0x70;
/// The port after the last.
pub const CLOCK_END: u16 = CLOCK + 2;

/// The register's number in the first port; the top bit masks NMIs.
const INDEX: u8 = 0x7f;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const STATUS_D: u8 = 0x0d;
/// Divider and rate as a PC's firmware leaves them. No update is ever in progress.
const RUNS: u8 = 0x26;
/// Hours count to 24, and numbers are binary-coded decimal.
const HOURS_24: u8 = 1 << 1;
/// The battery is good.
const VALID: u8 = 1 << 7;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// The clock. A guest's writes to it have no effect.
#[derive(Debug, Default)]
pub struct Clock {
    index: AtomicU8,
}

impl Clock {
    /// Reads from a port, at an offset from [`CLOCK`]. Only the data port can be read.
    pub fn read(&self, offset: u16, data: &mut [u8]) {
        if let (1, Some(byte)) = (offset, data.first_mut()) {
            // If the host's clock is before 1970, the guest's clock is wrong as well.
            let now_s = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
            *byte = register(self.index.load(Ordering::Relaxed), now_s);
        }
    }

    /// Writes to a port.
    pub fn write(&self, offset: u16, data: &[u8]) {
        if let (0, Some(index)) = (offset, data.first()) {
            self.index.store(index & INDEX, Ordering::Relaxed);
        }
    }
}

/// Returns a register's value `now_s` seconds after the beginning of 1970.
fn register(index: u8, now_s: u64) -> u8 {
    let days = now_s / DAY_S;
    match index {
        0 => decimal(now_s % MINUTE_S),
        2 => decimal(now_s / MINUTE_S % 60),
        4 => decimal(now_s / HOUR_S % 24),
        // 1970 began on a Thursday; Sunday is 1.
        6 => decimal((days + 4) % 7 + 1),
        7 => decimal(date(days).2),
        8 => decimal(date(days).1),
        9 => decimal(date(days).0 % 100),
        STATUS_A => RUNS,
        STATUS_B => HOURS_24,
        STATUS_D => VALID,
        _ => 0,
    }
}

/// Encodes a number below 100 as binary-coded decimal.
fn decimal(number: u64) -> u8 {
    (number / 10 * 16 + number % 10) as u8
}

/// Returns year, month and day of the month, `days` days after the beginning of 1970 (Gregorian).
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // Any 400 consecutive years have the same number of days.
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(now_s: u64) -> [u8; 7] {
        [9, 8, 7, 6, 4, 2, 0].map(|index| register(index, now_s))
    }

    #[test]
    fn registers_show_utc() {
        assert_eq!(all(0), [0x70, 1, 1, 5, 0, 0, 0]);
        assert_eq!(all(951_782_399), [0, 2, 0x28, 2, 0x23, 0x59, 0x59]);
        assert_eq!(all(951_782_400), [0, 2, 0x29, 3, 0, 0, 0]);
        assert_eq!(all(1_795_948_807), [0x26, 0x11, 0x29, 1, 0x10, 0x40, 7]);
        assert_eq!(all(4_107_542_400), [0, 3, 1, 2, 0, 0, 0]);
        assert_eq!(all(13_574_563_200)[..3], [0, 2, 0x29]);
    }

    #[test]
    fn days_follow_each_other() {
        let mut before = date(0);
        for days in 1..200_000 {
            let (year, month, day) = date(days);
            let is_next = match before {
                (y, m, d) if day > 1 => (year, month, day) == (y, m, d + 1),
                (y, 12, 31) => (year, month) == (y + 1, 1),
                (y, m, d) => (year, month) == (y, m + 1) && (28..32).contains(&d),
            };
            assert!(is_next, "{before:?}, {:?}", date(days));
            before = (year, month, day);
        }
    }

    #[test]
    fn the_first_port_selects_and_the_second_has_data() {
        let clock = Clock::default();
        let mut data = [0xff; 2];
        clock.write(0, &[0x80 | STATUS_D]);
        clock.read(1, &mut data);
        assert_eq!(data, [VALID, 0xff]);
        clock.write(1, &[0]);
        clock.read(1, &mut data[1..]);
        clock.read(0, &mut data[..1]);
        assert_eq!(data, [VALID, VALID]);
        clock.write(0, &[STATUS_A]);
        clock.read(1, &mut data);
        assert_eq!(data[0] & 0x80, 0);
    }
}

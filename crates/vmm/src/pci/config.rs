//! A PCI function's configuration space.

/// Bytes of configuration space that the configuration ports reach.
pub const BYTES: usize = 256;
/// Offset of the first base address register.
pub const BAR0: usize = 0x10;
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const CLASS: usize = 0x08;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;
const FIRST_CAPABILITY: usize = 0x40;
/// The writable bits: memory space and bus mastering can be enabled.
const COMMAND_WRITABLE: u16 = 0x0006;
const STATUS_CAPABILITIES: u16 = 0x10;

/// The registers, with a mask of their writable bits.
#[derive(Debug, Clone)]
pub struct Config {
    bytes: [u8; BYTES],
    writable: [u8; BYTES],
    /// The address and the size of the memory behind [`BAR0`]. The size is a power of two.
    bar: Option<(u32, u32)>,
    next: usize,
    /// Offset of the last capability's pointer to the next one.
    link: usize,
}

impl Config {
    /// Returns a function with these numbers; `class` has class, subclass and interface in 24 bits.
    pub fn new(vendor: u16, device: u16, class: u32, revision: u8) -> Config {
        let (bytes, writable) = ([0; BYTES], [0; BYTES]);
        let (next, link) = (FIRST_CAPABILITY, CAPABILITIES);
        let mut config = Config { bytes, writable, bar: None, next, link };
        config.put(0, &vendor.to_le_bytes());
        config.put(2, &device.to_le_bytes());
        config.put(CLASS, &(class << 8 | u32::from(revision)).to_le_bytes());
        config.put(SUBSYSTEM, &vendor.to_le_bytes());
        config.put(SUBSYSTEM + 2, &device.to_le_bytes());
        config.writable[COMMAND..COMMAND + 2].copy_from_slice(&COMMAND_WRITABLE.to_le_bytes());
        config
    }

    /// Gives the function memory at a fixed address. A driver that writes another address reads the
    /// old one back.
    pub fn set_bar(&mut self, address: u32, bytes: u32) {
        self.bar = Some((address, bytes));
        self.put(BAR0, &address.to_le_bytes());
        self.put(COMMAND, &COMMAND_WRITABLE.to_le_bytes());
    }

    /// Adds a capability with the number `id`. `body` follows the pointer to the next capability,
    /// and `writable` masks the bits of `body` that can be written. Returns the capability's
    /// offset.
    pub fn add_capability(&mut self, id: u8, body: &[u8], writable: &[u8]) -> usize {
        let at = self.next;
        self.put(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        self.put(self.link, &[at as u8]);
        self.put(at, &[id, 0]);
        self.put(at + 2, body);
        self.writable[at + 2..][..writable.len()].copy_from_slice(writable);
        self.link = at + 1;
        self.next = (at + 2 + body.len()).next_multiple_of(4);
        at
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns a 16-bit register, which must exist.
    pub fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Reads registers; those after the last one read as zero.
    pub fn read(&self, at: usize, data: &mut [u8]) {
        for (byte, index) in data.iter_mut().zip(at..) {
            *byte = self.bytes.get(index).copied().unwrap_or(0);
        }
    }

    /// Writes the writable bits of registers.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        if let (BAR0, Some((address, bytes))) = (at, self.bar) {
            // A write of all ones requests the size, which the register keeps until the next write.
            let value = if data == [0xff; 4] { !(bytes - 1) } else { address };
            self.put(BAR0, &value.to_le_bytes());
        }
        for (value, index) in data.iter().zip(at..) {
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(index), self.writable.get(index))
            {
                *byte = *byte & !mask | value & mask;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dword(config: &Config, at: usize) -> u32 {
        let mut bytes = [0; 4];
        config.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_memory_says_its_size_and_stays_where_it_is() {
        let mut config = Config::new(0x1af4, 0x1042, 0x01_8000, 1);
        config.set_bar(0xc000_4000, 0x4000);
        config.write(BAR0, &[0xff; 4]);
        assert_eq!(dword(&config, BAR0), 0xffff_c000);
        config.write(BAR0, &0xd000_0000u32.to_le_bytes());
        assert_eq!(dword(&config, BAR0), 0xc000_4000);
        config.write(0, &[0; 4]);
        assert_eq!((dword(&config, 0), dword(&config, 8)), (0x1042_1af4, 0x0180_0001));
        config.write(COMMAND, &[0xff, 0xff]);
        assert_eq!(config.word(COMMAND), 6);
    }

    #[test]
    fn capabilities_are_a_list() {
        let mut config = Config::new(1, 2, 3, 0);
        let first = config.add_capability(9, &[5, 6, 7], &[]);
        let second = config.add_capability(0x11, &[0; 10], &[0, 0xc0]);
        assert_eq!((first, second, dword(&config, CAPABILITIES)), (0x40, 0x48, 0x40));
        assert_eq!(dword(&config, 0x40), 0x0605_4809);
        assert_eq!(dword(&config, 0x48) & 0xffff, 0x11);
        config.write(second + 2, &[0xff, 0xff]);
        assert_eq!(config.word(second + 2), 0xc000);
        config.read(BYTES - 1, &mut [1; 4]);
        config.write(BYTES - 1, &[1; 4]);
    }
}

//! The conditions that a file must meet before the igvm crate may read it.
//!
//! igvm 0.5.0 trusts files too much. It subtracts and adds offsets unchecked, divides by an
//! alignment of 0, and asserts that the registers of a VP context have one VTL. It also copies a
//! page for each header that names it, and prints headers that it does not know. Each rule here
//! prevents one of these failures, and names the place at which the file breaks the rule.

mod rules;

use igvm_defs::{
    IGVM_FIXED_HEADER, IGVM_FIXED_HEADER_V2, IGVM_FORMAT_VERSION_1, IGVM_FORMAT_VERSION_2,
    IGVM_MAGIC_VALUE, IGVM_VHT_OPTIONAL_BIT, IgvmArchitecture, IgvmVariableHeaderType as Type,
};
use zerocopy::FromBytes;

use crate::image::ReadError;

/// Offset of the checksum in the fixed header.
pub const CHECKSUM_AT: usize = 20;
/// The most bytes of page data in one file, because the igvm crate copies them all.
pub const DATA_BYTES_MAX: u64 = 1 << 30;
/// The most bytes of headers, because the parsed form of each is several times as large. The
/// headers for pages of [`DATA_BYTES_MAX`] need a quarter of this limit.
const HEADER_BYTES_MAX: usize = 32 << 20;

/// The fixed header.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// Version of the format.
    pub version: u32,
    /// Whether the guest is for Arm.
    pub aarch64: bool,
    /// Bytes of the fixed header.
    pub bytes: usize,
    /// Offset of the variable headers.
    pub variable_start: usize,
    /// Offset of the file's data.
    pub data_start: usize,
}

/// A variable header, and its place.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Offset in the file.
    pub offset: usize,
    /// Bytes, including type, length and padding.
    pub bytes: usize,
    /// The type.
    pub kind: u32,
}

impl Header {
    /// Returns whether a loader may skip the header.
    pub fn is_optional(&self) -> bool {
        self.kind & IGVM_VHT_OPTIONAL_BIT != 0 || self.kind == Type::IGVM_VHT_VERSION_STRING.0
    }

    fn wrong(&self, what: impl Into<String>) -> ReadError {
        ReadError::Header { offset: self.offset, kind: self.kind, what: what.into() }
    }
}

/// Returns the headers of a file, if the igvm crate can safely read the file.
pub fn scan(file: &[u8]) -> Result<(Head, Vec<Header>), ReadError> {
    let head = fixed_header(file)?;
    let (stated, computed) = (word(file, CHECKSUM_AT), checksum(file, head));
    if stated != Some(computed) {
        return Err(ReadError::Checksum { stated: stated.unwrap_or_default(), computed });
    }
    let mut headers = Vec::new();
    let mut rest = head.variable_start..head.data_start;
    while !rest.is_empty() {
        let header = next(file, rest.clone())?;
        rest.start += header.bytes;
        headers.push(header);
    }
    let mut guard = rules::Guard::new(file, head.data_start);
    headers.iter().filter(|header| !header.is_optional()).try_for_each(|h| guard.judge(h))?;
    Ok((head, headers))
}

/// Returns the CRC-32 of the variable headers and the fixed header, whose checksum counts as 0.
pub fn checksum(file: &[u8], head: Head) -> u32 {
    let mut fixed = file[..head.bytes].to_vec();
    fixed[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&fixed);
    checksum.update(&file[head.variable_start..head.data_start]);
    checksum.finalize()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes)
}

fn fixed_header(file: &[u8]) -> Result<Head, ReadError> {
    let (fixed, _) = IGVM_FIXED_HEADER::read_from_prefix(file)
        .map_err(|_| ReadError::Short { bytes: file.len() })?;
    if fixed.magic != IGVM_MAGIC_VALUE {
        return Err(ReadError::NotIgvm { magic: fixed.magic.to_le_bytes() });
    }
    let (bytes, aarch64) = match fixed.format_version {
        IGVM_FORMAT_VERSION_1 => (size_of::<IGVM_FIXED_HEADER>(), false),
        IGVM_FORMAT_VERSION_2 => {
            let (second, _) = IGVM_FIXED_HEADER_V2::read_from_prefix(file)
                .map_err(|_| ReadError::Short { bytes: file.len() })?;
            let aarch64 = second.architecture == IgvmArchitecture::AARCH64;
            (size_of::<IGVM_FIXED_HEADER_V2>(), aarch64)
        }
        version => return Err(ReadError::Version { version }),
    };
    if fixed.total_file_size as usize != file.len() {
        return Err(ReadError::Size { stated: fixed.total_file_size, bytes: file.len() });
    }
    let variable_start = fixed.variable_header_offset as usize;
    let data_start = variable_start + fixed.variable_header_size as usize;
    let inside = bytes <= variable_start && data_start <= file.len();
    if !inside || variable_start % 8 != 0 {
        return Err(ReadError::Section { start: variable_start, end: data_start });
    }
    if data_start - variable_start > HEADER_BYTES_MAX {
        return Err(ReadError::ManyHeaders { bytes: data_start - variable_start });
    }
    if data_start == file.len() {
        return Err(ReadError::NoData);
    }
    Ok(Head { version: fixed.format_version, aarch64, bytes, variable_start, data_start })
}

/// Returns the next header, at the start of `rest`.
fn next(file: &[u8], rest: std::ops::Range<usize>) -> Result<Header, ReadError> {
    let offset = rest.start;
    let section = &file[rest.clone()];
    let (Some(kind), Some(length)) = (word(section, 0), word(section, 4)) else {
        return Err(ReadError::Header { offset, kind: 0, what: "is cut off".into() });
    };
    let bytes = 8 + (length as usize).next_multiple_of(8);
    let header = Header { offset, bytes, kind };
    if bytes > rest.len() {
        return Err(header.wrong(format!("its {length} bytes reach past the headers' section")));
    }
    Ok(header)
}

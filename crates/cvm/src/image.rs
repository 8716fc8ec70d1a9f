//! An IGVM file in its parsed form.

use std::panic;

use igvm::{IgvmDirectiveHeader, IgvmFile, IgvmInitializationHeader, IgvmPlatformHeader};
use igvm_defs::IGVM_VHS_SUPPORTED_PLATFORM;
use unspin_model::class::chain;

use crate::guard::{self, CHECKSUM_AT, Head, Header};
use crate::platform::Platform;

/// Offsets in the fixed header: the offset of the variable headers, and their size.
const OFFSET_AT: usize = 8;
const SIZE_AT: usize = 12;

/// A reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is shorter than a fixed header.
    #[error("is not an IGVM file: it has only {bytes} bytes")]
    Short {
        /// The file's size.
        bytes: usize,
    },
    /// The file is of another kind.
    #[error(
        "is not an IGVM file: it begins with \"{}\", and IGVM files with \"IGVM\"; `unspin igvm \
         build` makes one", magic.escape_ascii()
    )]
    NotIgvm {
        /// The file's first bytes.
        magic: [u8; 4],
    },
    /// The file has a future version of the format.
    #[error("has version {version} of the format; unspin reads versions 1 and 2")]
    Version {
        /// The version.
        version: u32,
    },
    /// The file is truncated, or has trailing bytes.
    #[error("has {bytes} bytes, but its header says {stated}: fetch or build it again")]
    Size {
        /// The size that the header states.
        stated: u32,
        /// The file's size.
        bytes: usize,
    },
    /// The headers were changed, or badly copied.
    #[error(
        "has headers with the checksum {computed:#x}, but states {stated:#x}: fetch or build it \
         again"
    )]
    Checksum {
        /// The checksum that the header states.
        stated: u32,
        /// The checksum of the headers.
        computed: u32,
    },
    /// The section of variable headers is not inside the file.
    #[error("has its variable headers from byte {start:#x} to {end:#x}, where they cannot be")]
    Section {
        /// The first byte of the section.
        start: usize,
        /// The byte after the last.
        end: usize,
    },
    /// The file has more headers than a guest needs.
    #[error("has {bytes} bytes of headers; unspin reads 32 MiB at most")]
    ManyHeaders {
        /// Bytes of the variable headers.
        bytes: usize,
    },
    /// The file has headers only.
    #[error("has no data behind its headers")]
    NoData,
    /// A variable header makes no sense.
    #[error("the header at byte {offset:#x} (type {kind:#x}): {what}")]
    Header {
        /// Offset of the header in the file.
        offset: usize,
        /// The header's type.
        kind: u32,
        /// The mistake in the header.
        what: String,
    },
    /// The igvm crate refuses the file.
    #[error("is refused by the igvm crate: {0}")]
    Refused(String),
    /// The igvm crate panics while it reads the file.
    #[error("makes the igvm crate panic: please report it with the file")]
    Panicked,
}

/// A parsed file.
#[derive(Debug)]
pub struct Image {
    file: IgvmFile,
    head: Head,
    directives: Vec<Header>,
    skipped: Vec<Header>,
    bytes: usize,
}

impl Image {
    /// Reads a whole file. Skips optional headers: see [`Image::skipped`].
    pub fn read(bytes: &[u8]) -> Result<Image, ReadError> {
        let (head, headers) = guard::scan(bytes)?;
        let (skipped, kept): (Vec<Header>, Vec<Header>) =
            headers.into_iter().partition(Header::is_optional);
        let file = if skipped.is_empty() {
            parse(bytes)?
        } else {
            parse(&without_skipped(bytes, head, &kept))?
        };
        let is_directive =
            |header: &Header| igvm_defs::IGVM_VHT_RANGE_DIRECTIVE.contains(&header.kind);
        let directives = kept.into_iter().filter(is_directive).collect();
        Ok(Image { file, head, directives, skipped, bytes: bytes.len() })
    }

    /// Returns the version of the format.
    pub fn version(&self) -> u32 {
        self.head.version
    }

    /// Returns `x86-64` or `aarch64`.
    pub fn architecture(&self) -> &'static str {
        if self.head.aarch64 { "aarch64" } else { "x86-64" }
    }

    /// Returns the size of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns offset and type of the headers that [`Image::read`] skipped.
    pub fn skipped(&self) -> impl Iterator<Item = (usize, u32)> {
        self.skipped.iter().map(|header| (header.offset, header.kind))
    }

    /// Returns the platforms that the file is for.
    pub fn platforms(&self) -> impl Iterator<Item = (Platform, &IGVM_VHS_SUPPORTED_PLATFORM)> {
        self.file.platforms().iter().filter_map(|header| {
            let IgvmPlatformHeader::SupportedPlatform(supported) = header;
            Some((Platform::of(supported.platform_type)?, supported))
        })
    }

    /// Returns the bit of a platform in compatibility masks, if the file is for the platform.
    pub fn mask(&self, platform: Platform) -> Option<u32> {
        self.platforms().find(|(known, _)| *known == platform).map(|(_, s)| s.compatibility_mask)
    }

    /// Returns the headers that prepare a guest.
    pub fn initializations(&self) -> &[IgvmInitializationHeader] {
        self.file.initializations()
    }

    /// Returns the loader's steps, in the order of execution.
    pub fn directives(&self) -> &[IgvmDirectiveHeader] {
        self.file.directives()
    }

    /// Returns the directives for a platform, with their indices among all directives.
    pub fn directives_of(&self, mask: u32) -> impl Iterator<Item = (usize, &IgvmDirectiveHeader)> {
        let is_for = move |directive: &IgvmDirectiveHeader| {
            directive.compatibility_mask().is_none_or(|masks| masks & mask != 0)
        };
        self.directives().iter().enumerate().filter(move |(_, directive)| is_for(directive))
    }

    /// Returns the offset in the file at which the header of a directive begins.
    pub fn offset(&self, directive: usize) -> Option<usize> {
        self.directives.get(directive).map(|header| header.offset)
    }
}

/// Parses a file by the igvm crate. [`guard::scan`] has checked the bytes. If the crate panics all
/// the same, this process must go on.
fn parse(bytes: &[u8]) -> Result<IgvmFile, ReadError> {
    let read = panic::catch_unwind(|| IgvmFile::new_from_binary(bytes, None));
    let read = read.map_err(|_| ReadError::Panicked)?;
    read.map_err(|error| ReadError::Refused(chain(&error).to_string()))
}

/// Removes the optional headers from a file, because the igvm crate refuses them. Offsets of data
/// stay as they are, because the section of headers begins later instead.
fn without_skipped(file: &[u8], head: Head, kept: &[Header]) -> Vec<u8> {
    let headers: Vec<u8> =
        kept.iter().flat_map(|h| &file[h.offset..][..h.bytes]).copied().collect();
    let start = head.data_start - headers.len();
    let mut bytes = file.to_vec();
    bytes[start..head.data_start].copy_from_slice(&headers);
    let mut word = |at: usize, value: u32| {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    word(OFFSET_AT, start as u32);
    word(SIZE_AT, headers.len() as u32);
    let checksum = guard::checksum(&bytes, Head { variable_start: start, ..head });
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

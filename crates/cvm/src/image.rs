//! An IGVM file that was read.

use std::panic;

use igvm::{IgvmDirectiveHeader, IgvmFile, IgvmInitializationHeader, IgvmPlatformHeader};
use igvm_defs::IGVM_VHS_SUPPORTED_PLATFORM;
use unspin_model::class::chain;

use crate::guard::{self, CHECKSUM_AT, Head, Header};
use crate::platform::Platform;

/// Where the fixed header has the offset of the variable headers' section, and its size.
const OFFSET_AT: usize = 8;
const SIZE_AT: usize = 12;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Shorter than a fixed header.
    #[error("is not an IGVM file: it has only {bytes} bytes")]
    Short {
        /// Its size.
        bytes: usize,
    },
    /// Another kind of file.
    #[error(
        "is not an IGVM file: it begins with \"{}\", and IGVM files with \"IGVM\"; `unspin igvm \
         build` makes one", magic.escape_ascii()
    )]
    NotIgvm {
        /// Its first bytes.
        magic: [u8; 4],
    },
    /// A format of the future.
    #[error("has version {version} of the format; unspin reads versions 1 and 2")]
    Version {
        /// Its version.
        version: u32,
    },
    /// Truncated, or with something behind it.
    #[error("has {bytes} bytes, but its header says {stated}: fetch or build it again")]
    Size {
        /// What the header says.
        stated: u32,
        /// Its size.
        bytes: usize,
    },
    /// The headers were changed, or badly copied.
    #[error(
        "has headers with the checksum {computed:#x}, but states {stated:#x}: fetch or build it \
         again"
    )]
    Checksum {
        /// What the header says.
        stated: u32,
        /// What the headers have.
        computed: u32,
    },
    /// The section of variable headers is not inside the file.
    #[error("has its variable headers from byte {start:#x} to {end:#x}, where they cannot be")]
    Section {
        /// First byte.
        start: usize,
        /// The byte behind the last.
        end: usize,
    },
    /// A file that is not a guest's.
    #[error("has {bytes} bytes of headers; unspin reads 32 MiB at most")]
    ManyHeaders {
        /// Bytes of its variable headers.
        bytes: usize,
    },
    /// There are headers only.
    #[error("has no data behind its headers")]
    NoData,
    /// A variable header cannot be meant.
    #[error("the header at byte {offset:#x} (type {kind:#x}): {what}")]
    Header {
        /// Its byte in the file.
        offset: usize,
        /// Its type.
        kind: u32,
        /// What is wrong.
        what: String,
    },
    /// The igvm crate refuses the file.
    #[error("is refused by the igvm crate: {0}")]
    Refused(String),
    /// The igvm crate panics over the file.
    #[error("makes the igvm crate panic: please report it with the file")]
    Panicked,
}

/// A file, parsed.
#[derive(Debug)]
pub struct Image {
    file: IgvmFile,
    head: Head,
    directives: Vec<Header>,
    skipped: Vec<Header>,
    bytes: usize,
}

impl Image {
    /// Reads a whole file. Headers that may be passed over are: see [`Image::skipped`].
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

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.head.version
    }

    /// `x86-64` or `aarch64`.
    pub fn architecture(&self) -> &'static str {
        if self.head.aarch64 { "aarch64" } else { "x86-64" }
    }

    /// Size of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Byte and type of the headers that were passed over.
    pub fn skipped(&self) -> impl Iterator<Item = (usize, u32)> {
        self.skipped.iter().map(|header| (header.offset, header.kind))
    }

    /// The platforms that the file is for.
    pub fn platforms(&self) -> impl Iterator<Item = (Platform, &IGVM_VHS_SUPPORTED_PLATFORM)> {
        self.file.platforms().iter().filter_map(|header| {
            let IgvmPlatformHeader::SupportedPlatform(supported) = header;
            Some((Platform::of(supported.platform_type)?, supported))
        })
    }

    /// The bit of a platform in compatibility masks, if the file is for it.
    pub fn mask(&self, platform: Platform) -> Option<u32> {
        self.platforms().find(|(known, _)| *known == platform).map(|(_, s)| s.compatibility_mask)
    }

    /// The headers that prepare a guest.
    pub fn initializations(&self) -> &[IgvmInitializationHeader] {
        self.file.initializations()
    }

    /// What a loader does, in this order.
    pub fn directives(&self) -> &[IgvmDirectiveHeader] {
        self.file.directives()
    }

    /// The directives for a platform, with their indices among all of them.
    pub fn directives_of(&self, mask: u32) -> impl Iterator<Item = (usize, &IgvmDirectiveHeader)> {
        let is_for = move |directive: &IgvmDirectiveHeader| {
            directive.compatibility_mask().is_none_or(|masks| masks & mask != 0)
        };
        self.directives().iter().enumerate().filter(move |(_, directive)| is_for(directive))
    }

    /// The byte in the file at which the header of a directive begins.
    pub fn offset(&self, directive: usize) -> Option<usize> {
        self.directives.get(directive).map(|header| header.offset)
    }
}

/// Reads by the igvm crate. [`guard::scan`] has looked at the bytes; that the crate panics all the
/// same must not end this process.
fn parse(bytes: &[u8]) -> Result<IgvmFile, ReadError> {
    let read = panic::catch_unwind(|| IgvmFile::new_from_binary(bytes, None));
    let read = read.map_err(|_| ReadError::Panicked)?;
    read.map_err(|error| ReadError::Refused(chain(&error).to_string()))
}

/// The file without the headers that may be passed over, because the igvm crate refuses them.
/// Offsets of data stay as they are: the headers' section begins later instead.
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

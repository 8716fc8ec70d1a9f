//! The contents of a file.

mod ranges;

use igvm::{IgvmDirectiveHeader as Directive, IgvmInitializationHeader as Initialization};
use serde::Serialize;

use crate::as_hex;
use crate::cpu::CpuState;
use crate::image::Image;
use crate::measure::{Loader, Measurement, measure};
use crate::platform::Platform;

/// A file, as `unspin igvm show --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Version of the file's format.
    pub version: u32,
    /// `x86-64` or `aarch64`.
    pub architecture: &'static str,
    /// Bytes of the file.
    pub bytes: u64,
    /// The platforms that the file is for.
    pub platforms: Vec<Supported>,
    /// Policies and relocatable regions.
    pub initializations: Vec<Other>,
    /// Memory, in the file's order. Adjoining ranges of one kind are merged.
    pub ranges: Vec<Range>,
    /// Directives that add no memory.
    pub others: Vec<Other>,
    /// Registers of vCPUs.
    pub vcpus: Vec<CpuState>,
    /// The digest of each platform that has one; for SNP, one of each loader.
    pub digests: Vec<Measurement>,
    /// Optional headers, which the reader skipped: their offset in the file and their type.
    pub skipped: Vec<(usize, u32)>,
}

/// A platform that a file is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Supported {
    /// The platform's name.
    pub platform: Platform,
    /// The platform's bit in compatibility masks.
    pub mask: u32,
    /// The platform's version.
    pub version: u16,
    /// The highest virtual trust level; 0 if there are none.
    pub highest_vtl: u8,
    /// The first address of the memory that the host shares; 0 if the guest decides.
    #[serde(serialize_with = "as_hex")]
    pub shared_gpa_boundary: u64,
}

/// A range of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The first address.
    #[serde(serialize_with = "as_hex")]
    pub start: u64,
    /// The address after the last.
    #[serde(serialize_with = "as_hex")]
    pub end: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// `normal`, `secrets`, `cpuid`, `cpuid-xf`, `parameters`, `vmsa`, `required` or `error`.
    pub kind: &'static str,
    /// The measured part: `contents`, `address` (if the digest has addresses at all) or `no`.
    pub measured: &'static str,
    /// Whether the file has data for the range. Otherwise it is zeros, or others fill it.
    pub data: bool,
    /// The platforms that the range is for.
    pub platforms: Vec<Platform>,
    /// Index of the range's first directive.
    pub directive: usize,
    /// Number of the range's directives.
    pub directives: usize,
}

/// A header in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Other {
    /// The header's index in its section.
    pub index: usize,
    /// The header's meaning.
    pub what: String,
    /// The platforms that the header is for.
    pub platforms: Vec<Platform>,
}

/// Summarizes a file.
pub fn summary(image: &Image) -> Summary {
    let directives = || image.directives().iter().enumerate();
    let other = |(index, directive): (usize, &Directive)| {
        let platforms = platforms(image, directive.compatibility_mask());
        Some(Other { index, what: words(directive)?, platforms })
    };
    let vcpu = |(index, directive): (usize, &Directive)| {
        CpuState::of(index, directive, platforms(image, directive.compatibility_mask()))
    };
    Summary {
        version: image.version(),
        architecture: image.architecture(),
        bytes: image.bytes(),
        platforms: image
            .platforms()
            .map(|(platform, header)| supported(platform, header))
            .collect(),
        initializations: initializations(image),
        ranges: ranges::ranges(image),
        others: directives().filter_map(other).collect(),
        vcpus: directives().filter_map(vcpu).collect(),
        digests: digests(image),
        skipped: image.skipped().collect(),
    }
}

fn supported(platform: Platform, header: &igvm_defs::IGVM_VHS_SUPPORTED_PLATFORM) -> Supported {
    Supported {
        platform,
        mask: header.compatibility_mask,
        version: header.platform_version,
        highest_vtl: header.highest_vtl,
        shared_gpa_boundary: header.shared_gpa_boundary,
    }
}

/// Returns the platforms of a mask, or all platforms without one.
pub(crate) fn platforms(image: &Image, mask: Option<u32>) -> Vec<Platform> {
    let mask = mask.unwrap_or(u32::MAX);
    let chosen = image.platforms().filter(|(_, header)| header.compatibility_mask & mask != 0);
    chosen.map(|(platform, _)| platform).collect()
}

/// Returns the digests of a file that can be computed.
pub fn digests(image: &Image) -> Vec<Measurement> {
    let mut digests = Vec::new();
    for (platform, _) in image.platforms() {
        let loaders = if platform == Platform::Snp { &Loader::ALL[..] } else { &[Loader::Kvm] };
        digests.extend(loaders.iter().filter_map(|loader| measure(image, platform, *loader).ok()));
    }
    digests
}

fn initializations(image: &Image) -> Vec<Other> {
    let headers = image.initializations().iter().enumerate();
    let said = headers.map(|(index, header)| {
        let (what, mask) = match header {
            Initialization::GuestPolicy { policy, compatibility_mask } => {
                (format!("guest policy {policy:#x}"), *compatibility_mask)
            }
            Initialization::RelocatableRegion {
                relocation_region_gpa: gpa,
                relocation_region_size: bytes,
                compatibility_mask,
                ..
            } => {
                (format!("relocatable region of {bytes:#x} bytes at {gpa:#x}"), *compatibility_mask)
            }
            Initialization::PageTableRelocationRegion { gpa, size, compatibility_mask, .. } => {
                (format!("page tables that move, {size:#x} bytes at {gpa:#x}"), *compatibility_mask)
            }
            Initialization::CcaPolicy { compatibility_mask, .. } => {
                ("CCA policy".to_owned(), *compatibility_mask)
            }
            #[allow(unreachable_patterns, reason = "a feature of the igvm crate adds more")]
            _ => ("another header".to_owned(), u32::MAX),
        };
        Other { index, what, platforms: platforms(image, Some(mask)) }
    });
    said.collect()
}

/// Describes a directive that adds no memory.
fn words(directive: &Directive) -> Option<String> {
    let parameter = |what: &str, at: &igvm_defs::IGVM_VHS_PARAMETER| {
        let (area, offset) = (at.parameter_area_index, at.byte_offset);
        Some(format!("{what} into parameter area {area} at byte {offset:#x}"))
    };
    match directive {
        Directive::ParameterArea { number_of_bytes, parameter_area_index, .. } => {
            Some(format!("parameter area {parameter_area_index} of {number_of_bytes:#x} bytes"))
        }
        Directive::VpCount(at) => parameter("number of vCPUs", at),
        Directive::EnvironmentInfo(at) => parameter("environment", at),
        Directive::Srat(at) => parameter("SRAT", at),
        Directive::Madt(at) => parameter("MADT", at),
        Directive::Slit(at) => parameter("SLIT", at),
        Directive::Pptt(at) => parameter("PPTT", at),
        Directive::MmioRanges(at) => parameter("MMIO ranges", at),
        Directive::MemoryMap(at) => parameter("memory map", at),
        Directive::CommandLine(at) => parameter("command line", at),
        Directive::DeviceTree(at) => parameter("device tree", at),
        Directive::SnpIdBlock { ld, .. } => {
            Some(format!("SNP ID block for the launch digest {}", crate::measure::hex(ld)))
        }
        Directive::VbsMeasurement { .. } => Some("VBS measurement".to_owned()),
        _ => None,
    }
}

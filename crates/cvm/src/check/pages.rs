//! Memory: overlaps, addresses, and parameters that exceed their area.

use std::collections::{BTreeMap, HashMap};

use igvm::IgvmDirectiveHeader as Directive;
use igvm_defs::IGVM_VHS_PARAMETER;

use super::{Found, Report, Severity, Subject};
use crate::PAGE_BYTES;
use crate::image::Image;

/// The most bits that any processor's physical addresses have.
const ADDRESS_BITS: u32 = 52;

/// Returns the memory that a directive fills: its first address and its bytes.
fn filled(directive: &Directive, areas: &HashMap<u32, u64>) -> Option<(u64, u64)> {
    Some(match directive {
        Directive::PageData { gpa, flags, .. } if flags.is_2mb_page() => (*gpa, 1 << 21),
        Directive::PageData { gpa, .. } | Directive::SnpVpContext { gpa, .. } => (*gpa, PAGE_BYTES),
        Directive::ParameterInsert(insert) => {
            (insert.gpa, areas.get(&insert.parameter_area_index).copied().unwrap_or(0))
        }
        _ => return None,
    })
}

/// Returns the bytes of the parameter areas, by their indices.
fn areas(image: &Image) -> HashMap<u32, u64> {
    let area = |directive: &Directive| match directive {
        Directive::ParameterArea { number_of_bytes, parameter_area_index, .. } => {
            Some((*parameter_area_index, *number_of_bytes))
        }
        _ => None,
    };
    image.directives().iter().filter_map(area).collect()
}

/// Reports pages that two directives fill, because firmware refuses the second.
pub fn overlaps(subject: &Subject, found: &mut Found) {
    let areas = areas(subject.image);
    let mut known: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for (index, directive) in subject.directives() {
        let Some((start, bytes)) = filled(directive, &areas).filter(|(_, bytes)| *bytes > 0) else {
            continue;
        };
        let end = start.saturating_add(bytes);
        let before =
            known.range(..end).next_back().filter(|(_, (known_end, _))| *known_end > start);
        if let Some((other, (_, by))) = before {
            let what = format!(
                "{start:#x} to {end:#x} overlaps what directive {by} puts at {other:#x}: a page \
                 can be added only once"
            );
            found.error(Some(index), what);
        }
        known.insert(start, (end, index));
    }
}

/// Reports addresses that no processor has.
pub fn addresses(subject: &Subject, found: &mut Found) {
    let areas = areas(subject.image);
    for (index, directive) in subject.directives() {
        let memory = match directive {
            Directive::RequiredMemory { gpa, number_of_bytes, .. } => {
                Some((*gpa, u64::from(*number_of_bytes)))
            }
            _ => filled(directive, &areas),
        };
        let Some((start, bytes)) = memory else { continue };
        if start.saturating_add(bytes) > 1 << ADDRESS_BITS {
            found.error(
                Some(index),
                format!("{start:#x} is beyond the {ADDRESS_BITS} bits of addresses"),
            );
        }
    }
}

/// Reports parameters that exceed their area.
pub fn parameters(image: &Image, report: &mut Report) {
    let areas = areas(image);
    for (index, directive) in image.directives().iter().enumerate() {
        let Some((at, bytes)) = parameter(directive) else { continue };
        let area = areas.get(&at.parameter_area_index).copied().unwrap_or(0);
        let end = u64::from(at.byte_offset) + bytes;
        if end > area {
            let what = format!(
                "a parameter of at least {bytes} bytes at {:#x} does not fit into parameter area \
                 {} of {area:#x} bytes",
                at.byte_offset, at.parameter_area_index
            );
            report.add(Severity::Error, None, Some(index), what);
        }
    }
}

/// Returns the place of a parameter, and the least number of bytes that it has.
fn parameter(directive: &Directive) -> Option<(&IGVM_VHS_PARAMETER, u64)> {
    Some(match directive {
        Directive::VpCount(at) | Directive::EnvironmentInfo(at) => (at, 4),
        // The list has at least one entry of 24 bytes.
        Directive::MemoryMap(at) => (at, 24),
        Directive::MmioRanges(at) => (at, 32),
        Directive::CommandLine(at) => (at, 1),
        // The header of an ACPI table.
        Directive::Srat(at) | Directive::Madt(at) | Directive::Slit(at) | Directive::Pptt(at) => {
            (at, 36)
        }
        // The header of a device tree.
        Directive::DeviceTree(at) => (at, 40),
        _ => return None,
    })
}

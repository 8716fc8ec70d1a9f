//! Memory ranges, with adjoining ranges of one kind merged.

use igvm::IgvmDirectiveHeader as Directive;
use igvm_defs::{IgvmPageDataFlags, IgvmPageDataType};

use super::{Range, platforms};
use crate::PAGE_BYTES;
use crate::image::Image;

/// Returns the ranges of memory, with adjoining ranges of one kind merged.
pub fn ranges(image: &Image) -> Vec<Range> {
    let mut areas = std::collections::HashMap::new();
    let mut ranges: Vec<Range> = Vec::new();
    for (index, directive) in image.directives().iter().enumerate() {
        if let Directive::ParameterArea { number_of_bytes, parameter_area_index, initial_data } =
            directive
        {
            areas.insert(*parameter_area_index, (*number_of_bytes, !initial_data.is_empty()));
        }
        let area = |index: &u32| areas.get(index).copied().unwrap_or_default();
        let Some((start, bytes, kind, measured, data)) = memory(directive, area) else { continue };
        let end = start.saturating_add(bytes);
        let platforms = platforms(image, directive.compatibility_mask());
        let joins = |last: &&mut Range| {
            let same = (last.kind, last.measured, last.data) == (kind, measured, data);
            same && last.end == start
                && last.directive + last.directives == index
                && last.platforms == platforms
        };
        match ranges.last_mut().filter(joins) {
            Some(last) => {
                last.end = end;
                last.bytes += bytes;
                last.directives += 1;
            }
            None => ranges.push(Range {
                start,
                end,
                bytes,
                kind,
                measured,
                data,
                platforms,
                directive: index,
                directives: 1,
            }),
        }
    }
    ranges
}

type Memory = (u64, u64, &'static str, &'static str, bool);

/// Returns address, bytes, kind, the measured part, and whether the file has data for the range.
fn memory(directive: &Directive, area: impl Fn(&u32) -> (u64, bool)) -> Option<Memory> {
    Some(match directive {
        Directive::PageData { gpa, flags, data_type, data, .. } => {
            let (kind, measured) = page(*flags, *data_type);
            let bytes = if flags.is_2mb_page() { 1 << 21 } else { PAGE_BYTES };
            (*gpa, bytes, kind, measured, !data.is_empty())
        }
        Directive::ParameterInsert(insert) => {
            let (bytes, data) = area(&insert.parameter_area_index);
            (insert.gpa, bytes, "parameters", "address", data)
        }
        Directive::SnpVpContext { gpa, .. } => (*gpa, PAGE_BYTES, "vmsa", "contents", true),
        Directive::RequiredMemory { gpa, number_of_bytes, .. } => {
            (*gpa, u64::from(*number_of_bytes), "required", "no", false)
        }
        Directive::ErrorRange { gpa, size_bytes, .. } => {
            (*gpa, u64::from(*size_bytes), "error", "no", false)
        }
        _ => return None,
    })
}

fn page(flags: IgvmPageDataFlags, kind: IgvmPageDataType) -> (&'static str, &'static str) {
    let name = match kind {
        IgvmPageDataType::SECRETS => "secrets",
        IgvmPageDataType::CPUID_DATA => "cpuid",
        IgvmPageDataType::CPUID_XF => "cpuid-xf",
        _ => "normal",
    };
    match name {
        _ if flags.shared() => (name, "no"),
        "normal" if !flags.unmeasured() => (name, "contents"),
        _ => (name, "address"),
    }
}

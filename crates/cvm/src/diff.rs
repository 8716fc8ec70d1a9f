//! The differences between two files.

use std::collections::BTreeMap;

use igvm::IgvmInitializationHeader;
use serde::Serialize;

use crate::cpu::CpuState;
use crate::image::Image;
use crate::measure::{Measurement, Page, pages};
use crate::platform::Platform;
use crate::show::{self, Summary, digests};
use crate::snp::PageType;
use crate::{PAGE_BYTES, as_hex};

/// The differences, as `unspin igvm diff --json` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Whether the guests are the same: loaders do the same for both files, in the same order.
    pub same: bool,
    /// The first directive that differs; `null` if none does.
    pub first: Option<First>,
    /// Differing headers, registers and directives without memory, in words.
    pub headers: Vec<Header>,
    /// Ranges of memory that differ.
    pub ranges: Vec<Range>,
    /// Digests that differ.
    pub digests: Vec<Digests>,
}

/// The first directive that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct First {
    /// The directive's index in both files.
    pub directive: usize,
    /// The byte at which the directive's header begins in the first file; `null` if it has none.
    pub offset_a: Option<usize>,
    /// The same byte in the second file.
    pub offset_b: Option<usize>,
}

/// A header that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Header {
    /// The header's name.
    pub what: String,
    /// The header's value in the first file; `null` if the file has none.
    pub a: Option<String>,
    /// The header's value in the second file.
    pub b: Option<String>,
}

/// A range of memory that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The platform, of those of the first file.
    pub platform: Platform,
    /// The first address.
    #[serde(serialize_with = "as_hex")]
    pub start: u64,
    /// The address after the last.
    #[serde(serialize_with = "as_hex")]
    pub end: u64,
    /// `only in a`, `only in b`, `kind`, or `contents`.
    pub how: &'static str,
    /// The first byte that differs, if contents do.
    pub first_byte: Option<String>,
}

/// A digest that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Digests {
    /// The digest of the first file; `null` if the file is not for this platform.
    pub a: Option<Measurement>,
    /// The digest of the second file.
    pub b: Option<Measurement>,
}

/// Compares two files.
pub fn differences(a: &Image, b: &Image) -> Differences {
    let (one, other) = (show::summary(a), show::summary(b));
    let first = first(a, b);
    let mut headers = headers(&one, &other);
    headers.extend(unsaid(a, b, &headers));
    let ranges: Vec<Range> = pairs(a, b).into_iter().flat_map(|pair| memory(a, b, pair)).collect();
    let same = first.is_none() && headers.is_empty() && ranges.is_empty();
    Differences { same, first, headers, ranges, digests: of_digests(&digests(a), &digests(b)) }
}

/// Returns the platforms that both files are for, or the first platform of each if there are none.
fn pairs(a: &Image, b: &Image) -> Vec<(Platform, Platform)> {
    let all = |image: &Image| image.platforms().map(|(platform, _)| platform).collect::<Vec<_>>();
    let (of_a, of_b) = (all(a), all(b));
    let mut both: Vec<_> =
        of_a.iter().filter(|platform| of_b.contains(platform)).map(|both| (*both, *both)).collect();
    if both.is_empty() {
        both.extend(of_a.first().copied().zip(of_b.first().copied()));
    }
    both
}

fn first(a: &Image, b: &Image) -> Option<First> {
    let longest = a.directives().len().max(b.directives().len());
    let differs = |index: &usize| a.directives().get(*index) != b.directives().get(*index);
    let directive = (0..longest).find(differs)?;
    Some(First { directive, offset_a: a.offset(directive), offset_b: b.offset(directive) })
}

/// Compares initialization headers in the properties that a summary omits.
fn unsaid(a: &Image, b: &Image, said: &[Header]) -> Vec<Header> {
    let (a, b) = (a.initializations(), b.initializations());
    let differs = |index: &usize| a.get(*index) != b.get(*index);
    let words = |header: Option<&IgvmInitializationHeader>| header.map(|it| format!("{it:?}"));
    (0..a.len().max(b.len()))
        .filter(differs)
        .map(|index| Header {
            what: format!("initialization {index}"),
            a: words(a.get(index)),
            b: words(b.get(index)),
        })
        .filter(|header| said.iter().all(|known| known.what != header.what))
        .collect()
}

/// Compares everything that is not memory.
fn headers(a: &Summary, b: &Summary) -> Vec<Header> {
    let mut found = Vec::new();
    let mut compare = |what: &str, a: Option<String>, b: Option<String>| {
        if a != b {
            found.push(Header { what: what.to_owned(), a, b });
        }
    };
    compare("version", Some(a.version.to_string()), Some(b.version.to_string()));
    compare("architecture", Some(a.architecture.into()), Some(b.architecture.into()));
    for platform in Platform::ALL {
        let of = |summary: &Summary| {
            let found = summary.platforms.iter().find(|known| known.platform == platform)?;
            let shared = match found.shared_gpa_boundary {
                0 => String::new(),
                boundary => format!(", shared from {boundary:#x}"),
            };
            Some(format!("VTL {}{shared}", found.highest_vtl))
        };
        compare(&format!("platform {platform}"), of(a), of(b));
    }
    let lists = [
        ("initialization", &a.initializations, &b.initializations),
        ("other directive", &a.others, &b.others),
    ];
    for (what, a, b) in lists {
        for index in 0..a.len().max(b.len()) {
            let of = |list: &[show::Other]| list.get(index).map(|other| other.what.clone());
            compare(&format!("{what} {index}"), of(a), of(b));
        }
    }
    for (a, b) in vcpus(a, b) {
        registers(a, b, &mut compare);
    }
    found
}

/// Pairs the vCPUs of both files by platforms and number.
fn vcpus<'a>(
    a: &'a Summary,
    b: &'a Summary,
) -> impl Iterator<Item = (Option<&'a CpuState>, Option<&'a CpuState>)> {
    let mut pairs: BTreeMap<_, (Option<&CpuState>, Option<&CpuState>)> = BTreeMap::new();
    for vcpu in &a.vcpus {
        pairs.entry((&vcpu.platforms, vcpu.vp_index)).or_default().0 = Some(vcpu);
    }
    for vcpu in &b.vcpus {
        pairs.entry((&vcpu.platforms, vcpu.vp_index)).or_default().1 = Some(vcpu);
    }
    pairs.into_values()
}

fn registers(
    a: Option<&CpuState>,
    b: Option<&CpuState>,
    compare: &mut impl FnMut(&str, Option<String>, Option<String>),
) {
    let Some(known) = a.or(b) else { return };
    let names = known.platforms.iter().map(|platform| platform.name()).collect::<Vec<_>>();
    let vcpu = format!("{} vCPU {}", names.join(", "), known.vp_index);
    if a.is_none() || b.is_none() {
        return compare(&vcpu, a.map(|a| a.mode.into()), b.map(|b| b.mode.into()));
    }
    for (name, _) in &known.registers {
        let of = |cpu: Option<&CpuState>| cpu.map(|cpu| format!("{:#x}", cpu.get(name)));
        compare(&format!("{vcpu} {name}"), of(a), of(b));
    }
}

/// Compares the memory of one platform of each file. Skips a file that cannot be measured.
fn memory(a: &Image, b: &Image, (platform, other): (Platform, Platform)) -> Vec<Range> {
    let (Ok(a), Ok(b)) = (pages(a, platform), pages(b, other)) else { return vec![] };
    let mut both: BTreeMap<u64, (Option<&Page>, Option<&Page>)> = BTreeMap::new();
    a.iter().for_each(|page| both.entry(page.gpa).or_default().0 = Some(page));
    b.iter().for_each(|page| both.entry(page.gpa).or_default().1 = Some(page));
    let mut ranges: Vec<Range> = Vec::new();
    for (gpa, (a, b)) in both {
        let Some((how, first_byte)) = page(a, b) else { continue };
        let end = gpa.saturating_add(PAGE_BYTES);
        match ranges.last_mut().filter(|last| last.end == gpa && last.how == how) {
            Some(last) => last.end = end,
            None => {
                let first_byte = first_byte.map(|at| format!("{:#x}", gpa + at));
                ranges.push(Range { platform, start: gpa, end, how, first_byte });
            }
        }
    }
    ranges
}

/// Returns how two pages differ, and the first byte that does.
fn page(a: Option<&Page>, b: Option<&Page>) -> Option<(&'static str, Option<u64>)> {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (Some(_), None) => return Some(("only in a", None)),
        (None, _) => return Some(("only in b", None)),
    };
    // The presence of zeros in the file makes a difference to loaders.
    let kind =
        |page: &Page| -> (PageType, bool, bool) { (page.kind, page.measured, page.has_data()) };
    if kind(a) != kind(b) {
        return Some(("kind", None));
    }
    let pairs = a.contents().iter().zip(b.contents());
    let first = (0u64..).zip(pairs).find(|(_, (a, b))| a != b)?.0;
    Some(("contents", Some(first)))
}

fn of_digests(a: &[Measurement], b: &[Measurement]) -> Vec<Digests> {
    let key = |of: &Measurement| (of.platform, of.loader.map(|loader| loader.name()));
    let mut pairs: BTreeMap<_, (Option<&Measurement>, Option<&Measurement>)> = BTreeMap::new();
    a.iter().for_each(|digest| pairs.entry(key(digest)).or_default().0 = Some(digest));
    b.iter().for_each(|digest| pairs.entry(key(digest)).or_default().1 = Some(digest));
    let differ = pairs.into_values().filter(|(a, b)| a.map(|a| &a.digest) != b.map(|b| &b.digest));
    differ.map(|(a, b)| Digests { a: a.cloned(), b: b.cloned() }).collect()
}

//! IGVM files, their digests and their errors, for the terminal.

use unspin_cvm::check::{Report, Severity};
use unspin_cvm::cpu::CpuState;
use unspin_cvm::diff::{Differences, Header};
use unspin_cvm::measure::Measurement;
use unspin_cvm::platform::Platform;
use unspin_cvm::show::{Other, Range, Summary};

use crate::columns::{printable, table};
use crate::format::{count, plural};

/// Number of registers in a line.
const REGISTERS: usize = 4;

/// Returns the description of a file, with a closing newline.
pub fn show(summary: &Summary) -> String {
    let mut parts = vec![
        printable(&format!(
            "IGVM version {}, {}, {} bytes",
            summary.version,
            summary.architecture,
            count(summary.bytes)
        )) + "\n",
        platforms(summary),
    ];
    for others in [&summary.initializations, &summary.others] {
        if !others.is_empty() {
            parts.push(words(others));
        }
    }
    if !summary.ranges.is_empty() {
        parts.push(ranges(&summary.ranges));
    }
    parts.extend(summary.vcpus.iter().map(vcpu));
    if !summary.digests.is_empty() {
        parts.push(digests(&summary.digests));
    }
    if !summary.skipped.is_empty() {
        let skipped = summary.skipped.iter();
        let lines =
            skipped.map(|(at, kind)| format!("passed over: type {kind:#x} at byte {at:#x}\n"));
        parts.push(lines.collect());
    }
    parts.join("\n")
}

fn platforms(summary: &Summary) -> String {
    let row = |it: &unspin_cvm::show::Supported| {
        let shared = match it.shared_gpa_boundary {
            0 => "-".to_owned(),
            boundary => format!("{boundary:#x}"),
        };
        let name = it.platform.name().to_owned();
        vec![
            name,
            format!("{:#x}", it.mask),
            it.version.to_string(),
            it.highest_vtl.to_string(),
            shared,
        ]
    };
    let head = ["platform", "mask", "version", "highest VTL", "shared from"];
    table(&head, &[], summary.platforms.iter().map(row).collect())
}

fn words(others: &[Other]) -> String {
    let line = |other: &Other| format!("{}: {}\n", names(&other.platforms), printable(&other.what));
    others.iter().map(line).collect()
}

fn names(platforms: &[Platform]) -> String {
    platforms.iter().map(|platform| platform.name()).collect::<Vec<_>>().join(", ")
}

fn ranges(ranges: &[Range]) -> String {
    let row = |range: &Range| {
        let last = range.directive + range.directives - 1;
        let directives = match range.directives {
            1 => last.to_string(),
            _ => format!("{}-{last}", range.directive),
        };
        vec![
            format!("{:#x}", range.start),
            format!("{:#x}", range.end),
            count(range.bytes / 1024),
            range.kind.to_owned(),
            if range.data { "yes" } else { "no" }.to_owned(),
            range.measured.to_owned(),
            directives,
            names(&range.platforms),
        ]
    };
    let head = ["memory", "to", "KiB", "kind", "data", "measured", "directives", "platforms"];
    table(&head, &["kind", "data", "measured", "platforms"], ranges.iter().map(row).collect())
}

fn vcpu(vcpu: &CpuState) -> String {
    let mut out = format!(
        "vCPU {} ({}) starts in {} mode:\n",
        vcpu.vp_index,
        names(&vcpu.platforms),
        vcpu.mode
    );
    // All registers that hold a value, and always the address at which the vCPU starts.
    let said: Vec<String> = vcpu
        .registers
        .iter()
        .filter(|(name, value)| *value != 0 || *name == "rip")
        .map(|(name, value)| format!("{name} {value:#x}"))
        .collect();
    for line in said.chunks(REGISTERS) {
        out += &format!("  {}\n", line.join("  "));
    }
    out
}

/// Returns digests, a line each, with a closing newline.
pub fn digests(digests: &[Measurement]) -> String {
    let row = |it: &Measurement| {
        let loader = it.loader.map_or("any", |loader| loader.name());
        vec![it.platform.name().to_owned(), loader.to_owned(), it.digest.clone()]
    };
    table(
        &["platform", "loader", "digest"],
        &["loader", "digest"],
        digests.iter().map(row).collect(),
    )
}

/// Returns the differences between two files, with a closing newline.
pub fn diff(found: &Differences) -> String {
    if found.same {
        return "The files make the same guest.\n".to_owned();
    }
    let mut parts = Vec::new();
    if let Some(first) = &found.first {
        let at =
            |offset: Option<usize>| offset.map_or("no byte".into(), |at| format!("byte {at:#x}"));
        parts.push(format!(
            "The first difference is directive {}, at {} of A and {} of B.\n",
            first.directive,
            at(first.offset_a),
            at(first.offset_b)
        ));
    }
    if !found.headers.is_empty() {
        let text = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".to_owned());
        let row = |it: &Header| vec![it.what.clone(), text(&it.a), text(&it.b)];
        parts.push(table(
            &["header", "A", "B"],
            &["A", "B"],
            found.headers.iter().map(row).collect(),
        ));
    }
    if !found.ranges.is_empty() {
        let row = |it: &unspin_cvm::diff::Range| {
            let first = it.first_byte.clone().unwrap_or_else(|| "-".to_owned());
            let platform = it.platform.name().to_owned();
            vec![
                format!("{:#x}", it.start),
                format!("{:#x}", it.end),
                it.how.to_owned(),
                first,
                platform,
            ]
        };
        let head = ["memory", "to", "differs by", "first byte", "platform"];
        let words = ["differs by", "platform"];
        parts.push(table(&head, &words, found.ranges.iter().map(row).collect()));
    }
    let sides = |it: &unspin_cvm::diff::Digests| {
        let side = |name: &str, of: &Option<Measurement>| {
            let of = of.as_ref()?;
            let loader = of.loader.map_or("any", |loader| loader.name());
            Some(vec![
                name.to_owned(),
                of.platform.name().to_owned(),
                loader.to_owned(),
                of.digest.clone(),
            ])
        };
        [side("A", &it.a), side("B", &it.b)].into_iter().flatten().collect::<Vec<_>>()
    };
    let rows: Vec<_> = found.digests.iter().flat_map(sides).collect();
    if !rows.is_empty() {
        let head = ["file", "platform", "loader", "digest"];
        parts.push(table(&head, &head[1..], rows));
    }
    parts.join("\n")
}

/// Returns the errors and notes on a file, with a closing newline.
pub fn check(report: &Report) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Note => "note",
        };
        out += severity;
        if let Some(platform) = finding.platform {
            out += &format!(", {platform}");
        }
        if let Some(directive) = finding.directive {
            out += &format!(", directive {directive}");
        }
        out += &format!(": {}\n", printable(&finding.what));
    }
    let listed = report.findings.len();
    let all = report.errors + report.notes;
    if all > listed {
        out += &format!("{} more are not listed.\n", count((all - listed) as u64));
    }
    let errors = plural(report.errors as u64, "error", "errors");
    out + &printable(
        &format!("{errors}, {}\n", plural(report.notes as u64, "note", "notes")).replace('\n', ""),
    ) + "\n"
}

//! Pause-loop storms for the terminal.

use unspin_trace::storms::{Distribution, LeftOut, Storm, Storms};

use crate::columns::{printable, table};
use crate::format::{count, number, percent, plural, time};

/// Maximum number of places and vCPUs that are listed.
const ROWS: usize = 10;
/// Title of a column of words.
const PLACE: &str = "place";

/// Returns the storms as text, with a closing newline.
pub fn text(storms: &Storms) -> String {
    let mut parts = vec![opening(storms)];
    if storms.storms > 0 {
        parts.push(distributions(storms));
    }
    if storms.pause_exits > 0 {
        parts.push(places(storms));
        parts.push(vcpus(storms));
    }
    if !storms.longest.is_empty() {
        parts.push(longest(&storms.longest));
    }
    parts.join("\n")
}

fn opening(storms: &Storms) -> String {
    let mut out = format!(
        "{} of {} in {}, {} of them by PAUSE.\n",
        plural(storms.exits, "exit", "exits"),
        plural(storms.vcpus.len() as u64, "vCPU", "vCPUs"),
        time(storms.span_s),
        count(storms.pause_exits),
    );
    out += &match storms.storm_share {
        None => "No PAUSE exits: no vCPU spun for long, or pause-loop exiting is off \
                 (kvm_intel.ple_gap=0, kvm_amd.pause_filter_count=0, TDX guests).\n"
            .to_owned(),
        Some(share) => format!(
            "{}: {} of the PAUSE exits, {} of vCPU time.\n",
            plural(storms.storms, "storm", "storms"),
            percent(share),
            time(storms.storm_s),
        ),
    };
    if storms.lines_unknown > 0 {
        let (unknown, lines) = (count(storms.lines_unknown), count(storms.lines));
        out += &format!("{unknown} of {lines} lines are neither kvm_exit nor kvm_entry.\n");
    }
    for (left_out, what) in
        [(storms.disordered, "out of time order"), (storms.repeated, "repeated")]
    {
        if let Some(LeftOut { events, first_line }) = left_out {
            out += &format!(
                "{} {what}, first in line {first_line}, and not used.\n",
                plural(events, "event is", "events are")
            );
        }
    }
    if let Some(LeftOut { events, first_line }) = storms.lost {
        out += &format!(
            "The tracer lost {} or more, first before line {first_line}: storms may be missing or \
             longer. Larger buffers lose fewer (`perf record -m`, `trace-cmd record -b`).\n",
            plural(events, "event", "events")
        );
    }
    if let Some(what) = &storms.incomplete {
        out += &format!("Incomplete: {what}.\n");
    }
    if storms.left_out > 0 {
        out += &format!(
            "{} events of more threads or places were left out.\n",
            count(storms.left_out)
        );
    }
    printable_lines(&out)
}

fn distributions(storms: &Storms) -> String {
    let row = |name: &str, of: Option<Distribution>| {
        let figures = of.map(|d| [d.min, d.p50, d.p90, d.p99, d.max].map(number));
        [vec![name.to_owned()], figures.map(Vec::from).unwrap_or_default()].concat()
    };
    table(
        &["storms", "min", "median", "p90", "p99", "max"],
        &[],
        vec![
            row("PAUSE exits", storms.length),
            row("duration, us", storms.duration_us),
            row("exit to exit, us", storms.apart_us),
        ],
    )
}

fn places(storms: &Storms) -> String {
    let rows =
        storms.places.iter().take(ROWS).map(|place| {
            vec![place.name.clone(), count(place.pause_exits), count(place.storm_exits)]
        });
    table(&[PLACE, "PAUSE exits", "in storms"], &[PLACE], rows.collect())
}

fn vcpus(storms: &Storms) -> String {
    let rows = storms.vcpus.iter().take(ROWS).map(|vcpu| {
        vec![
            vcpu_name(vcpu.tid, vcpu.vcpu),
            count(vcpu.pause_exits),
            count(vcpu.storms),
            time(vcpu.storm_s),
        ]
    });
    table(&["vCPU", "PAUSE exits", "storms", "time in storms"], &[], rows.collect())
}

fn longest(storms: &[Storm]) -> String {
    let rows = storms.iter().map(|storm| {
        vec![
            vcpu_name(storm.tid, storm.vcpu),
            count(storm.length.into()),
            number(storm.duration_us),
            format!("{:.6}", storm.start_s),
            storm.place.clone(),
        ]
    });
    table(&["longest storms", "exits", "us", "at, s", PLACE], &[PLACE], rows.collect())
}

fn vcpu_name(tid: u32, vcpu: Option<u32>) -> String {
    vcpu.map_or_else(|| format!("thread {tid}"), |vcpu| format!("{vcpu} (thread {tid})"))
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| printable(line) + "\n").collect()
}

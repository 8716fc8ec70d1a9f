//! The strip plot of a workload: a point for each run, a row for each cell.

use unspin_model::Better;
use unspin_model::summary::Estimate;

use super::axis;
use super::canvas::{Anchor, Canvas};
use super::scale::Scale;
use crate::format;

/// Distributions of a workload.
pub struct Strip<'a> {
    /// Text for screen readers.
    pub label: String,
    /// Title of the axis, such as `renames, ops/s`.
    pub axis: String,
    /// Unit in tooltips.
    pub unit: &'a str,
    /// The better end of the axis.
    pub better: Better,
    /// One row for each cell.
    pub rows: Vec<StripRow<'a>>,
}

/// Runs of a cell.
pub struct StripRow<'a> {
    /// Name of the place; shown if it differs from that of the row above.
    pub place: String,
    /// The guest scheduler.
    pub scheduler: &'a str,
    /// Colour of the scheduler, a class `s0` to `s5`.
    pub series: usize,
    /// Each run by its block; `None` did not finish.
    pub values: &'a [(u32, Option<f64>)],
    /// Median with its interval.
    pub median: Option<Estimate>,
}

/// Sizes of the plot's parts.
struct Frame {
    class: &'static str,
    width: f64,
    scheduler_x: f64,
    plot_x: (f64, f64),
    /// Number of characters for the place's and the scheduler's names.
    characters: (usize, usize),
    /// Width of the lane of runs that did not finish, and of the gap next to it.
    lane: (f64, f64),
}

const WIDE: Frame = Frame {
    class: "wide",
    width: 880.0,
    scheduler_x: 92.0,
    plot_x: (216.0, 854.0),
    characters: (13, 17),
    lane: (84.0, 22.0),
};
const NARROW: Frame = Frame {
    class: "narrow",
    width: 440.0,
    scheduler_x: 50.0,
    plot_x: (132.0, 416.0),
    characters: (7, 12),
    lane: (46.0, 14.0),
};
const ROW: f64 = 26.0;
const TOP: f64 = 8.0;
/// Factor between runs above which the axis is logarithmic.
const LOG_FACTOR: f64 = 10.0;

/// Positions of the plot's parts.
struct Layout {
    frame: &'static Frame,
    scale: Scale,
    /// Start of the lane of runs that did not finish.
    lane: Option<f64>,
    bottom: f64,
}

/// Draws a workload's distributions twice, for wide and for narrow windows; the
/// page's style sheet shows one of the two.
pub fn strip(strip: &Strip<'_>) -> String {
    [&WIDE, &NARROW].map(|frame| draw(strip, &layout(strip, frame))).concat()
}

fn draw(strip: &Strip<'_>, layout: &Layout) -> String {
    let frame = layout.frame;
    let mut canvas = Canvas::new(frame.class, frame.width, layout.bottom + 42.0, &strip.label);
    draw_ground(&mut canvas, strip, layout);
    let mut place_above = None;
    for (index, row) in strip.rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        if place_above != Some(&row.place) {
            if index > 0 {
                canvas.line("rule", (0.0, y - ROW / 2.0), (frame.plot_x.1, y - ROW / 2.0));
            }
            canvas.label("place", (0.0, y + 4.0), &row.place, frame.characters.0);
            place_above = Some(&row.place);
        }
        let at = (frame.scheduler_x, y + 4.0);
        canvas.label("name", at, row.scheduler, frame.characters.1);
        draw_row(&mut canvas, strip, row, layout, y);
    }
    canvas.finish()
}

fn draw_ground(canvas: &mut Canvas, strip: &Strip<'_>, layout: &Layout) {
    let (width, _) = layout.frame.lane;
    if let Some(x) = layout.lane {
        let size = (width, layout.bottom - TOP);
        canvas.rect("lane", (x, TOP), size, 3.0, "Runs that did not finish in their time limit");
        let text = if width > 80.0 { "did not finish" } else { "no end" };
        canvas.text("tick", (x + width / 2.0, layout.bottom + 15.0), Anchor::Middle, text);
    }
    axis::draw(canvas, &layout.scale, (TOP, layout.bottom), "");
    let (start, end) = layout.scale.positions;
    let middle = ((start + end) / 2.0, layout.bottom + 35.0);
    canvas.text("axis", middle, Anchor::Middle, &axis_title(strip, layout.scale.log));
}

fn axis_title(strip: &Strip<'_>, log: bool) -> String {
    let log = if log { ", log scale" } else { "" };
    match strip.better {
        Better::Higher => format!("{}{log} (more is better →)", strip.axis),
        Better::Lower => format!("(← less is better) {}{log}", strip.axis),
    }
}

fn layout(strip: &Strip<'_>, frame: &'static Frame) -> Layout {
    let unfinished = strip.rows.iter().flat_map(|r| r.values).any(|(_, v)| v.is_none());
    let (mut x0, mut x1) = frame.plot_x;
    let (width, gap) = frame.lane;
    // The lane lies at the worst end of the axis.
    let lane = match (unfinished, strip.better) {
        (false, _) => None,
        (true, Better::Higher) => {
            x0 += width + gap;
            Some(frame.plot_x.0)
        }
        (true, Better::Lower) => {
            x1 -= width + gap;
            Some(x1 + gap)
        }
    };
    let bottom = TOP + ROW * strip.rows.len() as f64;
    let mut scale = scale(strip, (x0, x1));
    scale.most_ticks = if frame.width < 600.0 { 5 } else { 8 };
    Layout { frame, scale, lane, bottom }
}

fn scale(strip: &Strip<'_>, positions: (f64, f64)) -> Scale {
    let values = || strip.rows.iter().flat_map(|r| r.values).filter_map(|(_, v)| *v);
    let finite = || values().filter(|v| v.is_finite());
    let (min, max) = (finite().fold(f64::INFINITY, f64::min), finite().fold(0.0, f64::max));
    if min > 0.0 && min.is_finite() && max / min > LOG_FACTOR {
        Scale::log(min, max, positions)
    } else {
        Scale::linear(max, positions)
    }
}

fn draw_row(canvas: &mut Canvas, strip: &Strip<'_>, row: &StripRow<'_>, layout: &Layout, y: f64) {
    let class = |kind: &str| format!("{kind} s{}", row.series);
    let tip = |median: &Estimate| {
        let text = format::estimate(median);
        format!("{} {}: median {text} {}", row.place, row.scheduler, strip.unit)
    };
    if let Some(median) = row.median.as_ref().filter(|median| format::has_interval(median)) {
        let (lo, hi) = (layout.scale.at(median.lo), layout.scale.at(median.hi));
        let size = ((hi - lo).max(2.0), 14.0);
        canvas.rect(&class("interval"), (lo, y - 7.0), size, 3.0, &tip(median));
    }
    for (index, (block, value)) in row.values.iter().enumerate() {
        let x = match value {
            Some(value) => layout.scale.at(*value),
            None => lane_x(layout, index, row.values.len()),
        };
        let text = match value {
            Some(value) => format!("{} {}", format::number(*value), strip.unit),
            None => "did not finish".into(),
        };
        let at = (x, y + jitter(index));
        canvas.circle(&class("run"), at, 2.7, &format!("block {block}: {text}"));
    }
    if let Some(median) = &row.median {
        let x = layout.scale.at(median.value);
        canvas.rect(&class("median"), (x - 1.25, y - 9.0), (2.5, 18.0), 1.0, &tip(median));
    }
}

/// Returns an offset from the row's middle that spreads points evenly and is the same each time:
/// multiples of the golden ratio.
fn jitter(index: usize) -> f64 {
    ((index as f64 + 1.0) * 0.618_034).fract() * 13.0 - 6.5
}

/// Returns the position of a run in the lane, where points lie next to each other in the order of
/// their runs.
fn lane_x(layout: &Layout, index: usize, of: usize) -> f64 {
    let start = layout.lane.unwrap_or(layout.frame.plot_x.0);
    start + 8.0 + (layout.frame.lane.0 - 16.0) * (index as f64 + 0.5) / of.max(1) as f64
}

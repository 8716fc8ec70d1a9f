//! The forest plot: ratios with their intervals on a logarithmic axis.

use unspin_model::summary::{Estimate, Verdict};

use super::axis;
use super::canvas::{Anchor, Canvas};
use super::scale::Scale;
use crate::format;

/// One ratio.
pub struct ForestRow {
    /// Name of the workload; shown if it differs from that of the row above.
    pub group: String,
    /// Name of the place.
    pub name: String,
    /// The ratio; `None` if the baseline did not finish.
    pub ratio: Option<Estimate>,
    /// The verdict.
    pub verdict: Verdict,
    /// Text to the right, such as `2.24x [2.10, 2.38]`.
    pub text: String,
}

/// Sizes of the plot's parts.
#[derive(Clone, Copy)]
struct Frame {
    class: &'static str,
    width: f64,
    name_x: f64,
    plot_x: (f64, f64),
    /// Position of the ratios as text; a narrow window has no room for them.
    text_x: Option<f64>,
    /// Number of characters for the group's and the row's names.
    characters: (usize, usize),
}

const WIDE: Frame = Frame {
    class: "wide",
    width: 880.0,
    name_x: 184.0,
    plot_x: (276.0, 684.0),
    text_x: Some(700.0),
    characters: (24, 12),
};
const NARROW: Frame = Frame {
    class: "narrow",
    width: 440.0,
    name_x: 142.0,
    plot_x: (194.0, 424.0),
    text_x: None,
    characters: (18, 7),
};
/// Maximum width of a character of a row's name.
const CHARACTER: f64 = 7.7;
/// Number of characters that longer names than a frame has room for may take from the plot.
const MORE_CHARACTERS: usize = 10;
const ROW: f64 = 20.0;
const TOP: f64 = 24.0;
/// Width of the words next to the line at 1.
const HINT: f64 = 72.0;
/// Factor from 1 up to which a single ratio may stretch the axis.
const LIMIT: f64 = 1000.0;

impl Frame {
    /// Returns the frame with room for the rows' names.
    fn with_room_for(self, rows: &[ForestRow]) -> Frame {
        let (group, name) = self.characters;
        let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let more = if self.text_x.is_none() { 0 } else { longest.saturating_sub(name) };
        let more = more.min(MORE_CHARACTERS);
        let plot_x = (self.plot_x.0 + CHARACTER * more as f64, self.plot_x.1);
        Frame { plot_x, characters: (group, name + more), ..self }
    }
}

/// Draws ratios twice, for wide and for narrow windows; the page's style sheet shows one of the
/// two. A band shows effects within `smallest_effect` of 1, which are not worth reporting.
pub fn forest(label: &str, rows: &[ForestRow], smallest_effect: f64) -> String {
    [&WIDE, &NARROW].map(|frame| draw(label, rows, smallest_effect, frame)).concat()
}

/// Draws ratios once, as a stand-alone image.
pub fn forest_image(label: &str, rows: &[ForestRow]) -> String {
    super::image(&draw(label, rows, 0.0, &WIDE))
}

fn draw(label: &str, rows: &[ForestRow], smallest_effect: f64, frame: &Frame) -> String {
    let frame = &frame.with_room_for(rows);
    let scale = scale(rows, smallest_effect, frame);
    let bottom = TOP + ROW * rows.len() as f64;
    let mut canvas = Canvas::new(frame.class, frame.width, bottom + 24.0, label);
    draw_ground(&mut canvas, &scale, bottom, smallest_effect);
    let mut group_above = None;
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        if group_above != Some(&row.group) {
            if index > 0 {
                canvas.line("rule", (0.0, y - ROW / 2.0), (frame.width, y - ROW / 2.0));
            }
            canvas.label("place", (0.0, y + 4.0), &row.group, frame.characters.0);
            group_above = Some(&row.group);
        }
        canvas.label("name", (frame.name_x, y + 4.0), &row.name, frame.characters.1);
        if let Some(x) = frame.text_x {
            let class = format!("value {}", verdict_class(row.verdict));
            canvas.text(&class, (x, y + 4.0), Anchor::Start, &row.text);
        }
        draw_row(&mut canvas, row, &scale, y);
    }
    canvas.finish()
}

fn scale(rows: &[ForestRow], smallest_effect: f64, frame: &Frame) -> Scale {
    let ends = rows.iter().filter_map(|row| row.ratio).flat_map(|r| [r.lo, r.value, r.hi]);
    let band = 1.0 + smallest_effect.clamp(0.02, 1.0) * 2.0;
    let (mut min, mut max) = (1.0 / band, band);
    for end in ends.filter(|v| v.is_finite() && *v > 0.0) {
        (min, max) = (min.min(end), max.max(end));
    }
    let mut scale = Scale::log(min.max(1.0 / LIMIT), max.min(LIMIT), frame.plot_x);
    scale.most_ticks = if frame.text_x.is_some() { 8 } else { 5 };
    scale
}

fn draw_ground(canvas: &mut Canvas, scale: &Scale, bottom: f64, smallest_effect: f64) {
    let one = scale.at(1.0);
    if smallest_effect > 0.0 && smallest_effect < 1.0 {
        let (lo, hi) = (scale.at(1.0 - smallest_effect), scale.at(1.0 + smallest_effect));
        let tip = format!("within {} of 1: not reported", format::percent(smallest_effect));
        canvas.rect("band", (lo, TOP), (hi - lo, bottom - TOP), 0.0, &tip);
    }
    axis::draw(canvas, scale, (TOP, bottom), "x");
    canvas.line("one", (one, TOP - 4.0), (one, bottom));
    // Each hint is drawn only if it has room; one of the two always has.
    if one - scale.positions.0 > HINT {
        canvas.text("tick", (one - 8.0, 13.0), Anchor::End, "← less work");
    }
    if scale.positions.1 - one > HINT {
        canvas.text("tick", (one + 8.0, 13.0), Anchor::Start, "more work →");
    }
}

fn draw_row(canvas: &mut Canvas, row: &ForestRow, scale: &Scale, y: f64) {
    let class = verdict_class(row.verdict);
    let tip = format!("{} {}: {}, {}", row.group, row.name, row.text, format::verdict(row.verdict));
    let Some(ratio) = row.ratio else {
        // The ratio is unbounded: an arrow at the better end.
        return arrow(canvas, class, scale.positions.1, y, 1.0, &tip);
    };
    if format::has_interval(&ratio) {
        let (lo, hi) = (scale.at(ratio.lo), scale.at(ratio.hi));
        canvas.line(&format!("whisker {class}"), (lo, y), (hi, y));
    }
    if ratio.hi > scale.values.1 {
        arrow(canvas, class, scale.positions.1, y, 1.0, &tip);
    }
    if ratio.lo < scale.values.0 {
        arrow(canvas, class, scale.positions.0, y, -1.0, &tip);
    }
    if scale.holds(ratio.value) {
        canvas.circle(&format!("dot {class}"), (scale.at(ratio.value), y), 4.0, &tip);
    }
}

/// Draws a triangle with its tip on `x`, pointing in `direction` (1 or -1).
fn arrow(canvas: &mut Canvas, class: &str, x: f64, y: f64, direction: f64, tip: &str) {
    let back = x - 8.0 * direction;
    let points = [(x, y), (back, y - 4.5), (back, y + 4.5)];
    canvas.shape(&format!("arrow {class}"), &points, tip);
}

/// Returns the class that colours a verdict.
pub fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifferenceShown | Verdict::TooFewRuns => "none",
    }
}

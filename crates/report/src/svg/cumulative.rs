//! Cumulative distributions: the share of all lengths that do not exceed a length.

use super::axis;
use super::canvas::{Anchor, Canvas};
use super::scale::Scale;
use super::{SERIES, image};

/// One plot of several curves.
pub struct Cumulative {
    /// Text for screen readers.
    pub label: String,
    /// Parts of the plot, from the top; each has the same curves, and its own axis.
    pub panels: Vec<Panel>,
}

/// Distributions of one quantity.
pub struct Panel {
    /// Title of the axis, such as `spins, us`.
    pub axis: String,
    /// One curve for each cell.
    pub curves: Vec<Curve>,
}

/// Lengths of a cell.
pub struct Curve {
    /// Name that distinguishes the cell.
    pub name: String,
    /// Number of the curve, which selects its colour.
    pub series: usize,
    /// Each length, positive, and how often it was measured; in ascending order.
    pub lengths: Vec<(f64, u64)>,
}

/// Sizes of the plot's parts.
struct Frame {
    class: &'static str,
    width: f64,
    plot_x: (f64, f64),
}

const WIDE: Frame = Frame { class: "wide", width: 880.0, plot_x: (52.0, 854.0) };
const NARROW: Frame = Frame { class: "narrow", width: 440.0, plot_x: (46.0, 416.0) };
/// Heights of a panel's parts: above its plot, the plot, and below it.
const ABOVE: f64 = 10.0;
const PLOT: f64 = 170.0;
const BELOW: f64 = 46.0;
/// Sizes in the legend: a row, the coloured sample, and about the width of a character.
const ROW: f64 = 20.0;
const SAMPLE: f64 = 26.0;
const CHARACTER: f64 = 6.8;
/// Share of the shortest lengths that lie at the axis' end: otherwise, a few would take half of the
/// axis.
const SHORTEST: f64 = 0.005;
/// Distance below which steps are drawn as one.
const FINEST: f64 = 1.0;

/// Draws the plot twice, for wide and for narrow windows; the page's style sheet shows one of the
/// two.
pub fn cumulative(plot: &Cumulative) -> String {
    [&WIDE, &NARROW].map(|frame| draw(plot, frame)).concat()
}

/// Draws the wide plot as a stand-alone image.
pub fn cumulative_image(plot: &Cumulative) -> String {
    image(&draw(plot, &WIDE))
}

fn draw(plot: &Cumulative, frame: &Frame) -> String {
    let curves = plot.panels.first().map_or(&[][..], |panel| &panel.curves);
    let places = legend(curves, frame);
    let top = places.last().map_or(0.0, |(_, y)| y + ROW / 2.0);
    let height = top + (ABOVE + PLOT + BELOW) * plot.panels.len() as f64;
    let mut canvas = Canvas::new(frame.class, frame.width, height, &plot.label);
    for (curve, (x, y)) in curves.iter().zip(places) {
        canvas.line(&class(curve), (x, y), (x + SAMPLE - 8.0, y));
        canvas.text("name", (x + SAMPLE, y + 4.0), Anchor::Start, &curve.name);
    }
    for (index, panel) in plot.panels.iter().enumerate() {
        let top = top + (ABOVE + PLOT + BELOW) * index as f64 + ABOVE;
        draw_panel(&mut canvas, panel, frame, top);
    }
    canvas.finish()
}

/// Returns the class of a curve. The curves beyond the number of colours are dashed.
fn class(curve: &Curve) -> String {
    let dashed = if curve.series / SERIES % 2 == 1 { " dashed" } else { "" };
    format!("curve s{}{dashed}", curve.series % SERIES)
}

/// Returns the positions of the legend's entries: as many in a row as fit.
fn legend(curves: &[Curve], frame: &Frame) -> Vec<(f64, f64)> {
    let (start, end) = frame.plot_x;
    let (mut x, mut y) = (start, ROW / 2.0);
    let mut places = Vec::new();
    for curve in curves {
        let width = SAMPLE + curve.name.chars().count() as f64 * CHARACTER + 16.0;
        if x > start && x + width > end {
            (x, y) = (start, y + ROW);
        }
        places.push((x, y));
        x += width;
    }
    places
}

fn draw_panel(canvas: &mut Canvas, panel: &Panel, frame: &Frame, top: f64) {
    let bottom = top + PLOT;
    let height = |share: f64| bottom - share * PLOT;
    let (start, end) = frame.plot_x;
    for percent in [0, 25, 50, 75, 100] {
        let y = height(f64::from(percent) / 100.0);
        canvas.line("grid", (start, y), (end, y));
        canvas.text("tick", (start - 6.0, y + 4.0), Anchor::End, &format!("{percent} %"));
    }
    let scale = scale(panel, frame);
    axis::draw(canvas, &scale, (top, bottom), "");
    canvas.text("axis", ((start + end) / 2.0, bottom + 35.0), Anchor::Middle, &panel.axis);
    for curve in &panel.curves {
        let points: Vec<_> = steps(&curve.lengths, &scale)
            .into_iter()
            .map(|(x, share)| (x, height(share)))
            .collect();
        canvas.path(&class(curve), &points, &curve.name);
    }
}

fn scale(panel: &Panel, frame: &Frame) -> Scale {
    let (mut min, mut max) = (f64::INFINITY, 0.0_f64);
    for curve in panel.curves.iter().filter(|curve| !curve.lengths.is_empty()) {
        min = min.min(shortest(&curve.lengths));
        max = curve.lengths.iter().fold(max, |max, (length, _)| max.max(*length));
    }
    let (min, max) = if min > 0.0 && min < max { (min, max) } else { (1.0, 10.0) };
    let mut scale = Scale::log(min, max, frame.plot_x);
    scale.most_ticks = if frame.width > 500.0 { 8 } else { 5 };
    scale
}

/// Returns the length at which the axis of a distribution begins.
fn shortest(lengths: &[(f64, u64)]) -> f64 {
    let all: u64 = lengths.iter().map(|(_, count)| count).sum();
    let mut seen = 0;
    let first = lengths.iter().find(|(_, count)| {
        seen += count;
        seen as f64 > all as f64 * SHORTEST
    });
    first.map_or(1.0, |(length, _)| *length)
}

/// Returns the corners of a distribution: positions, each with a share. Steps that are close
/// together are merged.
fn steps(lengths: &[(f64, u64)], scale: &Scale) -> Vec<(f64, f64)> {
    let all: u64 = lengths.iter().map(|(_, count)| count).sum();
    let mut points = vec![(scale.positions.0, 0.0)];
    let (mut seen, mut share) = (0, 0.0);
    for (length, count) in lengths {
        seen += count;
        let x = scale.at(*length);
        let last = points[points.len() - 1];
        let now = seen as f64 / all as f64;
        if x - last.0 >= FINEST {
            points.extend([(x, share), (x, now)]);
        } else {
            points.pop();
            points.push((last.0, now));
        }
        share = now;
    }
    points.push((scale.positions.1, share));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, lengths: &[(f64, u64)]) -> Curve {
        Curve { name: name.into(), series: 1, lengths: lengths.to_vec() }
    }

    #[test]
    fn a_step_is_where_a_length_is_and_as_high_as_its_share() {
        let lengths = [(1.0, 1), (10.0, 2), (100.0, 1)];
        let scale =
            Scale { log: true, values: (1.0, 100.0), positions: (0.0, 20.0), most_ticks: 8 };
        let corners = [(0.0, 0.25), (10.0, 0.25), (10.0, 0.75), (20.0, 0.75), (20.0, 1.0)];
        assert_eq!(steps(&lengths, &scale)[..5], corners);
        assert_eq!(steps(&[], &scale), [(0.0, 0.0), (20.0, 0.0)]);
    }

    #[test]
    fn an_image_has_each_curve_in_each_panel_and_one_legend() {
        let panel = |axis: &str| Panel {
            axis: axis.into(),
            curves: vec![
                curve("alone", &[(3.0, 5), (40.0, 5)]),
                curve("helped", &[(2.0, 9), (900.0, 1)]),
            ],
        };
        let label = "Waits".into();
        let image =
            cumulative_image(&Cumulative { label, panels: vec![panel("a, us"), panel("b")] });
        assert_eq!(image.matches("<path class=\"curve s1\"").count(), 4);
        assert_eq!(image.matches(">alone</text>").count(), 1);
        for part in ["<style>", ">a, us</text>", ">50 %</text>", ">100</text>"] {
            assert!(image.contains(part), "{part}: {image}");
        }
        assert!(!image.contains("NaN"), "{image}");
    }

    #[test]
    fn the_axis_starts_where_the_distribution_does() {
        assert_eq!(shortest(&[(0.001, 1), (5.0, 500), (9.0, 500)]), 5.0);
        assert_eq!(shortest(&[(0.5, 1), (5.0, 3)]), 0.5);
        let empty = Panel { axis: String::new(), curves: vec![curve("none", &[])] };
        assert!(scale(&empty, &NARROW).at(5.0).is_finite());
    }
}

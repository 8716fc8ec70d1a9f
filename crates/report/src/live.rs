//! `unspin watch` on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use unspin_trace::digest::Digest;
use unspin_trace::live::{Live, Slice};

use crate::format::number;
use crate::session::{causes, sites};

/// Columns for a vCPU's number and its figure.
const HEAD: u16 = 18;
/// Lines that the tables below the lanes should have.
const TABLES: u16 = 11;

/// What the user chose to see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct View {
    /// The first vCPU that is shown, in the order of the lanes.
    pub first: usize,
    /// Those that were off most come first.
    pub worst_first: bool,
    /// The picture stands still.
    pub paused: bool,
}

/// Draws all of it. `machine` says in a few words what the guest is.
pub fn draw(frame: &mut Frame, live: &Live, view: View, machine: &str) {
    let digest = live.digest();
    let lanes_wanted = live.vcpus().saturating_add(2);
    let tables = if digest.causes.is_empty() { 2 } else { TABLES };
    let [head, lanes, below, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Max(lanes_wanted),
        Constraint::Min(tables.min(frame.area().height / 2)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(live, &digest, machine), head);
    draw_lanes(frame, lanes, live, &digest, view);
    frame.render_widget(figures(&digest), below);
    frame.render_widget(footer(view), keys);
}

fn heading(live: &Live, digest: &Digest, machine: &str) -> Paragraph<'static> {
    let off_s: f64 = digest.off.iter().map(|vcpu| vcpu.off_s).sum();
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let seconds = digest.seconds.max(1e-9);
    let longest = digest.off_ms.map_or(0.0, |all| all[3]);
    Paragraph::new(vec![
        Line::from(vec![
            "unspin ".bold(),
            format!("{machine}, {} vCPUs, {:.0} s", live.vcpus(), live.elapsed_s()).into(),
        ]),
        Line::from(format!(
            "off {} ms/s in {} intervals/s, longest {} ms; long spins burn {} CPUs",
            number(1e3 * off_s / seconds),
            number(intervals as f64 / seconds),
            number(longest),
            number(digest.spin_s / seconds),
        )),
    ])
}

fn draw_lanes(frame: &mut Frame, area: Rect, live: &Live, digest: &Digest, view: View) {
    let legend = Line::from(vec![
        " vCPUs: ".into(),
        Span::styled("█ on", Color::Green),
        "  ".into(),
        Span::styled("▒ partly off", Color::Yellow),
        "  ".into(),
        Span::styled("░ mostly off", Color::Red),
        "  ".into(),
        Span::styled("· idle ", Color::DarkGray),
    ]);
    let block = Block::bordered().title(legend);
    let inside = block.inner(area);
    let rows = usize::from(inside.height);
    let order = order(digest, view);
    let first = view.first.min(order.len().saturating_sub(rows));
    let hidden = order.len().saturating_sub(rows);
    let block = if hidden == 0 {
        block
    } else {
        let last = (first + rows).min(order.len());
        block.title_bottom(format!(" {} to {last} of {} ", first + 1, order.len()))
    };
    frame.render_widget(block, area);
    let width = usize::from(inside.width.saturating_sub(HEAD));
    let seconds = digest.seconds.max(1e-9);
    let lanes = order.iter().skip(first).take(rows).map(|vcpu| {
        let off_s = digest.off.get(usize::from(*vcpu)).map_or(0.0, |vcpu| vcpu.off_s);
        let mut spans =
            vec![Span::from(format!("{vcpu:>4} {:>8} ms/s ", number(1e3 * off_s / seconds)))];
        spans.extend(live.lane(*vcpu, width).iter().map(cell));
        Line::from(spans)
    });
    frame.render_widget(Paragraph::new(lanes.collect::<Vec<_>>()), inside);
}

fn order(digest: &Digest, view: View) -> Vec<u16> {
    let mut vcpus: Vec<_> = digest.off.clone();
    if view.worst_first {
        vcpus.sort_by(|a, b| b.off_s.total_cmp(&a.off_s));
    }
    vcpus.iter().map(|vcpu| vcpu.vcpu).collect()
}

fn cell(slice: &Slice) -> Span<'static> {
    let (glyph, colour) = match slice {
        slice if slice.off >= 0.5 => ("░", Color::Red),
        slice if slice.off >= 0.05 => ("▒", Color::Yellow),
        slice if slice.idle >= 0.5 => ("·", Color::DarkGray),
        _ => ("█", Color::Green),
    };
    Span::styled(glyph, Style::new().fg(colour))
}

fn figures(digest: &Digest) -> Paragraph<'static> {
    if digest.causes.is_empty() {
        return Paragraph::new("No long spins in the last seconds.");
    }
    Paragraph::new(format!("{}\n{}", causes(digest).text(), sites(digest).text()))
}

fn footer(view: View) -> Line<'static> {
    let pause = if view.paused { "p go on" } else { "p pause" };
    let sort = if view.worst_first { "s by number" } else { "s worst first" };
    Line::from(format!("q quit  {pause}  {sort}  up/down scroll")).dim()
}

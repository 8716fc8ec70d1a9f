//! The states of each vCPU: a lane for each vCPU, and if not all lanes fit, a cell for each vCPU
//! above them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use unspin_model::scheduler::Stats;
use unspin_trace::digest::Digest;
use unspin_trace::live::{Live, Slice};

use super::View;
use crate::columns::printable;
use crate::format::percent;

/// Number of columns below which the legend is shorter.
const LEGEND_COLUMNS: u16 = 80;
/// Number of lines around the lanes: a frame and the heads.
pub(super) const AROUND: u16 = 3;
/// Columns in front of a lane: the vCPU's number and its off share.
const HEAD: usize = 15;
/// Columns in front of cells.
const LABEL: usize = 6;
/// Minimum number of lanes below the cells.
const LANES_MIN: usize = 3;
/// Number of slices that a cell shows: about a second.
const RECENT: usize = 5;

const ON: (&str, Style) = ("─", Style::new().fg(Color::Green));
/// Smallest share of a slice off, sign and colour; the largest first. A VGA console has these
/// glyphs, too.
const OFF: [(f32, &str, Color); 4] = [
    (0.75, "█", Color::LightRed),
    (0.5, "▓", Color::Red),
    (0.25, "▒", Color::Yellow),
    (0.05, "░", Color::Yellow),
];
const IDLE: (&str, Style) = ("·", Style::new().add_modifier(Modifier::DIM));

/// Sign after the number of a vCPU that the guest scheduler does not use.
const UNUSED: &str = "-";

/// Draws the lanes, and returns how many fit.
pub(super) fn draw(
    frame: &mut Frame,
    area: Rect,
    live: &Live,
    digest: &Digest,
    view: &mut View,
    scheduler: Option<&Stats>,
) -> usize {
    let is_used =
        |vcpu: u16| scheduler.is_none_or(|stats| stats.used_vcpus.contains(&u32::from(vcpu)));
    let some_unused = (0..live.vcpus()).any(|vcpu| !is_used(vcpu));
    let block = Block::bordered().title(legend(some_unused, area.width));
    let inside = block.inner(area);
    let (width, height) = (usize::from(inside.width), usize::from(inside.height));
    let order = order(digest, *view);
    let mut lines = Vec::new();
    if order.len() + 1 > height {
        let cells = cells(live, digest, width);
        lines.extend(cells.filter(|cells| cells.len() + 1 + LANES_MIN <= height));
    }
    let mut lines: Vec<Line> = lines.into_iter().flatten().collect();
    lines.push(heads(live, width));
    let room = height.saturating_sub(lines.len());
    view.first = view.first.min(order.len().saturating_sub(room));
    let shown = order.iter().skip(view.first).take(room);
    let count = shown.len();
    lines.extend(shown.map(|vcpu| lane(live, digest, *vcpu, width, is_used(*vcpu))));
    let block = if count == order.len() || room == 0 {
        block
    } else {
        block.title_bottom(scrolled(*view, count, order.len(), width))
    };
    frame.render_widget(Paragraph::new(lines).block(block), area);
    count
}

/// Returns which vCPUs are shown, in as many words as fit.
fn scrolled(view: View, count: usize, all: usize, width: usize) -> String {
    let sorted = if view.worst_first { ", most off first" } else { "" };
    let (from, last) = (view.first + 1, view.first + count);
    let long = format!(" {from} to {last} of {all}{sorted}; {} not shown ", all - count);
    if long.len() <= width { long } else { format!(" {from} to {last} of {all} ") }
}

fn legend(some_unused: bool, width: u16) -> Line<'static> {
    let word = |glyph: &str, style: Style, word: &str| {
        [Span::styled(format!("{glyph} {word}"), style), "  ".into()]
    };
    let mut words = vec![" vCPUs:  ".into()];
    words.extend(word(ON.0, ON.1, "on"));
    if width >= LEGEND_COLUMNS {
        for (at, (share, glyph, colour)) in OFF.iter().rev().enumerate() {
            let from = format!("{}≥ {:.0} %", if at == 0 { "off " } else { "" }, 100.0 * share);
            words.extend(word(glyph, Style::new().fg(*colour), &from));
        }
    } else {
        let signs = |(_, glyph, colour): &(f32, &'static str, Color)| {
            Span::styled(*glyph, Style::new().fg(*colour))
        };
        words.extend(OFF.iter().rev().map(signs));
        words.push(" off  ".into());
    }
    words.extend([Span::styled(format!("{} idle", IDLE.0), IDLE.1), " ".into()]);
    words.extend(some_unused.then(|| format!(" {UNUSED} not used ").into()));
    Line::from(words)
}

/// Returns the vCPUs, in the order of their lanes.
fn order(digest: &Digest, view: View) -> Vec<u16> {
    let mut vcpus: Vec<_> = digest.off.clone();
    if view.worst_first {
        vcpus.sort_by(|a, b| b.off_s.total_cmp(&a.off_s));
    }
    vcpus.iter().map(|vcpu| vcpu.vcpu).collect()
}

/// Returns the index of a vCPU's figures; `None` for an offline vCPU, which has none.
fn place(digest: &Digest, vcpu: u16) -> Option<usize> {
    digest.off.binary_search_by_key(&vcpu, |off| off.vcpu).ok()
}

/// Returns a cell for each vCPU by number, with a line above; `None` if they do not fit.
fn cells(live: &Live, digest: &Digest, width: usize) -> Option<Vec<Line<'static>>> {
    let room = width.checked_sub(LABEL).filter(|room| *room > 0)?;
    let a_row = 1 << room.ilog2();
    let vcpus: Vec<u16> = (0..live.vcpus()).collect();
    let row = |vcpus: &[u16]| {
        let label = Span::from(format!("{:>4}  ", vcpus[0]));
        let cells = vcpus.iter().map(|vcpu| match place(digest, *vcpu) {
            Some(_) => cell(&live.recent(*vcpu, RECENT)),
            None => Span::from(" "),
        });
        Line::from_iter(std::iter::once(label).chain(cells))
    };
    let head = format!("vCPU  a cell each, the last {:.0} s", live.covers_s(RECENT));
    let head = Line::from(head.dim());
    Some([vec![head], vcpus.chunks(a_row).map(row).collect()].concat())
}

/// Returns the line above the lanes. It shows how long ago the oldest slice was, above that slice,
/// if the text does not overlap the other end.
fn heads(live: &Live, width: usize) -> Line<'static> {
    let room = width.saturating_sub(HEAD);
    let slices = live.lane(0, room).len();
    let (ago, now) = (format!("-{:.0} s", live.covers_s(room)), "now");
    let ends = if slices > ago.len() + now.len() {
        format!("{ago}{now:>rest$}", rest = slices - ago.len())
    } else {
        now.to_owned()
    };
    Line::from(format!("vCPU      off  {ends:>room$}").dim())
}

/// Returns the last slices of a vCPU, the latest on the right.
fn lane(live: &Live, digest: &Digest, vcpu: u16, width: usize, used: bool) -> Line<'static> {
    let off_s = place(digest, vcpu).map_or(0.0, |at| digest.off[at].off_s);
    let share = printable(&percent(off_s / digest.seconds.max(1e-9)));
    let room = width.saturating_sub(HEAD);
    let slices = live.lane(vcpu, room);
    let mark = if used { " " } else { UNUSED };
    let head = format!("{vcpu:>4}{mark} {share:>7}  {}", " ".repeat(room - slices.len()));
    Line::from_iter(std::iter::once(Span::from(head)).chain(slices.iter().map(cell)))
}

fn cell(slice: &Slice) -> Span<'static> {
    let off = OFF.iter().find(|(share, _, _)| slice.off >= *share);
    let (glyph, style) = match off {
        Some((_, glyph, colour)) => (*glyph, Style::new().fg(*colour)),
        None if slice.idle >= 0.5 => IDLE,
        None => ON,
    };
    Span::styled(glyph, style)
}

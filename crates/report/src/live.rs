//! `unspin watch` on a terminal.

mod lanes;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unspin_model::scheduler::Stats;
use unspin_trace::digest::Digest;
use unspin_trace::live::Live;

use crate::columns::printable;
use crate::format::{count, number, percent};
use crate::scheduler::brief;
use crate::session::{causes, sites};

/// With more vCPUs than that, those that are off most come first.
const MANY: u16 = 16;
/// From so many columns on, the tables are side by side.
const WIDE: u16 = 140;
/// Lines that the lanes have at least, with the frame round them.
const LANES_MIN: u16 = 4;

/// What the user chose to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The first vCPU that is shown, in the order of the lanes.
    pub first: usize,
    /// Those that were off most come first.
    pub worst_first: bool,
    /// The picture stands still.
    pub paused: bool,
}

impl View {
    /// What fits a guest of so many vCPUs.
    pub fn of(vcpus: u16) -> View {
        View { first: 0, worst_first: vcpus > MANY, paused: false }
    }
}

/// Draws all of it. `digest` is that of `live`; `machine` says in a few words what the
/// guest is, `scheduler` what a guest scheduler of ours does that runs meanwhile. A view
/// beyond the last vCPU is moved back to it. Returns how many vCPUs have a lane.
pub fn draw(
    frame: &mut Frame,
    live: &Live,
    digest: &Digest,
    view: &mut View,
    machine: &str,
    scheduler: Option<&Stats>,
) -> usize {
    let heading = heading(live, digest, *view, machine, scheduler);
    let [head, middle, keys] = Layout::vertical([
        Constraint::Length(heading.len() as u16),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let tables = Tables::of(digest, middle.width);
    let lanes_wanted = live.vcpus().saturating_add(lanes::AROUND);
    let lanes_height = lanes_height(middle.height, lanes_wanted, tables.height());
    let [lanes, below] =
        Layout::vertical([Constraint::Length(lanes_height), Constraint::Min(0)]).areas(middle);
    frame.render_widget(Paragraph::new(heading), head);
    let shown = lanes::draw(frame, lanes, live, digest, view, scheduler);
    tables.draw(frame, below);
    frame.render_widget(footer(*view, shown == usize::from(live.vcpus())), keys);
    shown
}

/// What lanes and tables want is seldom there: the tables then have two fifths.
fn lanes_height(height: u16, lanes: u16, tables: u16) -> u16 {
    let tables = tables.min(height.saturating_sub(lanes).max(height * 2 / 5));
    let left = height - tables;
    if left < LANES_MIN { height } else { left.min(lanes) }
}

fn heading(
    live: &Live,
    digest: &Digest,
    view: View,
    machine: &str,
    scheduler: Option<&Stats>,
) -> Vec<Line<'static>> {
    let off_s: f64 = digest.off.iter().map(|vcpu| vcpu.off_s).sum();
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let seconds = digest.seconds.max(1e-9);
    let all_s = seconds * f64::from(live.vcpus().max(1));
    let longest = digest.off_ms.map_or(0.0, |all| all[3]);
    let what = format!("watch: {machine}, {} vCPUs, {:.0} s", live.vcpus(), live.elapsed_s());
    let mut first = vec!["unspin ".bold(), printable(&what).into()];
    if view.paused {
        first.extend(["  ".into(), " paused ".reversed()]);
    }
    let mut figures = format!(
        "last {seconds:.0} s: off {}, {} times/s, longest {} ms; long spins {}",
        percent(off_s / all_s),
        number(intervals as f64 / seconds),
        number(longest),
        percent(digest.spin_s / all_s),
    );
    if digest.lost > 0 {
        figures += &format!("; {} lost", count(digest.lost));
    }
    let mut lines = vec![Line::from(first), Line::from(printable(&figures))];
    lines.extend(beside(digest, all_s).map(|beside| Line::from(printable(&beside))));
    lines.extend(scheduler.map(|stats| Line::from(brief(stats))));
    lines
}

/// The hypervisor's word, and what ticks say of user space, as shares of all time.
fn beside(digest: &Digest, all_s: f64) -> Option<String> {
    let spun = |s: f64| format!("user-space spins by ticks {}", percent(s / all_s));
    let steal = digest.steal_s.map(|s| if s == 0.0 { "none".into() } else { percent(s / all_s) });
    let steal = steal.map(|steal| format!("steal as the hypervisor tells it: {steal}"));
    let parts: Vec<String> = steal.into_iter().chain(digest.user_spin_s.map(spun)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Why they waited, and where.
struct Tables {
    causes: Vec<String>,
    sites: Vec<String>,
    beside: bool,
}

impl Tables {
    fn of(digest: &Digest, width: u16) -> Tables {
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        if digest.causes.is_empty() {
            let nothing = "No long spins or waits in the last seconds.".to_owned();
            return Tables { causes: vec![nothing], sites: Vec::new(), beside: false };
        }
        let (causes, beside) = (causes(digest).text(), width >= WIDE);
        let causes_width = causes.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let for_sites =
            usize::from(width).saturating_sub(if beside { causes_width + 4 } else { 0 });
        let sites = sites(digest).text_within(for_sites);
        Tables { causes: lines(causes), sites: lines(sites), beside }
    }

    fn height(&self) -> u16 {
        let (causes, sites) = (self.causes.len() as u16, self.sites.len() as u16);
        if self.beside { causes.max(sites) } else { causes + u16::from(sites > 0) + sites }
    }

    fn draw(&self, frame: &mut Frame, area: Rect) {
        let table = |lines: &[String]| {
            let bold =
                |at| if at == 0 && lines.len() > 1 { Modifier::BOLD } else { Modifier::empty() };
            let styled = |(at, line): (usize, &String)| {
                Line::styled(line.clone(), Style::new().add_modifier(bold(at)))
            };
            Paragraph::new(lines.iter().enumerate().map(styled).collect::<Vec<_>>())
        };
        let rows = usize::from(area.height);
        let width = |lines: &[String]| lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
        let [left, right] = if self.beside {
            let left = Constraint::Length(width(&self.causes) as u16 + 4);
            Layout::horizontal([left, Constraint::Min(0)]).areas(area)
        } else {
            let causes = self.causes.len().min(rows - self.sites.len().min(rows / 2));
            let gap = usize::from(causes + self.sites.len() < rows);
            let left = Constraint::Length((causes + gap) as u16);
            Layout::vertical([left, Constraint::Min(0)]).areas(area)
        };
        frame.render_widget(table(&self.causes), left);
        frame.render_widget(table(&self.sites), right);
    }
}

fn footer(view: View, all_shown: bool) -> Line<'static> {
    let key = |key: &'static str, does: &'static str| {
        [Span::from(key).bold(), Span::from(format!(" {does}   "))]
    };
    let mut keys = [
        key("q", "quit"),
        key("p", if view.paused { "go on" } else { "pause" }),
        key("s", if view.worst_first { "by number" } else { "most off first" }),
    ]
    .concat();
    if !all_shown {
        keys.extend(key("up down page-up page-down home end", "scroll"));
    }
    Line::from(keys)
}

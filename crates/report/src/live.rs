//! `unspin watch` on a terminal.

mod heading;
mod keys;
mod lanes;
mod tables;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::widgets::Paragraph;
use unspin_model::scheduler::Stats;
use unspin_trace::digest::Digest;
use unspin_trace::live::Live;

use crate::verdict::Verdict;
use tables::Tables;

/// Number of vCPUs above which those that are off most come first.
const MANY: u16 = 16;
/// Minimum number of lines for the lanes, including their frame.
const LANES_MIN: u16 = 4;

/// The user's choice of what to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// First vCPU that is shown, in the order of the lanes.
    pub first: usize,
    /// Whether the vCPUs that were off most come first.
    pub worst_first: bool,
    /// Whether the picture is paused.
    pub paused: bool,
    /// Whether the help on keys and signs is shown.
    pub help: bool,
}

impl View {
    /// Returns the default view for a guest of `vcpus` vCPUs.
    pub fn of(vcpus: u16) -> View {
        View { first: 0, worst_first: vcpus > MANY, paused: false, help: false }
    }
}

/// Content of the picture.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// The last seconds of the guest.
    pub live: &'a Live,
    /// Digest of these seconds.
    pub digest: &'a Digest,
    /// Verdict on these seconds.
    pub verdict: &'a Verdict,
    /// Kind of machine, in a few words.
    pub machine: &'a str,
    /// Figures of the guest scheduler of unspin, if one is running.
    pub scheduler: Option<&'a Stats>,
}

/// Draws the picture. Moves a view beyond the last vCPU back to it. Returns the number of vCPUs
/// that have a lane.
pub fn draw(frame: &mut Frame, picture: Picture<'_>, view: &mut View) -> usize {
    let heading = heading::lines(picture, *view, frame.area());
    let [head, middle, keys] = Layout::vertical([
        Constraint::Length(heading.len() as u16),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let Picture { live, digest, .. } = picture;
    let tables = Tables::of(digest, middle.width);
    let lanes_wanted = digest.vcpus.saturating_add(lanes::AROUND);
    let lanes_height = lanes_height(middle.height, lanes_wanted, tables.height());
    let [lanes, below] =
        Layout::vertical([Constraint::Length(lanes_height), Constraint::Min(0)]).areas(middle);
    frame.render_widget(Paragraph::new(heading), head);
    let shown = lanes::draw(frame, lanes, live, digest, view, picture.scheduler);
    tables.draw(frame, below);
    let all_shown = shown == usize::from(digest.vcpus);
    frame.render_widget(keys::footer(*view, all_shown, keys.width), keys);
    if view.help {
        keys::help(frame, picture.verdict);
    }
    shown
}

/// Returns the height of the lanes. The screen is seldom large enough for lanes and tables; the
/// tables then get two fifths.
fn lanes_height(height: u16, lanes: u16, tables: u16) -> u16 {
    let tables = tables.min(height.saturating_sub(lanes).max(height * 2 / 5));
    let left = height - tables;
    if left < LANES_MIN { height } else { left.min(lanes) }
}

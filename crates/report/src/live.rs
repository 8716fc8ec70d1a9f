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

/// With more vCPUs than that, those that are off most come first.
const MANY: u16 = 16;
/// Lines that the lanes have at least, with the frame round them.
const LANES_MIN: u16 = 4;

/// What the user chose to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The first vCPU that is shown, in the order of the lanes.
    pub first: usize,
    /// Those that were off most come first.
    pub worst_first: bool,
    /// The picture is paused.
    pub paused: bool,
    /// The keys and signs are explained.
    pub help: bool,
}

impl View {
    /// What fits a guest of so many vCPUs.
    pub fn of(vcpus: u16) -> View {
        View { first: 0, worst_first: vcpus > MANY, paused: false, help: false }
    }
}

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// What each vCPU did.
    pub live: &'a Live,
    /// Its digest.
    pub digest: &'a Digest,
    /// What that comes down to.
    pub verdict: &'a Verdict,
    /// What the guest is, in a few words.
    pub machine: &'a str,
    /// What a guest scheduler of ours does that runs meanwhile.
    pub scheduler: Option<&'a Stats>,
}

/// Draws all of it. A view beyond the last vCPU is moved back to it. Returns how many vCPUs
/// have a lane.
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

/// What lanes and tables want is seldom there: the tables then have two fifths.
fn lanes_height(height: u16, lanes: u16, tables: u16) -> u16 {
    let tables = tables.min(height.saturating_sub(lanes).max(height * 2 / 5));
    let left = height - tables;
    if left < LANES_MIN { height } else { left.min(lanes) }
}

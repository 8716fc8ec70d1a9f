//! The tables of the last seconds: why threads waited, and where.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use unspin_trace::digest::Digest;

use crate::session::{causes, sites};

/// Number of columns from which the tables are side by side.
const WIDE: u16 = 140;

/// Tables of the causes and places of waits.
pub(super) struct Tables {
    causes: Vec<String>,
    sites: Vec<String>,
    beside: bool,
}

impl Tables {
    pub(super) fn of(digest: &Digest, width: u16) -> Tables {
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        if digest.causes.is_empty() {
            let nothing = "No long spins or waits in the last seconds.".to_owned();
            return Tables { causes: vec![nothing], sites: Vec::new(), beside: false };
        }
        let beside = width >= WIDE;
        let causes = causes(digest).text_within(usize::from(width));
        let causes_width = causes.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let for_sites =
            usize::from(width).saturating_sub(if beside { causes_width + 4 } else { 0 });
        let sites = sites(digest).text_within(for_sites);
        Tables { causes: lines(causes), sites: lines(sites), beside }
    }

    pub(super) fn height(&self) -> u16 {
        let (causes, sites) = (self.causes.len() as u16, self.sites.len() as u16);
        if self.beside { causes.max(sites) } else { causes + u16::from(sites > 0) + sites }
    }

    pub(super) fn draw(&self, frame: &mut Frame, area: Rect) {
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

//! The keys, and the meaning of the signs.

use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::View;
use crate::columns::paragraph;
use crate::verdict::Verdict;

/// Width of the help, if the screen has as many columns.
const HELP_COLUMNS: u16 = 64;

const HELP: &[&str] = &[
    "q  quit;  p  pause;  s  order;  ?  this",
    "up, down, page up, page down, home, end  scroll the vCPUs",
    "",
    "A lane is a vCPU, a sign a fifth of a second: ─ on its pCPU; ░ ▒ ▓ █ off it (it wanted \
     to run and was preempted), the darker the longer; · idle.",
    "",
    "CPU time: share of the time of all vCPUs that spinning burned. burned: the same in \
     seconds. asleep: how long threads slept for locks, or vCPUs halted for them. sure: how \
     sure the cause is.",
    "",
    "unspin explain  says what each cause means and what to do about it.",
];

/// Returns as many keys as fit, the most important first.
pub(super) fn footer(view: View, all_shown: bool, width: u16) -> Line<'static> {
    let mut keys = vec![
        ("q", "quit"),
        ("?", if view.help { "close help" } else { "help" }),
        ("p", if view.paused { "go on" } else { "pause" }),
        ("s", if view.worst_first { "by number" } else { "most off first" }),
    ];
    if !all_shown {
        keys.insert(2, ("up down", "scroll"));
    }
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, does) in keys {
        let does = format!(" {does}   ");
        used += key.len() + does.len();
        // The spaces after the last key may be cut.
        if used <= usize::from(width) + 3 {
            spans.extend([key.bold(), Span::from(does)]);
        }
    }
    Line::from(spans)
}

/// Draws the help over the picture: the keys and signs, and the limits of the verdict.
pub(super) fn help(frame: &mut Frame, verdict: &Verdict) {
    let area = frame.area();
    let width = HELP_COLUMNS.min(area.width);
    let mut texts: Vec<String> = HELP.iter().map(|text| (*text).to_owned()).collect();
    for caveat in &verdict.caveats {
        texts.extend([String::new(), format!("Mind: {caveat}")]);
    }
    let columns = usize::from(width.saturating_sub(4));
    let wrapped = |text: &String| match text.is_empty() {
        true => vec![String::new()],
        false => paragraph(text, columns).lines().map(str::to_owned).collect(),
    };
    let mut lines: Vec<String> = texts.iter().flat_map(wrapped).collect();
    if lines.len() + 2 > usize::from(area.height) {
        lines.retain(|line| !line.is_empty());
    }
    let lines: Vec<Line> = lines.into_iter().map(|line| Line::from(format!(" {line}"))).collect();
    let height = (lines.len() as u16 + 2).min(area.height);
    let [row] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    let [popup] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(row);
    frame.render_widget(Clear, popup);
    let block = Block::bordered().title(" help ").title_bottom(" any key but q closes it ");
    frame.render_widget(Paragraph::new(lines).block(block), popup);
}

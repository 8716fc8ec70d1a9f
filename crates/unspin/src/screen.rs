//! The terminal of standard output.

use std::env;
use std::io::{IsTerminal, stdout};

use ratatui::crossterm::terminal;

/// Minimum columns. Sentences do not fit into fewer.
const COLUMNS_MIN: u16 = 30;

/// Returns the terminal's columns, or `None` if standard output is not a terminal or the terminal
/// does not report its size.
pub fn columns() -> Option<usize> {
    let (columns, _) = stdout().is_terminal().then(terminal::size)?.ok()?;
    (columns > 0).then(|| usize::from(columns.max(COLUMNS_MIN)))
}

/// Returns whether to print colours. Files get none, and users can decline them
/// (https://no-color.org).
pub fn colour() -> bool {
    let wanted = |name: &str, not: fn(&str) -> bool| env::var(name).map_or(true, |it| !not(&it));
    stdout().is_terminal()
        && wanted("NO_COLOR", |value| !value.is_empty())
        && wanted("TERM", |value| value == "dumb")
}

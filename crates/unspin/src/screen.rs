//! The terminal that is written to.

use std::env;
use std::io::{IsTerminal, stdout};

use ratatui::crossterm::terminal;

/// Fewer columns hold no sentence.
const COLUMNS_MIN: u16 = 30;

/// Its columns; none where standard output is not a terminal, or one that does not say.
pub fn columns() -> Option<usize> {
    let (columns, _) = stdout().is_terminal().then(terminal::size)?.ok()?;
    (columns > 0).then(|| usize::from(columns.max(COLUMNS_MIN)))
}

/// Whether colours are wanted there: not where they would be bytes in a file, nor where the user
/// does not want them (https://no-color.org).
pub fn colour() -> bool {
    let wanted = |name: &str, not: fn(&str) -> bool| env::var(name).map_or(true, |it| !not(&it));
    stdout().is_terminal()
        && wanted("NO_COLOR", |value| !value.is_empty())
        && wanted("TERM", |value| value == "dumb")
}

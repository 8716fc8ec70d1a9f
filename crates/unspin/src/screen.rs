//! The terminal that is written to.

use std::io::{IsTerminal, stdout};

use ratatui::crossterm::terminal;

/// Fewer columns hold no sentence.
const COLUMNS_MIN: u16 = 30;

/// Its columns; none where standard output is no terminal, or one that does not say.
pub fn columns() -> Option<usize> {
    let (columns, _) = stdout().is_terminal().then(terminal::size)?.ok()?;
    (columns > 0).then(|| usize::from(columns.max(COLUMNS_MIN)))
}

//! Standard output. That it cannot be written is an error like any other; that nobody
//! reads on, as with `head`, is none.

use std::fmt::Display;
use std::io::{self, ErrorKind, StdoutLock, Write, stdout};

use anyhow::Context;

/// Prints a text as it is.
pub fn text(text: impl Display) -> anyhow::Result<()> {
    written(|out| write!(out, "{text}"))
}

/// Writes bytes as they are.
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    written(|out| out.write_all(bytes))
}

fn written(write: impl FnOnce(&mut StdoutLock) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("write to standard output"),
    }
}

/// Prints a line.
pub fn line(words: impl Display) -> anyhow::Result<()> {
    text(format_args!("{words}\n"))
}

//! Standard output. A failed write is an error. A reader that closes the pipe, such as `head`, is
//! not.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, ErrorKind, StdoutLock, Write, stdout};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use unspin_model::session::About;

use crate::here;

/// The beginning of every JSON document.
#[derive(Serialize)]
struct Document<'a, T> {
    /// Version of the format. Each verb has its own versions.
    format: u32,
    /// Version of the unspin that prints the document.
    program: &'static str,
    #[serde(flatten)]
    place: Option<Place<'a>>,
    #[serde(flatten)]
    value: &'a T,
}

/// The kernel and machine of the measurement, as far as they are known.
#[derive(Serialize)]
struct Place<'a> {
    kernel: Option<&'a str>,
    machine: Option<&'a str>,
}

impl<'a, T> Document<'a, T> {
    fn of(format: u32, about: Option<&'a About>, value: &'a T) -> Document<'a, T> {
        let place = about.map(|about| Place {
            kernel: about.kernel.as_deref(),
            machine: about.machine.as_deref(),
        });
        Document { format, program: here::PROGRAM, place, value }
    }
}

/// Prints a document as indented JSON. `format` is the version of the format of `value`; `about`
/// describes the machine of the measurement.
pub fn json(format: u32, about: Option<&About>, value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string_pretty(&Document::of(format, about, value))?)
}

/// Prints one of several documents as a line of JSON.
pub fn json_line(format: u32, about: &About, value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(&Document::of(format, Some(about), value))?)
}

/// Prints a document that consists of a list with this name.
pub fn json_list(format: u32, name: &str, list: &impl Serialize) -> anyhow::Result<()> {
    json(format, None, &BTreeMap::from([(name, list)]))
}

/// Returns whether a file's name means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

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

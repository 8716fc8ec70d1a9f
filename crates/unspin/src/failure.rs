//! Reports errors at the end of the program: message, exit status and next command.

use std::borrow::Cow;
use std::error::Error;

use unspin_cvm::build::BuildError;
use unspin_guest::confine::{ConfineError, CpusetError};
use unspin_guest::run::{HoldersError, RunError, socket::AskError};
use unspin_guest::sense::SenseError;
use unspin_lab::run::LabError;
use unspin_lab::toml_error::ConfigError;
use unspin_model::class::{Class, Classified};
use unspin_report::printable;
use unspin_sources::kernel::KernelError;
use unspin_sources::qemu::QemuError;

/// Error types that have a class. All other types have [`Class::Failed`].
const CLASSIFIED: &[fn(&(dyn Error + 'static)) -> Option<Class>] = &[
    of::<Message>,
    of::<SenseError>,
    of::<RunError>,
    of::<AskError>,
    of::<ConfineError>,
    of::<CpusetError>,
    of::<HoldersError>,
    of::<ConfigError>,
    of::<BuildError>,
    of::<LabError>,
    of::<KernelError>,
    of::<QemuError>,
];

fn of<E: Classified + 'static>(error: &(dyn Error + 'static)) -> Option<Class> {
    error.downcast_ref::<E>().map(Classified::class)
}

/// An error with its class and its text.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Message {
    class: Class,
    text: String,
}

impl Classified for Message {
    fn class(&self) -> Class {
        self.class
    }
}

/// Returns an error of this class.
pub fn of_class(class: Class, text: impl Into<String>) -> anyhow::Error {
    Message { class, text: text.into() }.into()
}

/// Returns the class of an error, which is the class of the outermost cause that has one.
pub fn class(error: &anyhow::Error) -> Class {
    let class_of = |cause| CLASSIFIED.iter().find_map(|of| of(cause));
    error.chain().find_map(class_of).unwrap_or(Class::Failed)
}

/// Returns the message, with each cause once, and with the next command if a privilege is missing.
/// The text cannot send escape sequences from a file to the terminal.
pub fn message(error: &anyhow::Error, args: &[String]) -> String {
    let text = match class(error) {
        Class::NeedsRoot => format!("{error:#}: sudo {}", command_line(args)),
        _ => format!("{error:#}"),
    };
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Returns the words of this command line after the program's name.
pub fn words() -> Vec<String> {
    std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// Returns a command line as a user types it.
pub fn command_line(args: &[String]) -> String {
    let words: Vec<Cow<str>> = args.iter().map(|word| quoted(word)).collect();
    format!("unspin {}", words.join(" "))
}

/// Quotes a word for a shell if necessary.
fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;
    use unspin_trace::TraceError;

    use super::*;

    #[test]
    fn an_error_keeps_its_class_under_context() {
        let usage = || of_class(Class::Usage, "no such claim");
        for (error, status) in [
            (usage(), 2),
            (Err::<(), _>(usage()).context("claims").unwrap_err(), 2),
            (SenseError::Root.into(), 77),
            (RunError::NoSchedExt.into(), 77),
            (HoldersError::Name(String::new()).into(), 2),
            (LabError::NotPlanned { last: 7, planned: 3 }.into(), 2),
            (LabError::Missing { program: "tar", package: "tar" }.into(), 77),
            (BuildError::Vcpus(0).into(), 2),
            (LabError::Kernel(KernelError::Spec("x".into())).into(), 2),
            (of_class(Class::Interrupted, "interrupted"), 130),
            (anyhow::anyhow!("something else"), 1),
        ] {
            assert_eq!(class(&error).exit_status(), status, "{error:#}");
        }
    }

    #[test]
    fn each_cause_is_said_once() {
        let source = io::Error::other("no space");
        let error = anyhow::Error::from(TraceError::Write(source)).context("export");
        assert_eq!(message(&error, &[]), "export: cannot write the recording: no space");
    }

    #[test]
    fn what_a_file_says_cannot_change_the_terminal() {
        let error = anyhow::anyhow!("unknown kind `\u{1b}[2J\u{202e}`\nin line 2");
        assert_eq!(message(&error, &[]), "unknown kind `\u{fffd}[2J\u{fffd}`\nin line 2");
    }

    #[test]
    fn who_needs_root_gets_the_command() {
        let args = ["record", "--", "sh", "-c", "it's"].map(str::to_owned);
        let text = message(&SenseError::Root.into(), &args);
        assert_eq!(text, r"needs root: sudo unspin record -- sh -c 'it'\''s'");
    }
}

//! The client's side of the socket.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use unspin_model::class::{Class, Classified};
use unspin_model::scheduler::Stats;

use super::STATS;
use crate::run::LOADED;

/// How long to wait for an answer: the scheduler may be loading again just then.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait for an answer of a resting process, which does nothing but answer.
const RESTS_WITHIN: Duration = Duration::from_secs(1);
/// The most bytes of an answer: one for 4096 vCPUs has about 25 000.
const ANSWER_MAX: u64 = 1 << 20;
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// The errors of asking for statistics.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process answers.
    #[error(
        "no `unspin run` answers at {path}: start one, or name its --socket{}",
        .loaded.as_ref().map(|name| format!(" (the sched_ext scheduler `{name}` is loaded)"))
            .unwrap_or_default()
    )]
    Nobody {
        /// The path of the socket.
        path: PathBuf,
        /// The sched_ext scheduler that is loaded, if any.
        loaded: Option<String>,
    },
    /// The socket refuses the connection to this user.
    #[error("{0}: permission denied; needs root")]
    Denied(PathBuf),
    /// The answer is not valid.
    #[error("{path}: {what}")]
    Answer {
        /// The path of the socket.
        path: PathBuf,
        /// A description of the answer.
        what: String,
    },
}

impl Classified for AskError {
    fn class(&self) -> Class {
        match self {
            AskError::Denied(_) => Class::NeedsRoot,
            AskError::Nobody { .. } | AskError::Answer { .. } => Class::Failed,
        }
    }
}

/// Returns the statistics of the process that answers at this socket.
pub fn ask(path: &Path) -> Result<Stats, AskError> {
    let stream = UnixStream::connect(path).map_err(|error| refused(path, &error))?;
    let answer = |what: String| AskError::Answer { path: path.to_owned(), what };
    let line = request(&stream, ANSWERS_WITHIN).map_err(|error| answer(error.to_string()))?;
    serde_json::from_str(&line).map_err(|_| answer(format!("not figures: {:?}", line.trim_end())))
}

/// Returns whether the process that answers rests, and answers in time.
pub(super) fn rests(stream: &UnixStream) -> bool {
    let stats = request(stream, RESTS_WITHIN).ok();
    let stats = stats.and_then(|line| serde_json::from_str::<Stats>(&line).ok());
    stats.is_some_and(|stats| stats.resting.is_some())
}

fn request(mut stream: &UnixStream, within: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    writeln!(stream, "{STATS}")?;
    let mut line = String::new();
    match BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut line) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::new(ErrorKind::TimedOut, "no answer"))
        }
        done => done.map(|_| line),
    }
}

fn refused(path: &Path, error: &io::Error) -> AskError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::PermissionDenied => AskError::Denied(path),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let loaded = fs::read_to_string(LOADED).ok();
            AskError::Nobody { path, loaded: loaded.map(|name| name.trim().to_owned()) }
        }
        _ => AskError::Answer { path, what: error.to_string() },
    }
}

/// Asks repeatedly as long as this process lives. The value is `None` while nobody answers.
pub fn follow(path: &Path) -> Arc<Mutex<Option<Stats>>> {
    let latest = Arc::new(Mutex::new(None));
    let (path, shared) = (path.to_owned(), latest.clone());
    thread::spawn(move || {
        loop {
            let stats = ask(&path).ok();
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = stats;
            thread::sleep(FOLLOW_EVERY);
        }
    });
    latest
}

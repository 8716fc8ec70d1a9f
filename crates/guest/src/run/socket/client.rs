//! The side that asks.

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

/// The scheduler may be being loaded again just then.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Who does nothing waits for questions alone.
const RESTS_WITHIN: Duration = Duration::from_secs(1);
/// An answer has fewer bytes: one of 4096 vCPUs has some 25 000.
const ANSWER_MAX: u64 = 1 << 20;
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there.
    #[error(
        "no `unspin run` answers at {path}: start one, or name its --socket{}",
        .loaded.as_ref().map(|name| format!(" (the sched_ext scheduler `{name}` is loaded)"))
            .unwrap_or_default()
    )]
    Nobody {
        /// Where.
        path: PathBuf,
        /// The sched_ext scheduler that is loaded.
        loaded: Option<String>,
    },
    /// The socket does not let us.
    #[error("{0}: permission denied; needs root")]
    Denied(PathBuf),
    /// What is there does not talk as it should.
    #[error("{path}: {what}")]
    Answer {
        /// Where.
        path: PathBuf,
        /// What came instead.
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

/// The figures of the scheduler that answers at this socket.
pub fn ask(path: &Path) -> Result<Stats, AskError> {
    let stream = UnixStream::connect(path).map_err(|error| refused(path, &error))?;
    let answer = |what: String| AskError::Answer { path: path.to_owned(), what };
    let line = request(&stream, ANSWERS_WITHIN).map_err(|error| answer(error.to_string()))?;
    serde_json::from_str(&line).map_err(|_| answer(format!("not figures: {:?}", line.trim_end())))
}

/// Whether who answers there does nothing, and says so at once.
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

/// Asks again and again, as long as this process lives; nothing while nobody answers.
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

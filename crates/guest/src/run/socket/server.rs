//! The server's side of the socket.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::stat::{Mode, umask};
use unspin_model::scheduler::Stats;

use super::{answer, client, refusal};

/// The most clients that may be connected.
pub(super) const CLIENTS_MAX: usize = 8;
/// A request has fewer bytes than this, including its end of line.
pub(super) const LINE_MAX: usize = 64;
/// The longest silence of a client before it is disconnected.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The errors of making the socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process answers at the path.
    #[error("another process listens there: stop it, or choose another --socket")]
    Taken,
    /// The path exists, and is not a socket that could be replaced.
    #[error("it exists, but is not a socket: remove it, or choose another --socket")]
    NoSocket,
    /// The socket cannot be made.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The listening socket. Dropping this removes its file.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    made: Metadata,
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    /// The part of a request that has arrived.
    line: Vec<u8>,
    heard: Instant,
}

impl Socket {
    /// Makes the socket and its folder; only their owner may use the socket. Replaces a socket at
    /// which nobody answers, which a killed process has left, and the socket of a process that
    /// rests.
    pub fn bind(path: &Path) -> Result<Socket, BindError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        }
        remove_stale(path)?;
        // If the mode were set afterwards, others could connect before.
        let before = umask(Mode::from_bits_truncate(0o177));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener = listener?;
        listener.set_nonblocking(true)?;
        let made = fs::symlink_metadata(path)?;
        Ok(Socket { listener, path: path.to_owned(), made, clients: Vec::new() })
    }

    /// Answers the requests that have arrived, without waiting.
    pub fn step(&mut self, stats: &Stats) {
        if stats.resting.is_some() {
            self.return_to_path();
        }
        // Accept no more than the most clients, so that endless connections hold nothing up.
        for _ in 0..CLIENTS_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            self.admit(stream);
        }
        self.clients.retain_mut(|client| client.step(stats).is_ok());
    }

    /// Takes the path back, when this process rests and the one that took the path has ended.
    fn return_to_path(&mut self) {
        if self.path.exists() {
            return;
        }
        if let Ok(again) = Socket::bind(&self.path) {
            *self = again;
        }
    }

    /// Returns the files to poll for connections and requests.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(clients)
    }

    fn admit(&mut self, mut stream: UnixStream) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.clients.len() < CLIENTS_MAX {
            self.clients.push(Client { stream, line: Vec::new(), heard: Instant::now() });
        } else {
            let _ = writeln!(stream, "{}", refusal("too many ask at once"));
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let is_ours = |now: Metadata| (now.dev(), now.ino()) == (self.made.dev(), self.made.ino());
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Client {
    /// Answers a client's requests. An error means that the client is to be disconnected.
    fn step(&mut self, stats: &Stats) -> io::Result<()> {
        let mut buffer = [0; LINE_MAX];
        let read = match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let silent = self.heard.elapsed() > SILENCE_MAX;
                return if silent { Err(ErrorKind::TimedOut.into()) } else { Ok(()) };
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        self.heard = Instant::now();
        self.line.extend_from_slice(&buffer[..read]);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let request: Vec<u8> = self.line.drain(..=end).collect();
            // An answer that does not fit into the socket's buffer is not kept until it does.
            self.stream.write_all(answer(&request, stats).as_bytes())?;
        }
        if self.line.len() >= LINE_MAX {
            let _ = writeln!(self.stream, "{}", refusal("a request that is too long"));
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(())
    }
}

/// Removes a socket at which nobody listens, or only a process that rests. Another one is an error.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NoSocket);
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Err(error) => Err(error.into()),
        Ok(stream) if client::rests(&stream) => Ok(fs::remove_file(path)?),
        Ok(_) => Err(BindError::Taken),
    }
}

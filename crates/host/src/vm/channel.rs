//! The lab's end of a guest's control channel.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use unspin_model::FailureKind;
use unspin_wire::{Envelope, Failure, Hello, PROTOCOL, Reply, Request, VmSpec};

use super::console;
use crate::interrupt;

/// How long a wait lasts before it checks whether to go on.
const SLICE: Duration = Duration::from_millis(200);

/// The longest line that a guest may send, in bytes. A session of 64 MiB takes a sixth of it.
const LINE_LIMIT: u64 = 512 << 20;

/// How much of a malformed line an error shows, in bytes.
const MALFORMED_SHOWN: usize = 200;

/// A reply, or the start of a line that is not a reply.
type Heard = Result<Reply, String>;
type Waiting = Arc<Mutex<HashMap<u64, mpsc::Sender<Heard>>>>;

/// A connection to a guest's init. A thread passes each reply to the caller that waits for it.
pub struct Channel {
    stream: UnixStream,
    waiting: Waiting,
    next: AtomicU64,
}

impl Channel {
    /// Connects to QEMU's socket and waits for the guest's hello.
    pub fn connect(
        socket: &Path,
        qemu: &mut Child,
        spec: &VmSpec,
        console: &Path,
    ) -> Result<(Channel, Hello), Failure> {
        let deadline = Instant::now() + Duration::from_secs_f64(spec.boot_limit_s);
        let stream = connect(socket, qemu, deadline)?;
        let waiting = Waiting::default();
        let (sender, hello) = mpsc::channel();
        lock(&waiting).insert(0, sender);
        let reader = stream.try_clone().map_err(|e| died(&e.to_string()))?;
        let (lines, table) = (BufReader::new(reader), waiting.clone());
        std::thread::spawn(move || dispatch(lines, &table, LINE_LIMIT));
        let hello = await_hello(&hello, qemu, deadline, spec, console)?;
        Ok((Channel { stream, waiting, next: AtomicU64::new(1) }, hello))
    }

    /// Sends a request without waiting. Returns its id.
    pub fn send(&self, request: Request) -> Result<u64, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut line = serde_json::to_vec(&Envelope { id, body: request })
            .map_err(|e| died(&e.to_string()))?;
        line.push(b'\n');
        (&self.stream).write_all(&line).map_err(|e| died(&e.to_string()))?;
        Ok(id)
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&self, request: Request, limit: Duration) -> Result<Reply, Failure> {
        let (sender, receiver) = mpsc::channel();
        let id = {
            // The reader takes the same lock, so a fast reply cannot arrive before its receiver is
            // registered.
            let mut waiting = lock(&self.waiting);
            let id = self.send(request)?;
            waiting.insert(id, sender);
            id
        };
        let reply = wait(&receiver, limit, &interrupt::requested);
        lock(&self.waiting).remove(&id);
        reply
    }
}

/// Waits for a reply. Gives up if the user wants this process to stop.
fn wait(
    replies: &mpsc::Receiver<Heard>,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Reply, Failure> {
    let asked = Instant::now();
    loop {
        match replies.recv_timeout(SLICE) {
            Ok(heard) => return heard.map_err(|line| malformed(&line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(died("the control channel closed"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if stopped() => {
                return Err(interrupted());
            }
            Err(mpsc::RecvTimeoutError::Timeout) if asked.elapsed() >= limit => {
                let seconds = limit.as_secs_f64();
                let detail = format!("the guest did not answer within {seconds:.0} s");
                return Err(Failure::new(FailureKind::GuestHang, detail));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

fn connect(socket: &Path, qemu: &mut Child, deadline: Instant) -> Result<UnixStream, Failure> {
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            // QEMU has a socket there all the same, because it uses the name without the folder.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                let socket = socket.display();
                let detail = format!("{socket}: {error}: set TMPDIR to a shorter path");
                return Err(Failure::new(FailureKind::Unavailable, detail));
            }
            Err(_) => check_alive(qemu)?,
        }
        if interrupt::requested() {
            return Err(interrupted());
        }
        if Instant::now() > deadline {
            return Err(died("QEMU did not open its control socket"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the hello. Notices a panic on the console, or QEMU's end, at once.
fn await_hello(
    hello: &mpsc::Receiver<Heard>,
    qemu: &mut Child,
    deadline: Instant,
    spec: &VmSpec,
    console: &Path,
) -> Result<Hello, Failure> {
    loop {
        match hello.recv_timeout(SLICE) {
            Ok(Ok(Reply::Hello(hello))) => return Ok(hello),
            Ok(Err(line)) => return Err(malformed(&line)),
            Ok(Ok(other)) => return Err(died(&format!("expected a hello, got {other:?}"))),
            Err(mpsc::RecvTimeoutError::Timeout) => check_alive(qemu)?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(died("the control channel closed before the guest said hello"));
            }
        }
        if interrupt::requested() {
            return Err(interrupted());
        }
        if console::classify(&console::tail(console), "").is_some() {
            return Err(Failure::new(FailureKind::GuestPanic, "the guest's kernel failed at boot"));
        }
        if Instant::now() > deadline {
            let detail = format!("{}: no hello within {} s", spec.name, spec.boot_limit_s);
            return Err(Failure::new(FailureKind::BootTimeout, detail));
        }
    }
}

fn check_alive(qemu: &mut Child) -> Result<(), Failure> {
    match qemu.try_wait() {
        Ok(Some(status)) => Err(died(&format!("QEMU ended: {status}"))),
        _ => Ok(()),
    }
}

/// Passes replies on until the socket closes. All senders are then dropped, which ends every wait.
/// A line that is not a reply goes to every waiting caller, because it may have been the answer to
/// any of them. A line beyond the limit is cut at the limit. A line without an end comes from a
/// QEMU that died.
fn dispatch(mut lines: impl BufRead, waiting: &Waiting, limit: u64) {
    let mut line = Vec::new();
    while matches!(lines.by_ref().take(limit).read_until(b'\n', &mut line), Ok(1..)) {
        if !line.ends_with(b"\n") && (line.len() as u64) < limit {
            break;
        }
        match serde_json::from_slice::<Envelope<Reply>>(&line) {
            Ok(Envelope { id, body }) => {
                if let Some(sender) = lock(waiting).remove(&id) {
                    let _ = sender.send(Ok(body));
                }
            }
            Err(_) => {
                let start = String::from_utf8_lossy(&line[..line.len().min(MALFORMED_SHOWN)]);
                for (_, sender) in lock(waiting).drain() {
                    let _ = sender.send(Err(start.trim_end().to_owned()));
                }
            }
        }
        line.clear();
    }
    lock(waiting).clear();
}

fn malformed(start: &str) -> Failure {
    let detail = format!("the guest sent no message of protocol {PROTOCOL}: `{start}`");
    Failure::new(FailureKind::BadReply, detail)
}

fn interrupted() -> Failure {
    Failure::new(FailureKind::Interrupted, "interrupted")
}

fn died(detail: &str) -> Failure {
    Failure::new(FailureKind::QemuDied, detail)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: impl AsRef<[u8]>) -> Result<Reply, Failure> {
        let waiting = Waiting::default();
        let (sender, receiver) = mpsc::channel();
        lock(&waiting).insert(7, sender);
        dispatch(lines.as_ref(), &waiting, 100);
        wait(&receiver, Duration::from_secs(1), &|| false)
    }

    #[test]
    fn ctrl_c_is_an_interruption_and_silence_a_hang() {
        let (_guest, replies) = mpsc::channel();
        let kind = |stopped| wait(&replies, Duration::ZERO, &|| stopped).unwrap_err().kind;
        assert_eq!(kind(true), FailureKind::Interrupted);
        assert_eq!(kind(false), FailureKind::GuestHang);
    }

    #[test]
    fn a_reply_reaches_who_waits_for_it() {
        let reply = heard("{\"id\":3,\"body\":\"Shared\"}\n{\"id\":7,\"body\":\"Shared\"}\n");
        assert!(matches!(reply, Ok(Reply::Shared)), "{reply:?}");
    }

    #[test]
    fn a_malformed_reply_is_a_failure_of_its_own_kind() {
        let failure = heard("{\"id\":7,\"bo\n").unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadReply);
        assert!(failure.detail.contains("{\"id\":7,\"bo"), "{failure}");
    }

    #[test]
    fn a_line_beyond_the_limit_or_not_in_utf8_is_malformed() {
        let reply = |spaces| format!("{{\"id\":7,\"body\":\"Shared\"{}}}\n", " ".repeat(spaces));
        assert!(heard(reply(1)).is_ok());
        assert_eq!(heard(reply(100)).unwrap_err().kind, FailureKind::BadReply);
        let failure = heard(b"{\"id\":7,\"body\":\"\xff\"}\n").unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadReply);
    }

    #[test]
    fn a_socket_with_too_long_a_path_fails_at_once() {
        let mut qemu = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let socket = Path::new("/tmp").join("x".repeat(200)).join("ctl.sock");
        let started = Instant::now();
        let result = connect(&socket, &mut qemu, started + Duration::from_secs(30));
        qemu.kill().and_then(|()| qemu.wait()).unwrap();
        let failure = result.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable);
        assert!(failure.detail.contains("TMPDIR"), "{failure}");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_closed_channel_is_a_qemu_that_died() {
        assert_eq!(heard("").unwrap_err().kind, FailureKind::QemuDied);
        let in_a_reply = heard("{\"id\":7,\"body\":{\"Ran\":").unwrap_err();
        assert_eq!(in_a_reply.kind, FailureKind::QemuDied);
    }
}

//! Figures for Prometheus, at `http://ADDR/metrics`.

mod http;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximum number of concurrent clients. Further connections are closed.
const CLIENTS: usize = 64;
/// Pause after an error that may last, such as too many open files.
const PAUSE: Duration = Duration::from_secs(1);

/// A function that returns the served text, or `None` if the figures are unavailable.
type Figures = dyn Fn() -> Option<String> + Send + Sync;

/// Parses an address to listen on. `:9469` is that port on all IPv4 interfaces.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    whole.parse().map_err(|_| {
        "an IP address and a port are needed: 127.0.0.1:9469, [::1]:9469, :9469".into()
    })
}

/// A listening socket for clients.
pub struct Metrics {
    listener: TcpListener,
    address: SocketAddr,
}

/// A running server. Dropping this value ends it.
pub struct Serving {
    _end: UnixStream,
}

impl Metrics {
    /// Listens on this address.
    pub fn listen(address: SocketAddr) -> anyhow::Result<Metrics> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            // A client may disconnect before the server accepts it.
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Metrics { listener, address })
        };
        listen().map_err(|error: io::Error| anyhow!("cannot listen on {address}: {error}"))
    }

    /// Returns the address of the figures.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Answers clients from now on, each in its own thread, so that a slow client delays neither
    /// other clients nor the caller. The server sleeps until a client connects.
    pub fn serve(
        self,
        figures: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<Serving> {
        let (end, ended) = UnixStream::pair()?;
        let figures: Arc<Figures> = Arc::new(figures);
        thread::Builder::new().spawn(move || accept(&self.listener, &ended, &figures))?;
        Ok(Serving { _end: end })
    }
}

fn accept(listener: &TcpListener, ended: &UnixStream, figures: &Arc<Figures>) {
    let clients = Arc::new(());
    let mut said = false;
    while !is_over(listener, ended) {
        let start = |(client, _)| start(client, clients.clone(), figures.clone());
        let Err(error) = listener.accept().and_then(start) else { continue };
        let passing = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionAborted];
        if passing.contains(&error.kind()) {
            continue;
        }
        if !said {
            note!("unspin: a client for figures was not answered: {error}");
            said = true;
        }
        thread::sleep(PAUSE);
    }
}

/// Waits for a client. Returns whether the server has to end.
fn is_over(listener: &TcpListener, ended: &UnixStream) -> bool {
    let files = [listener.as_fd(), ended.as_fd()];
    let mut files = files.map(|file| PollFd::new(file, PollFlags::POLLIN));
    // A signal may interrupt the call. `accept` then finds no client.
    let _ = poll(&mut files, PollTimeout::NONE);
    files[1].any() != Some(false)
}

/// Starts a thread for a client. The thread keeps its clone of `clients` until it has answered.
fn start(client: TcpStream, clients: Arc<()>, figures: Arc<Figures>) -> io::Result<()> {
    // The server itself holds one reference.
    if Arc::strong_count(&clients) > CLIENTS + 1 {
        return Ok(());
    }
    let serve = move || {
        // The client may have disconnected or be too slow. Other clients still get their answers.
        let _ = http::serve(client, &*figures);
        drop(clients);
    };
    thread::Builder::new().spawn(serve).map(drop)
}

/// Requests by clients to the thread that owns the figures.
pub struct Questions(Receiver<Sender<String>>);

/// Returns the function for [`Metrics::serve`], and the [`Questions`] that it asks.
pub fn questions() -> (impl Fn() -> Option<String> + Send + Sync + 'static, Questions) {
    let (ask, asked) = channel();
    let figures = move || {
        let (reply, replied) = channel();
        ask.send(reply).ok()?;
        replied.recv_timeout(http::TIME).ok()
    };
    (figures, Questions(asked))
}

impl Questions {
    /// Waits up to `within` for a client's request, and then answers all pending requests.
    pub fn answer(&self, within: Duration, figures: impl FnOnce() -> String) {
        let first = match self.0.recv_timeout(within) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => return thread::sleep(within),
        };
        let text = figures();
        for reply in std::iter::once(first).chain(self.0.try_iter()) {
            // The client has timed out if this fails.
            let _ = reply.send(text.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Instant;

    use super::*;

    /// Serves these figures, and returns the server's address.
    fn serving(
        figures: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> (SocketAddr, Serving) {
        let metrics = Metrics::listen(address("127.0.0.1:0").unwrap()).unwrap();
        (metrics.address, metrics.serve(figures).unwrap())
    }

    fn short() -> Option<String> {
        Some("# EOF\n".to_owned())
    }

    fn asking(at: SocketAddr, path: &str) -> TcpStream {
        let mut client = TcpStream::connect(at).unwrap();
        write!(client, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        client
    }

    fn answer(mut client: TcpStream) -> io::Result<String> {
        let mut answer = String::new();
        client.read_to_string(&mut answer).map(|_| answer)
    }

    #[test]
    fn a_port_alone_is_all_interfaces() {
        assert_eq!(address(":9").unwrap().to_string(), "0.0.0.0:9");
        assert_eq!(address("[::1]:9").unwrap().to_string(), "[::1]:9");
        for text in ["", "9", ":", ":x", "localhost"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_root_leads_to_the_figures() {
        let (at, _serving) = serving(short);
        for (path, holds) in [("/", "href=\"/metrics\""), ("/metrics", "# EOF"), ("/x", " 404 ")] {
            let answer = answer(asking(at, path)).unwrap();
            assert!(answer.contains(holds), "{path}: {answer}");
        }
        let long = format!("/{}", "x".repeat(9_000));
        // The kernel may discard the answer, because the server did not read the whole request.
        let answer = answer(asking(at, &long)).unwrap_or_default();
        assert!(!answer.contains(" 200 "), "{answer}");
    }

    #[test]
    fn who_has_the_figures_answers_until_the_end() {
        let (figures, questions) = questions();
        let (at, serving) = serving(figures);
        let client = asking(at, "/metrics");
        questions.answer(Duration::from_secs(60), || "# EOF\n".into());
        assert!(answer(client).unwrap().ends_with("# EOF\n"));
        questions.answer(Duration::ZERO, || unreachable!("nobody asks"));
        drop(serving);
        let ends = Instant::now();
        while TcpStream::connect(at).is_ok() {
            assert!(ends.elapsed() < Duration::from_secs(60), "it still listens");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_client_that_does_not_read_holds_up_nobody() {
        const LENGTH: usize = 32 << 20;
        let (figures, questions) = questions();
        let (at, _serving) = serving(figures);
        let (_silent, client) = (asking(at, "/metrics"), asking(at, "/metrics"));
        let read = thread::spawn(move || answer(client).unwrap());
        while !read.is_finished() {
            questions.answer(Duration::from_millis(10), || "x".repeat(LENGTH));
        }
        assert!(read.join().unwrap().len() > LENGTH);
    }

    #[test]
    fn idle_clients_are_limited_and_others_are_answered_after_them() {
        let (at, _serving) = serving(short);
        let idle: Vec<TcpStream> = (0..CLIENTS).map(|_| TcpStream::connect(at).unwrap()).collect();
        assert_eq!(answer(TcpStream::connect(at).unwrap()).unwrap(), "", "one too many");
        drop(idle);
        let started = Instant::now();
        while !answer(asking(at, "/metrics")).is_ok_and(|answer| answer.contains("# EOF")) {
            assert!(started.elapsed() < Duration::from_secs(60), "it answers nobody any more");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

//! Figures for Prometheus, at `http://ADDR/metrics`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tiny_http::{Header, Request, Response, Server};
use unspin_report::openmetrics;

/// How many files may be open, if the system allows it.
const FILES: u64 = 1 << 16;
/// For who opens the address in a browser.
const PAGE: &str = "<!doctype html><title>unspin</title>\
                    <p>unspin: time lost by this guest's vCPUs. \
                    The figures are at <a href=\"/metrics\">/metrics</a>, for Prometheus.\n";

/// An address to listen at; `:9469` is that port on all IPv4 interfaces.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    whole.parse().map_err(|_| {
        "an IP address and a port are needed: 127.0.0.1:9469, [::1]:9469, :9469".into()
    })
}

/// Each client has two files open until it goes, and who limits cgroups needs some as well.
fn allow_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(FILES)), hard);
    }
}

/// The server, which answers in [`Metrics::answer`] only.
pub struct Metrics {
    server: Server,
    kind: Header,
    page: Header,
}

impl Metrics {
    /// Listens at this address.
    pub fn listen(address: SocketAddr) -> anyhow::Result<Metrics> {
        allow_files();
        let server = Server::http(address);
        let server = server.map_err(|error| anyhow!("cannot listen on {address}: {error}"))?;
        let header = |kind: &str| {
            Header::from_bytes("Content-Type", kind)
                .map_err(|()| anyhow!("invalid Content-Type {kind:?}"))
        };
        let (kind, page) = (header(openmetrics::CONTENT_TYPE)?, header("text/html")?);
        Ok(Metrics { server, kind, page })
    }

    /// Where the figures are.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.server.server_addr())
    }

    /// Answers one that asks within this time, if one does.
    pub fn answer(
        &self,
        within: Duration,
        figures: impl FnOnce() -> String,
    ) -> std::io::Result<()> {
        if let Some(request) = self.server.recv_timeout(within)? {
            self.respond(request, figures);
        }
        Ok(())
    }

    /// Answers the next one that asks, whenever that is, or fails once [`Metrics::end`] is called.
    /// Nothing wakes up until then.
    pub fn answer_next(&self, figures: impl FnOnce() -> String) -> std::io::Result<()> {
        self.respond(self.server.recv()?, figures);
        Ok(())
    }

    /// Ends the wait of one thread in [`Metrics::answer_next`].
    pub fn end(&self) {
        self.server.unblock();
    }

    fn respond(&self, request: Request, figures: impl FnOnce() -> String) {
        let answer = match request.url() {
            "/metrics" => Response::from_string(figures()).with_header(self.kind.clone()),
            "/" => Response::from_string(PAGE).with_header(self.page.clone()),
            _ => Response::from_string("the figures are at /metrics\n").with_status_code(404),
        };
        // Who asked may have gone; that is no reason to stop watching.
        let _ = request.respond(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

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
        let metrics = Metrics::listen(address("127.0.0.1:0").unwrap()).unwrap();
        let at = metrics.server.server_addr().to_ip().unwrap();
        for (path, holds) in [("/", "href=\"/metrics\""), ("/metrics", "# EOF"), ("/x", " 404 ")] {
            let mut client = TcpStream::connect(at).unwrap();
            write!(client, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
            metrics.answer(Duration::from_secs(10), || "# EOF\n".into()).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(holds), "{path}: {answer}");
        }
    }

    #[test]
    fn who_waits_for_questions_answers_them_until_the_end() {
        let metrics = Metrics::listen(address("127.0.0.1:0").unwrap()).unwrap();
        let at = metrics.server.server_addr().to_ip().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| while metrics.answer_next(|| "# EOF\n".into()).is_ok() {});
            let mut client = TcpStream::connect(at).unwrap();
            write!(client, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.contains("# EOF") && !waits.is_finished(), "{answer}");
            metrics.end();
            waits.join().unwrap();
        });
    }
}

//! Figures for Prometheus, at `http://ADDR/metrics`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use tiny_http::{Header, Response, Server};
use unspin_report::openmetrics;

/// The server, which answers when it is told to.
pub struct Metrics {
    server: Server,
    kind: Header,
}

impl Metrics {
    /// Listens at this address.
    pub fn listen(address: SocketAddr) -> anyhow::Result<Metrics> {
        let server = Server::http(address);
        let server = server.map_err(|error| anyhow!("cannot listen on {address}: {error}"))?;
        let kind = Header::from_bytes("Content-Type", openmetrics::CONTENT_TYPE);
        let kind = kind.map_err(|()| anyhow!("a header that is none"))?;
        Ok(Metrics { server, kind })
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
        let Some(request) = self.server.recv_timeout(within)? else { return Ok(()) };
        let answer = match request.url() {
            "/metrics" => Response::from_string(figures()).with_header(self.kind.clone()),
            _ => Response::from_string("the figures are at /metrics\n").with_status_code(404),
        };
        // Who asked may have gone; that is no reason to stop watching.
        let _ = request.respond(answer);
        Ok(())
    }
}

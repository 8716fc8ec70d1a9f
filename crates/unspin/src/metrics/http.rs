//! Answers one HTTP request.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use unspin_report::openmetrics;

use super::Figures;

/// Time limit for reading a request, and for writing its answer.
pub const TIME: Duration = Duration::from_secs(10);
/// Time limit for a client to close the connection after it has the answer.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum size of a request's line and headers, in bytes.
const HEAD_MAX: usize = 8 << 10;
/// The separator between headers and body of an answer.
const HEAD_END: &str = "\r\n\r\n";
/// The page for users who open the address in a browser.
const PAGE: &str = "<!doctype html><title>unspin</title>\
                    <p>unspin: time lost by this guest's vCPUs. \
                    The figures are at <a href=\"/metrics\">/metrics</a>, for Prometheus.\n";

/// Answers the one request of a connection.
pub fn serve(mut client: TcpStream, figures: &Figures) -> io::Result<()> {
    let head = read_head(&mut client)?;
    write(&mut client, &head.map_or_else(too_long, |head| answer(&head, figures)))?;
    // If the socket closes with unread input, the kernel resets the connection and discards the
    // answer.
    client.shutdown(Shutdown::Write)?;
    client.set_read_timeout(Some(LINGER))?;
    let mut rest = [0; HEAD_MAX];
    client.read(&mut rest).map(drop)
}

/// Reads the request's line and headers. Returns `None` if they are too long.
fn read_head(client: &mut TcpStream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + TIME;
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    while head.len() <= HEAD_MAX {
        client.set_read_timeout(Some(left(deadline)?))?;
        let read = match client.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let seen = head.len().saturating_sub(3);
        head.extend_from_slice(&piece[..read]);
        let has = |end: &[u8]| head[seen..].windows(end.len()).any(|bytes| bytes == end);
        if has(b"\r\n\r\n") || has(b"\n\n") {
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
    }
    Ok(None)
}

fn answer(head: &str, figures: &Figures) -> String {
    let mut words = head.split([' ', '\r', '\n']);
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let mut answer = match (method, path) {
        ("GET" | "HEAD", "/metrics") => figures().map_or_else(
            || text("503 Service Unavailable", "text/plain", "no figures came in time\n"),
            |figures| text("200 OK", openmetrics::CONTENT_TYPE, &figures),
        ),
        ("GET" | "HEAD", "/") => text("200 OK", "text/html", PAGE),
        (_, "/metrics" | "/") => text(
            "405 Method Not Allowed\r\nAllow: GET, HEAD",
            "text/plain",
            "only GET and HEAD are answered\n",
        ),
        _ => text("404 Not Found", "text/plain", "the figures are at /metrics\n"),
    };
    if method == "HEAD" {
        // RFC 9110, 9.3.2: HEAD gets the answer to GET without the body.
        let end = answer.find(HEAD_END).map_or(answer.len(), |at| at + HEAD_END.len());
        answer.truncate(end);
    }
    answer
}

fn too_long() -> String {
    text("431 Request Header Fields Too Large", "text/plain", "the request is too long\n")
}

fn text(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

fn write(client: &mut TcpStream, text: &str) -> io::Result<()> {
    let deadline = Instant::now() + TIME;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        client.set_write_timeout(Some(left(deadline)?))?;
        match client.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time until `deadline`. The result is never 0, because a socket timeout of 0 means no
/// limit.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_answered() {
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\n", "200 OK\r\n"),
            ("GET /metrics?name=x HTTP/1.1\r\n", "200 OK\r\n"),
            ("GET /metrics\n", "200 OK\r\n"),
            ("GET / HTTP/1.0\r\n", "200 OK\r\n"),
            ("GET /metrics/ HTTP/1.1\r\n", "404 Not Found\r\n"),
            ("POST /metrics HTTP/1.1\r\n", "405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"),
            ("\r\n", "404 Not Found\r\n"),
        ] {
            let answer = answer(request, &|| Some("# EOF\n".to_owned()));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
            assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        }
        assert!(answer("GET /metrics HTTP/1.1\r\n", &|| None).starts_with("HTTP/1.1 503 "));
    }

    #[test]
    fn head_is_answered_as_get_without_the_body() {
        for path in ["/metrics", "/", "/x"] {
            let of = |method: &str| {
                let figures = || Some("# EOF\n".to_owned());
                answer(&format!("{method} {path} HTTP/1.1\r\n"), &figures)
            };
            let (whole, head) = (of("GET"), of("HEAD"));
            let body = whole.strip_prefix(&head).expect("the same headers");
            assert!(head.ends_with(HEAD_END) && !body.is_empty(), "{path}: {head}");
        }
    }
}

//! A unix socket that reports the statistics of the guest scheduler.
//!
//! A request is a line of one word, and the answer to it is a line of JSON. The answer to `stats`
//! is a [`Stats`], to everything else `{"error":"..."}`. The server disconnects a client that asks
//! too much or does not read: it never waits for a client.

mod client;
mod server;

pub use client::{AskError, ask, follow};
pub use server::{BindError, Socket};

use unspin_model::scheduler::Stats;

/// The default path of the socket.
pub const PATH: &str = "/run/unspin/run.sock";

/// The request for the statistics.
const STATS: &str = "stats";

/// Returns the answer to a request, a line.
fn answer(request: &[u8], stats: &Stats) -> String {
    let word = request.trim_ascii();
    let text = if word == STATS.as_bytes() {
        serde_json::to_string(stats).unwrap_or_else(|error| refusal(&error.to_string()))
    } else {
        refusal("an unknown request: `stats` is known")
    };
    text + "\n"
}

fn refusal(why: &str) -> String {
    serde_json::json!({ "error": why }).to_string()
}

#[cfg(test)]
mod tests;

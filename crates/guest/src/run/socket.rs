//! A unix socket that reports what the guest scheduler does.
//!
//! A request is a line of one word, the answer to it a line of JSON. To `stats` it is a
//! [`Stats`], to everything else `{"error":"..."}`. Whoever asks too much or does not read
//! is let go: nothing here waits for a client.

mod client;
mod server;

pub use client::{AskError, ask, follow};
pub use server::{BindError, Socket};

use unspin_model::scheduler::Stats;

/// Where it is, if nobody says otherwise.
pub const PATH: &str = "/run/unspin/run.sock";

/// Asks for the figures.
const STATS: &str = "stats";

/// The answer to a request, a line.
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

//! Where others can read the scheduler's figures while it works.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use unspin_guest::run::socket::Socket;
use unspin_model::scheduler::Stats;
use unspin_report::openmetrics;

use crate::metrics::{Metrics, Serving};

/// The socket, and the address for Prometheus; both are gone when this is dropped.
pub struct Offer {
    socket: Option<Socket>,
    latest: Arc<Mutex<Stats>>,
    _serving: Option<Serving>,
}

impl Offer {
    /// Opens both. What cannot be opened is reported, and is not there then.
    pub fn open(path: &Path, metrics: Option<Metrics>) -> Offer {
        let socket = Socket::bind(path)
            .inspect_err(|error| {
                note!("unspin: no socket at {}, so no --status: {error}", path.display());
            })
            .ok();
        let latest = Arc::<Mutex<Stats>>::default();
        let serving = metrics.and_then(|metrics| serve(metrics, latest.clone()));
        Offer { socket, latest, _serving: serving }
    }

    /// What can be read where somebody asks.
    pub fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.socket.iter().flat_map(Socket::files).collect()
    }

    /// These are the figures now: answers who asks for them.
    pub fn step(&mut self, stats: &Stats) {
        stats.clone_into(&mut self.latest.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(socket) = &mut self.socket {
            socket.step(stats);
        }
    }
}

fn serve(metrics: Metrics, latest: Arc<Mutex<Stats>>) -> Option<Serving> {
    let url = metrics.url();
    let figures = move || {
        let stats = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(openmetrics::scheduler(&stats))
    };
    match metrics.serve(figures) {
        Ok(serving) => {
            note!("unspin: figures at {url}");
            Some(serving)
        }
        Err(error) => {
            note!("unspin: no figures at {url}: {error}");
            None
        }
    }
}

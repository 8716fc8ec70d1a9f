//! Offers the scheduler's figures to other processes while it works.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use unspin_guest::run::socket::Socket;
use unspin_model::scheduler::Stats;
use unspin_report::openmetrics;

use crate::metrics::{Metrics, Serving};

/// The socket, and the address for Prometheus. Dropping this value closes both.
pub struct Offer {
    socket: Option<Socket>,
    latest: Arc<Mutex<Stats>>,
    _serving: Option<Serving>,
}

impl Offer {
    /// Opens both. A failure is reported, and the other one still works.
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

    /// Returns the files that become readable when a client asks.
    pub fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.socket.iter().flat_map(Socket::files).collect()
    }

    /// Stores the current figures, and answers waiting clients.
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

//! Where others can read the scheduler's figures while it works.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use unspin_guest::run::socket::Socket;
use unspin_model::scheduler::Stats;
use unspin_report::openmetrics;

use crate::metrics::Metrics;

/// The socket, and the address for Prometheus; both are gone when this is dropped.
pub struct Offer {
    socket: Option<Socket>,
    metrics: Option<Arc<Metrics>>,
    latest: Arc<Mutex<Stats>>,
    over: Arc<AtomicBool>,
}

impl Offer {
    /// Opens both. A socket that cannot be made is
    /// reported, and there is no --status then.
    pub fn open(path: &Path, metrics: Option<Metrics>) -> Offer {
        let socket = Socket::bind(path)
            .inspect_err(|error| {
                note!("unspin: no socket at {}, so no --status: {error}", path.display());
            })
            .ok();
        let (latest, over) = Default::default();
        let offer = Offer { socket, metrics: metrics.map(Arc::new), latest, over };
        if let Some(metrics) = offer.metrics.clone() {
            note!("unspin: figures at {}", metrics.url());
            let (latest, over) = (offer.latest.clone(), offer.over.clone());
            // Its answers may block, so it has a thread of its own.
            thread::spawn(move || serve(&metrics, &latest, &over));
        }
        offer
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

impl Drop for Offer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.metrics.iter().for_each(|metrics| metrics.end());
    }
}

fn serve(metrics: &Metrics, latest: &Mutex<Stats>, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let figures = || {
            let stats = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
            openmetrics::scheduler(&stats)
        };
        match metrics.answer_next(figures) {
            Err(error) if !over.load(Ordering::Relaxed) => {
                note!("unspin: no more figures for Prometheus: {error}");
                return;
            }
            _ => {}
        }
    }
}

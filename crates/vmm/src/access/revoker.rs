//! The source of revocations. It imitates a guest that converts shared pages back to private ones.
//!
//! A confidential guest reports its own conversions (see [`super::conversions`]). A plain guest
//! makes none, so this thread revokes open pages at a fixed rate instead. It does not spare the
//! pages of rings.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::table::Table;
use crate::machine::lock;
use crate::sandbox::Kind;

/// The shortest sleep of the thread. At high rates, it revokes several pages after each sleep.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The divisor of the rate that limits how many revocations the thread makes at once after a delay.
const CATCH_UP: u64 = 20;

/// The revoking thread, which ends when this value is dropped.
#[derive(Debug)]
pub struct Revoker {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Revoker {
    /// Starts a thread that revokes `per_s` pages a second. The thread calls `enter` first, and
    /// keeps the value that `enter` returns until the thread ends.
    pub fn start<G>(
        table: Arc<Table>,
        per_s: u32,
        enter: impl FnOnce() -> io::Result<G> + Send + 'static,
    ) -> io::Result<Revoker> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let own = Arc::clone(&stop);
        let name = Kind::Revoker.name().to_owned();
        let thread = Builder::new().name(name).spawn(move || {
            if let Ok(_guard) = enter() {
                revoke(&table, per_s, &own);
            }
        })?;
        Ok(Revoker { stop, thread: Some(thread) })
    }
}

impl Drop for Revoker {
    fn drop(&mut self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the VM has ended for that reason.
            let _ = thread.join();
        }
    }
}

fn revoke(table: &Table, per_s: u32, stop: &(Mutex<bool>, Condvar)) {
    let (start, mut done, mut next) = (Instant::now(), 0, 0);
    let sleep = SLEEP_MIN.max(Duration::from_secs(1) / per_s.max(1));
    loop {
        let stopped = lock(&stop.0);
        let waited = stop.1.wait_timeout_while(stopped, sleep, |stopped| !*stopped);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
        let due = (start.elapsed().as_secs_f64() * f64::from(per_s)) as u64;
        // Revocations that found no open page, or no time, are not made up for.
        let most = u64::from(per_s).div_ceil(CATCH_UP);
        for _ in done..due.min(done + most) {
            let Some(page) = table.open_page(next) else { break };
            table.revoke(page);
            next = page + 1;
        }
        done = due;
    }
}

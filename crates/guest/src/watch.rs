//! The sensor's findings, kept for some seconds.

use unspin_trace::live::Live;
use unspin_trace::totals::Totals;

use crate::record::idle_ns;
use crate::sense::{Heartbeat, SenseError, Sensor, Settings, Vcpu, now_ns};

/// Fetches findings into a [`Live`] picture.
pub struct Watcher {
    sensor: Sensor,
    before: Vec<Vcpu>,
    before_ns: u64,
    /// The picture.
    pub live: Live,
    /// Sums since the start.
    pub totals: Totals,
}

impl Watcher {
    /// Starts the sensor.
    pub fn start(settings: &Settings) -> Result<Watcher, SenseError> {
        let sensor = Sensor::start(settings)?;
        let start_ns = now_ns();
        let before = sensor.page().all();
        let live = Live::new(before.len() as u16, start_ns);
        let totals = Totals::new(before.len() as u16);
        Ok(Watcher { sensor, before, before_ns: start_ns, live, totals })
    }

    /// What this kernel cannot tell.
    pub fn missing(&self) -> &[String] {
        &self.sensor.missing
    }

    /// The heartbeats that were chosen.
    pub fn heartbeat(&self) -> Heartbeat {
        self.sensor.heartbeat
    }

    /// Fetches what is new.
    pub fn step(&mut self) {
        let found = self.sensor.take();
        let (now, end_ns) = (self.sensor.page().all(), now_ns());
        let idle = now.iter().zip(&self.before).map(|(now, before)| {
            idle_ns(now, end_ns).saturating_sub(idle_ns(before, self.before_ns))
        });
        let idle = idle.collect();
        let seconds = (end_ns - self.before_ns) as f64 / 1e9;
        let (offs, spins, lost) = (found.offs, found.spins, found.lost);
        self.live.add(end_ns, offs.clone(), spins.clone(), idle, lost);
        let earliest_ns = spins.iter().map(|spin| spin.begin_ns).min().unwrap_or(end_ns);
        self.totals.add(seconds, &offs, &self.live.offs_since(earliest_ns), spins, lost);
        (self.before, self.before_ns) = (now, end_ns);
    }
}

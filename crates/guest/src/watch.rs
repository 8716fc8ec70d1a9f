//! Keeps a sensor's findings for some seconds, or only their sums.

use unspin_trace::live::{Live, News};
use unspin_trace::totals::{Sum, Totals};

use crate::sense::{Heartbeat, LightSensor, SenseError, Sensor, Settings, Vcpu, now_ns};
use crate::steal::Steal;

/// Fetches findings into a [`Live`] picture.
pub struct Watcher {
    sensor: Sensor,
    before: Vec<Vcpu>,
    before_ns: u64,
    steal: Steal,
    steal_before: Vec<u64>,
    /// The picture of the last seconds.
    pub live: Live,
    /// The sums since the start.
    pub totals: Totals,
}

impl Watcher {
    /// Starts the sensor.
    pub fn start(settings: &Settings) -> Result<Watcher, SenseError> {
        let mut sensor = Sensor::start(settings)?;
        // Drop findings from while the sensor was being attached: they lie before the start.
        let _ = sensor.take();
        let start_ns = now_ns();
        let before = sensor.page().all();
        let live = Live::new(before.len() as u16, start_ns);
        let totals = Totals::new(before.len() as u16);
        let mut steal = Steal::start(before.len());
        let steal_before = steal.ns();
        Ok(Watcher { sensor, before, before_ns: start_ns, steal, steal_before, live, totals })
    }

    /// Returns the hooks that this kernel lacks.
    pub fn missing(&self) -> &[String] {
        &self.sensor.missing
    }

    /// Returns the chosen heartbeats.
    pub fn heartbeat(&self) -> Heartbeat {
        self.sensor.heartbeat
    }

    /// Covers vCPUs that have come online since: they are a part of the machine as well.
    fn cover_added(&mut self) {
        self.sensor.show_added();
        let vcpus = self.sensor.page().vcpus();
        self.steal.cover(vcpus);
        self.live.cover(vcpus as u16);
        self.totals.cover(vcpus as u16);
    }

    /// Fetches new findings.
    pub fn step(&mut self) {
        self.cover_added();
        let found = self.sensor.take();
        // Read the time first: if this thread is preempted in between, other vCPUs do not seem to
        // idle on.
        let (end_ns, now) = (now_ns(), self.sensor.page().all());
        let idle = now.iter().zip(&self.before).map(|(now, before)| {
            now.idle_until(end_ns).saturating_sub(before.idle_until(self.before_ns))
        });
        let beats = now.iter().zip(&self.before).map(|(now, before)| now.beats - before.beats);
        let user_spin_ns = self.sensor.user_spin_ns(&now);
        let spun_ns = user_spin_ns.iter().zip(&self.before);
        let steal_ns = self.steal.ns();
        let stolen_ns = steal_ns.iter().zip(&self.steal_before);
        let seconds = (end_ns - self.before_ns) as f64 / 1e9;
        let (offs, spins, lost) = (found.offs, found.spins, found.lost);
        let news = News {
            offs: offs.clone(),
            spins: spins.clone(),
            idle_ns: idle.collect(),
            user_spin_ns: spun_ns.map(|(ns, before)| ns - before.samples.user_spin_ns).collect(),
            steal_ns: stolen_ns.map(|(ns, before)| ns - before).collect(),
            beats: beats.collect(),
            lost,
        };
        // Leave out waits that slept: they can be long, and have no waiters in front of them.
        let spun = spins.iter().filter(|spin| !spin.asleep);
        let spun_from_ns = spun.map(|spin| spin.begin_ns).min().unwrap_or(end_ns);
        let before = self.live.spins_since(spun_from_ns);
        self.live.add(end_ns, news);
        self.totals.offline = self.sensor.page().offline();
        self.live.leave_out(self.totals.offline.clone());
        let earliest_ns = spins.iter().map(|spin| spin.begin_ns).min().unwrap_or(end_ns);
        let around = self.live.offs_since(earliest_ns);
        self.totals.add(seconds, &offs, &around, before, spins, lost);
        self.totals.idle_ns = now.iter().map(|vcpu| vcpu.idle_until(end_ns)).collect();
        self.totals.looks = now.iter().map(looks).collect();
        self.totals.user_spin_ns = user_spin_ns;
        self.totals.steal_ns.clone_from(&steal_ns);
        self.steal_before = steal_ns;
        (self.before, self.before_ns) = (now, end_ns);
    }
}

/// Sums of each vCPU's activity, at next to no cost.
pub struct Sums {
    sensor: LightSensor,
    start_ns: u64,
    steal: Steal,
}

impl Sums {
    /// Starts the light sensor.
    pub fn start(settings: &Settings) -> Result<Sums, SenseError> {
        let sensor = LightSensor::start(settings)?;
        let steal = Steal::start(sensor.page().vcpus());
        Ok(Sums { sensor, start_ns: now_ns(), steal })
    }

    /// Returns the hooks that this kernel lacks.
    pub fn missing(&self) -> &[String] {
        &self.sensor.missing
    }

    /// Returns the sums since the start.
    pub fn totals(&mut self) -> Totals {
        // Cover vCPUs that have come online since, as `Watcher::cover_added` does.
        self.sensor.show_added();
        self.steal.cover(self.sensor.page().vcpus());
        // Read the time first: if this thread is preempted in between, no sum decreases later.
        let (now_ns, vcpus) = (now_ns(), self.sensor.page().all());
        Totals {
            seconds: now_ns.saturating_sub(self.start_ns) as f64 / 1e9,
            offline: self.sensor.page().offline(),
            off: vcpus.iter().map(|vcpu| Sum { count: vcpu.offs, ns: vcpu.off_ns }).collect(),
            steal_ns: self.steal.ns(),
            idle_ns: vcpus.iter().map(|vcpu| vcpu.idle_until(now_ns)).collect(),
            looks: vcpus.iter().map(looks).collect(),
            user_spin_ns: vcpus.iter().map(|vcpu| vcpu.samples.user_spin_ns).collect(),
            causes: None,
        }
    }
}

fn looks(vcpu: &Vcpu) -> Sum {
    Sum { count: vcpu.samples.count, ns: vcpu.samples.spin_ns }
}

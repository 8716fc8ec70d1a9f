//! What a sensor finds: kept for some seconds, or as sums alone.

use unspin_trace::live::{Live, News};
use unspin_trace::totals::{Sum, Totals};

use crate::sense::{Heartbeat, LightSensor, SenseError, Sensor, Settings, Vcpu, now_ns};

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
            now.idle_until(end_ns).saturating_sub(before.idle_until(self.before_ns))
        });
        let user_spin_ns = self.sensor.user_spin_ns(&now);
        let new_ns = user_spin_ns.iter().zip(&self.before);
        let seconds = (end_ns - self.before_ns) as f64 / 1e9;
        let (offs, spins, lost) = (found.offs, found.spins, found.lost);
        let news = News {
            offs: offs.clone(),
            spins: spins.clone(),
            idle_ns: idle.collect(),
            user_spin_ns: new_ns.map(|(ns, before)| ns - before.looks.user_spin_ns).collect(),
            lost,
        };
        self.live.add(end_ns, news);
        let earliest_ns = spins.iter().map(|spin| spin.begin_ns).min().unwrap_or(end_ns);
        self.totals.add(seconds, &offs, &self.live.offs_since(earliest_ns), spins, lost);
        self.totals.idle_ns = now.iter().map(|vcpu| vcpu.idle_until(end_ns)).collect();
        self.totals.looks = now.iter().map(looks).collect();
        self.totals.user_spin_ns = user_spin_ns;
        (self.before, self.before_ns) = (now, end_ns);
    }
}

/// Sums of what each vCPU did, at next to no cost.
pub struct Sums {
    sensor: LightSensor,
    start_ns: u64,
}

impl Sums {
    /// Starts the light sensor.
    pub fn start(settings: &Settings) -> Result<Sums, SenseError> {
        Ok(Sums { sensor: LightSensor::start(settings)?, start_ns: now_ns() })
    }

    /// What this kernel cannot tell.
    pub fn missing(&self) -> &[String] {
        &self.sensor.missing
    }

    /// Sums since the start.
    pub fn totals(&self) -> Totals {
        let (vcpus, now_ns) = (self.sensor.page().all(), now_ns());
        Totals {
            seconds: now_ns.saturating_sub(self.start_ns) as f64 / 1e9,
            off: vcpus.iter().map(|vcpu| Sum { count: vcpu.offs, ns: vcpu.off_ns }).collect(),
            idle_ns: vcpus.iter().map(|vcpu| vcpu.idle_until(now_ns)).collect(),
            looks: vcpus.iter().map(looks).collect(),
            user_spin_ns: vcpus.iter().map(|vcpu| vcpu.looks.user_spin_ns).collect(),
            causes: None,
        }
    }
}

fn looks(vcpu: &Vcpu) -> Sum {
    Sum { count: vcpu.looks.count, ns: vcpu.looks.spin_ns }
}

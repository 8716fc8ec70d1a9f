//! The recorder: fetches the sensor's findings, and writes them to a session file.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;
use unspin_model::VcpuState;
use unspin_model::session::{About, Look};
use unspin_trace::episodes::burned_ns;
use unspin_trace::session::{SessionError, Stretch, Writer};

use crate::sense::{Findings, Heartbeat, Sensor, Settings, State, Vcpu, hidden, now_ns};
use crate::steal::Steal;

/// The time that a batch covers.
const BATCH: Duration = Duration::from_secs(1);
/// The time between two fetches of findings.
const FETCH: Duration = Duration::from_millis(200);

/// The figures of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Recorded {
    /// The length of the session in seconds.
    pub seconds: f64,
    /// The number of off intervals.
    pub offs: u64,
    /// The time off, in vCPU-seconds.
    pub off_s: f64,
    /// The number of spins that were long enough to be reported.
    pub spins: u64,
    /// The time that these spins burned, in vCPU-seconds.
    pub spin_s: f64,
    /// The chosen heartbeats.
    pub heartbeat: Heartbeat,
    /// The number of heartbeats that came.
    pub beats: u64,
    /// The number of findings lost.
    pub lost: u64,
    /// The tracepoints that this kernel lacks.
    pub missing: Vec<String>,
}

/// A running recording.
pub struct Recorder<W: Write> {
    sensor: Sensor,
    settings: Settings,
    look: Option<Duration>,
    writer: Writer<W>,
    findings: Findings,
    looks: Vec<Look>,
    batch_start_ns: u64,
    batch_began: Instant,
    before: Vec<Vcpu>,
    offline: Vec<u16>,
    steal: Steal,
    steal_before: Vec<u64>,
    recorded: Recorded,
}

impl<W: Write> Recorder<W> {
    /// Starts recording the findings of a sensor, which was started with these settings. With
    /// `look`, also notes at that interval what each vCPU seems to do. The file describes the guest
    /// by `about`.
    pub fn new(
        mut sensor: Sensor,
        settings: &Settings,
        look: Option<Duration>,
        about: &About,
        out: W,
    ) -> Result<Recorder<W>, SessionError> {
        // Drop findings from while the sensor was being attached: they lie before the session.
        let _ = sensor.take();
        let (batch_start_ns, before) = (now_ns(), sensor.page().all());
        let recorded = Recorded {
            heartbeat: sensor.heartbeat,
            missing: sensor.missing.clone(),
            ..Recorded::default()
        };
        let hidden = hidden(&sensor.missing).into_iter().map(str::to_owned).collect();
        let writer = Writer::new(out, &About { hidden, ..about.clone() })?;
        let offline = sensor.page().offline();
        let mut steal = Steal::start(before.len());
        Ok(Recorder {
            sensor,
            settings: *settings,
            look,
            writer,
            findings: Findings::default(),
            looks: Vec::new(),
            batch_start_ns,
            batch_began: Instant::now(),
            before,
            offline,
            steal_before: steal.ns(),
            steal,
            recorded,
        })
    }

    /// Waits a little, fetches new findings, and writes them if a batch is full.
    pub fn step(&mut self) -> Result<(), SessionError> {
        match self.look {
            Some(pause) => self.look_for(FETCH, pause),
            None => std::thread::sleep(FETCH),
        }
        self.fetch();
        if self.batch_began.elapsed() >= BATCH {
            self.write()?;
        }
        Ok(())
    }

    /// Returns the length, in seconds, of the batches that were written completely.
    pub fn seconds(&self) -> f64 {
        self.recorded.seconds
    }

    /// Writes the remaining findings and the end of the file.
    pub fn finish(mut self) -> Result<Recorded, SessionError> {
        self.fetch();
        self.write()?;
        self.writer.finish()?;
        let seconds =
            [&mut self.recorded.seconds, &mut self.recorded.off_s, &mut self.recorded.spin_s];
        for sum in seconds {
            *sum = (*sum * 1e9).round() / 1e9;
        }
        Ok(self.recorded)
    }

    fn fetch(&mut self) {
        let new = self.sensor.take();
        self.findings.offs.extend(new.offs);
        self.findings.spins.extend(new.spins);
        self.findings.lost += new.lost;
    }

    fn look_for(&mut self, time: Duration, pause: Duration) {
        let started = Instant::now();
        while started.elapsed() < time {
            std::thread::sleep(pause);
            for vcpu in 0..self.sensor.page().vcpus() {
                let record = self.sensor.page().vcpu(vcpu);
                let t_ns = now_ns();
                let state = match record.activity.look(&self.settings.limits, t_ns) {
                    State::On => VcpuState::On,
                    State::Off => VcpuState::Off,
                    State::Idle => VcpuState::Idle,
                };
                self.looks.push(Look { t_ns, vcpu: vcpu as u16, state });
            }
        }
    }

    fn write(&mut self) -> Result<(), SessionError> {
        let (end_ns, now) = (now_ns(), self.sensor.page().all());
        let (spun_ns, steal_ns) = (self.sensor.user_spin_ns(&now), self.steal.ns());
        let stolen_before = |vcpu| self.steal_before.get(vcpu).copied().unwrap_or(0);
        let offline = self.sensor.page().offline();
        // A vCPU that came or went during the batch is covered, too.
        let is_covered = |vcpu: usize| {
            [&offline, &self.offline].iter().any(|all| all.binary_search(&(vcpu as u16)).is_err())
        };
        let pairs = now.iter().zip(&self.before).enumerate().filter(|(vcpu, _)| is_covered(*vcpu));
        let stretches: Vec<Stretch> = pairs
            .enumerate()
            .map(|(nth, (vcpu, (now, before)))| Stretch {
                vcpu: vcpu as u16,
                start_ns: self.batch_start_ns,
                end_ns,
                beats: now.beats - before.beats,
                idle_ns: now
                    .idle_until(end_ns)
                    .saturating_sub(before.idle_until(self.batch_start_ns)),
                user_spin_ns: spun_ns.get(vcpu).map(|ns| ns - before.samples.user_spin_ns),
                steal_ns: steal_ns.get(vcpu).map(|ns| ns - stolen_before(vcpu)),
                // The losses are not kept per vCPU, so the first one gets them all.
                lost: if nth == 0 { self.findings.lost } else { 0 },
            })
            .collect();
        let Findings { offs, spins, .. } = std::mem::take(&mut self.findings);
        self.writer.write(&offs, &spins, &self.looks, &stretches)?;
        let off_ns: u64 = offs.iter().map(|off| off.end_ns - off.start_ns).sum();
        self.recorded.off_s += off_ns as f64 / 1e9;
        self.recorded.offs += offs.len() as u64;
        self.recorded.spin_s += burned_ns(&spins, &offs) as f64 / 1e9;
        self.recorded.spins += spins.iter().filter(|spin| !spin.asleep).count() as u64;
        self.recorded.beats += stretches.iter().map(|stretch| stretch.beats).sum::<u64>();
        self.recorded.lost += stretches.iter().map(|stretch| stretch.lost).sum::<u64>();
        self.recorded.seconds += (end_ns - self.batch_start_ns) as f64 / 1e9;
        self.looks.clear();
        (self.before, self.steal_before, self.offline) = (now, steal_ns, offline);
        self.batch_start_ns = end_ns;
        self.batch_began = Instant::now();
        Ok(())
    }
}

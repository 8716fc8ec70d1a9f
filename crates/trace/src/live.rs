//! A guest as it is right now: what `unspin watch` shows.

use std::collections::VecDeque;

use serde::Serialize;
use unspin_model::Session;
use unspin_model::episode::Spin;
use unspin_model::session::FoundOff;

use crate::digest::{Digest, digest};

/// Slices of a lane that are kept.
pub const SLICES: usize = 512;
/// The figures are those of the last so many nanoseconds.
const WINDOW_NS: u64 = 10_000_000_000;
/// Findings that are kept at most, whatever the window holds.
const KEPT: usize = 200_000;

/// What a vCPU did in a slice of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Slice {
    /// Share of it off, from 0 to 1.
    pub off: f32,
    /// Share of it idle, from 0 to 1.
    pub idle: f32,
}

/// The last seconds of a guest.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    vcpus: u16,
    start_ns: u64,
    now_ns: u64,
    offs: VecDeque<FoundOff>,
    spins: VecDeque<Spin>,
    /// Ends of the slices, and of each the nanoseconds idle by vCPU.
    slices: VecDeque<(u64, Vec<u64>)>,
    lost: u64,
}

impl Live {
    /// Nothing so far.
    pub fn new(vcpus: u16, start_ns: u64) -> Live {
        Live {
            vcpus,
            start_ns,
            now_ns: start_ns,
            offs: VecDeque::new(),
            spins: VecDeque::new(),
            slices: VecDeque::new(),
            lost: 0,
        }
    }

    /// Adds what was found until `now_ns`, and how long each vCPU was idle since the call
    /// before.
    pub fn add(
        &mut self,
        now_ns: u64,
        offs: Vec<FoundOff>,
        spins: Vec<Spin>,
        idle_ns: Vec<u64>,
        lost: u64,
    ) {
        self.now_ns = now_ns;
        self.lost += lost;
        self.offs.extend(offs);
        self.spins.extend(spins);
        self.slices.push_back((now_ns, idle_ns));
        let from_ns = now_ns.saturating_sub(WINDOW_NS);
        let shown_from_ns = self.slices.front().map_or(now_ns, |(end_ns, _)| *end_ns).min(from_ns);
        self.offs.retain(|off| off.end_ns >= shown_from_ns);
        self.spins.retain(|spin| spin.end_ns >= from_ns);
        while self.slices.len() > SLICES {
            self.slices.pop_front();
        }
        while self.offs.len() > KEPT {
            self.offs.pop_front();
        }
        while self.spins.len() > KEPT {
            self.spins.pop_front();
        }
    }

    /// vCPUs.
    pub fn vcpus(&self) -> u16 {
        self.vcpus
    }

    /// Seconds since the start.
    pub fn elapsed_s(&self) -> f64 {
        (self.now_ns - self.start_ns) as f64 / 1e9
    }

    /// The last seconds in figures.
    pub fn digest(&self) -> Digest {
        let start_ns = self.now_ns.saturating_sub(WINDOW_NS).max(self.start_ns);
        digest(&Session {
            vcpus: self.vcpus,
            start_ns,
            end_ns: self.now_ns,
            offs: self.offs.iter().filter(|off| off.end_ns >= start_ns).copied().collect(),
            spins: self.spins.iter().cloned().collect(),
            lost: self.lost,
            ..Session::default()
        })
    }

    /// The last `count` slices of a vCPU, the oldest first.
    pub fn lane(&self, vcpu: u16, count: usize) -> Vec<Slice> {
        let skip = self.slices.len().saturating_sub(count);
        let starts = std::iter::once(self.start_ns).chain(self.slices.iter().map(|slice| slice.0));
        let slices = starts.zip(&self.slices).skip(skip);
        slices.map(|(start_ns, (end_ns, idle))| self.slice(vcpu, start_ns, *end_ns, idle)).collect()
    }

    fn slice(&self, vcpu: u16, start_ns: u64, end_ns: u64, idle: &[u64]) -> Slice {
        let own = self.offs.iter().filter(|off| off.vcpu == vcpu);
        let common =
            |off: &FoundOff| off.end_ns.min(end_ns).saturating_sub(off.start_ns.max(start_ns));
        let length = (end_ns - start_ns).max(1) as f32;
        let off = own.map(common).sum::<u64>() as f32 / length;
        let idle = idle.get(usize::from(vcpu)).map_or(0.0, |ns| *ns as f32 / length);
        Slice { off: off.min(1.0), idle: idle.min(1.0 - off.min(1.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn off(start_ms: u64, end_ms: u64) -> FoundOff {
        FoundOff {
            vcpu: 1,
            start_ns: start_ms * MS,
            end_ns: end_ms * MS,
            start_error_ns: 0,
            was_idle: false,
        }
    }

    #[test]
    fn an_off_interval_lies_in_every_slice_that_it_touches() {
        let mut live = Live::new(2, 0);
        live.add(100 * MS, vec![], vec![], vec![0, 50 * MS], 0);
        live.add(200 * MS, vec![off(90, 150)], vec![], vec![0, 0], 0);
        let lane = live.lane(1, 10);
        assert_eq!(lane, [Slice { off: 0.1, idle: 0.5 }, Slice { off: 0.5, idle: 0.0 }]);
        assert_eq!(live.lane(1, 1).len(), 1);
        assert_eq!(live.lane(0, 10)[1], Slice::default());
        assert_eq!(live.digest().off[1].intervals, 1);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut live = Live::new(2, 0);
        live.add(100 * MS, vec![off(10, 20)], vec![], vec![0, 0], 1);
        for second in 1..60 {
            live.add(second * 1_000 * MS, vec![], vec![], vec![0, 0], 0);
        }
        assert_eq!(live.digest().off[1].intervals, 0);
        assert_eq!((live.digest().seconds, live.digest().lost), (10.0, 1));
        for slice in 0..2 * SLICES as u64 {
            live.add((60_000 + slice) * MS, vec![], vec![], vec![0, 0], 0);
        }
        assert_eq!(live.lane(0, usize::MAX).len(), SLICES);
    }
}

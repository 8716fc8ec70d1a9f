//! The current state of a guest, as `unspin watch` shows it.

use std::collections::VecDeque;

use serde::Serialize;
use unspin_model::Session;
use unspin_model::episode::Spin;
use unspin_model::session::FoundOff;

use crate::digest::{Digest, digest};

/// Number of slices of a lane that are kept.
pub const SLICES: usize = 512;
/// Length in nanoseconds of the window that the figures cover. The window is shorter if it would
/// hold more findings than are kept.
pub const WINDOW_NS: u64 = 10_000_000_000;
/// Maximum number of findings of a kind that are kept.
const KEPT: usize = 200_000;

/// State of a vCPU in a slice of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Slice {
    /// Share of the slice that the vCPU was off, from 0 to 1.
    pub off: f32,
    /// Share of the slice that the vCPU was idle, from 0 to 1.
    pub idle: f32,
}

/// Findings since the last update.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct News {
    /// Off intervals.
    pub offs: Vec<FoundOff>,
    /// Spins and waits.
    pub spins: Vec<Spin>,
    /// Idle time of each vCPU in nanoseconds.
    pub idle_ns: Vec<u64>,
    /// Time in nanoseconds for which ticks found each vCPU spinning in user space; empty if ticks
    /// did not sample.
    pub user_spin_ns: Vec<u64>,
    /// Steal time of each vCPU in nanoseconds, as the hypervisor reports it; empty if it was not
    /// read.
    pub steal_ns: Vec<u64>,
    /// Number of heartbeats of each vCPU.
    pub beats: Vec<u64>,
    /// Number of findings that were lost.
    pub lost: u64,
}

/// Sums of all vCPUs in a slice of time.
#[derive(Debug, Clone, PartialEq)]
struct Slices {
    start_ns: u64,
    end_ns: u64,
    /// Off time by vCPU in nanoseconds; the other lists are by vCPU, too.
    off_ns: Vec<u64>,
    idle_ns: Vec<u64>,
    user_spin_ns: Vec<u64>,
    steal_ns: Vec<u64>,
    beats: Vec<u64>,
    /// Number of findings that were lost.
    lost: u64,
}

/// The last seconds of a guest.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    vcpus: u16,
    offline: Vec<u16>,
    start_ns: u64,
    now_ns: u64,
    /// Time since which all findings are kept.
    kept_from_ns: u64,
    offs: VecDeque<FoundOff>,
    spins: VecDeque<Spin>,
    slices: VecDeque<Slices>,
}

impl Live {
    /// Returns a guest without findings.
    pub fn new(vcpus: u16, start_ns: u64) -> Live {
        Live {
            vcpus,
            offline: Vec::new(),
            start_ns,
            now_ns: start_ns,
            kept_from_ns: start_ns,
            offs: VecDeque::new(),
            spins: VecDeque::new(),
            slices: VecDeque::new(),
        }
    }

    /// Covers `vcpus` vCPUs from now on, if it covered fewer.
    pub fn cover(&mut self, vcpus: u16) {
        self.vcpus = vcpus.max(self.vcpus);
    }

    /// Leaves the vCPUs that are offline now out of the figures; `offline` is sorted.
    pub fn leave_out(&mut self, offline: Vec<u16>) {
        self.offline = offline;
    }

    /// Adds the findings until `now_ns`.
    pub fn add(&mut self, now_ns: u64, news: News) {
        let News { offs, spins, idle_ns, user_spin_ns, steal_ns, beats, lost } = news;
        self.slices.push_back(Slices {
            start_ns: self.now_ns,
            end_ns: now_ns,
            off_ns: vec![0; usize::from(self.vcpus)],
            idle_ns,
            user_spin_ns,
            steal_ns,
            beats,
            lost,
        });
        if self.slices.len() > SLICES {
            self.slices.pop_front();
        }
        self.now_ns = now_ns;
        for off in &offs {
            self.spread(off);
        }
        self.offs.extend(offs);
        self.spins.extend(spins);
        self.forget();
    }

    /// Adds an off interval to every slice that it touches.
    fn spread(&mut self, off: &FoundOff) {
        for slice in self.slices.iter_mut().rev() {
            if slice.end_ns <= off.start_ns {
                break;
            }
            let (start_ns, end_ns) =
                (off.start_ns.max(slice.start_ns), off.end_ns.min(slice.end_ns));
            if let Some(sum) = slice.off_ns.get_mut(usize::from(off.vcpu)) {
                *sum += end_ns.saturating_sub(start_ns);
            }
        }
    }

    /// Drops findings from before the window; shortens the window if it holds too many.
    fn forget(&mut self) {
        let oldest_ns = self.now_ns.saturating_sub(WINDOW_NS).max(self.kept_from_ns);
        let later = self.slices.iter().map(|slice| slice.end_ns).filter(|end| *end > oldest_ns);
        for from_ns in std::iter::once(oldest_ns).chain(later) {
            self.kept_from_ns = from_ns;
            self.offs.retain(|off| off.end_ns > from_ns);
            self.spins.retain(|spin| spin.end_ns > from_ns);
            if self.offs.len().max(self.spins.len()) <= KEPT {
                return;
            }
        }
    }

    /// Returns the number of vCPUs, including offline ones.
    pub fn vcpus(&self) -> u16 {
        self.vcpus
    }

    /// Returns the seconds since the start.
    pub fn elapsed_s(&self) -> f64 {
        (self.now_ns - self.start_ns) as f64 / 1e9
    }

    /// Returns the off intervals of the last seconds that ended at an instant or later.
    pub fn offs_since(&self, t_ns: u64) -> Vec<FoundOff> {
        self.offs.iter().filter(|off| off.end_ns >= t_ns).copied().collect()
    }

    /// Returns the spins of the last seconds that ended at an instant or later, without waits that
    /// slept.
    pub fn spins_since(&self, t_ns: u64) -> Vec<Spin> {
        let spins = self.spins.iter().filter(|spin| !spin.asleep && spin.end_ns >= t_ns);
        spins.cloned().collect()
    }

    /// Returns the figures of the last seconds.
    pub fn digest(&self) -> Digest {
        digest(&Session {
            vcpus: self.vcpus,
            offline: self.offline.clone(),
            start_ns: self.kept_from_ns,
            end_ns: self.now_ns,
            offs: self.offs.iter().copied().collect(),
            spins: self.spins.iter().map(|spin| since(spin, self.kept_from_ns)).collect(),
            user_spin_ns: self.in_window(|slices| &slices.user_spin_ns),
            steal_ns: self.in_window(|slices| &slices.steal_ns),
            beats: self.in_window(|slices| &slices.beats).iter().sum(),
            lost: self.kept_slices().map(|slices| slices.lost).sum(),
            ..Session::default()
        })
    }

    /// Returns the slices that the figures cover; they may cover only a part of the first one.
    fn kept_slices(&self) -> impl Iterator<Item = &Slices> {
        self.slices.iter().filter(|slices| slices.end_ns > self.kept_from_ns)
    }

    /// Returns each vCPU's sum of a kind over the window that the figures cover; empty if it is not
    /// known.
    fn in_window(&self, of: fn(&Slices) -> &Vec<u64>) -> Vec<u64> {
        let mut sums = Vec::new();
        for slices in self.kept_slices() {
            sums.resize(of(slices).len().max(sums.len()), 0);
            let within_ns = slices.end_ns - slices.start_ns.max(self.kept_from_ns);
            let share = within_ns as f64 / (slices.end_ns - slices.start_ns).max(1) as f64;
            for (sum, ns) in sums.iter_mut().zip(of(slices)) {
                *sum += (*ns as f64 * share) as u64;
            }
        }
        sums
    }

    /// Returns the last `count` slices of a vCPU, the oldest first.
    pub fn lane(&self, vcpu: u16, count: usize) -> Vec<Slice> {
        self.last(count).map(|slices| slices.of(vcpu)).collect()
    }

    /// Returns the mean of the last `count` slices of a vCPU.
    pub fn recent(&self, vcpu: u16, count: usize) -> Slice {
        let slices = self.lane(vcpu, count);
        let mean =
            |of: fn(&Slice) -> f32| slices.iter().map(of).sum::<f32>() / slices.len().max(1) as f32;
        Slice { off: mean(|slice| slice.off), idle: mean(|slice| slice.idle) }
    }

    /// Returns the seconds that the last `count` slices cover.
    pub fn covers_s(&self, count: usize) -> f64 {
        let from_ns = self.last(count).next().map_or(self.now_ns, |slices| slices.start_ns);
        (self.now_ns - from_ns) as f64 / 1e9
    }

    fn last(&self, count: usize) -> impl Iterator<Item = &Slices> {
        self.slices.iter().skip(self.slices.len().saturating_sub(count))
    }
}

/// Returns the part of a spin after an instant before its end.
fn since(spin: &Spin, t_ns: u64) -> Spin {
    let begin_ns = spin.begin_ns.max(t_ns);
    let halted_ns = spin.halted_ns.min(spin.end_ns.saturating_sub(begin_ns));
    Spin { begin_ns, halted_ns, ..spin.clone() }
}

impl Slices {
    fn of(&self, vcpu: u16) -> Slice {
        let length = (self.end_ns - self.start_ns).max(1) as f32;
        let share = |all: &[u64]| all.get(usize::from(vcpu)).map_or(0.0, |ns| *ns as f32 / length);
        let off = share(&self.off_ns).min(1.0);
        Slice { off, idle: share(&self.idle_ns).min(1.0 - off) }
    }
}

#[cfg(test)]
mod tests {
    use unspin_model::episode::Wait;

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

    fn offs(offs: Vec<FoundOff>) -> News {
        News { offs, ..News::default() }
    }

    #[test]
    fn sums_are_those_of_the_window() {
        let mut live = Live::new(2, 0);
        assert_eq!(live.digest().user_spin_s, None);
        let spun = |ms: u64| News { user_spin_ns: vec![0, ms * MS], ..News::default() };
        live.add(4_000 * MS, spun(400));
        // The window begins in the middle of the first slice.
        live.add(12_000 * MS, spun(100));
        let digest = live.digest();
        assert_eq!((digest.seconds, digest.user_spin_s), (10.0, Some(0.3)));
        assert_eq!([0, 1].map(|vcpu| digest.off[vcpu].user_spin_s), [Some(0.0), Some(0.3)]);
    }

    /// Uncut, an interval that began before the window would be longer than the window.
    #[test]
    fn what_began_earlier_is_cut_to_the_window() {
        let spin = Spin {
            wait: Wait::Mutex,
            lock: 0xa0,
            asleep: false,
            vcpu: 0,
            tid: 7,
            begin_ns: 0,
            end_ns: 12_000 * MS,
            halted_ns: 11_000 * MS,
            owner: None,
            before: None,
            site: String::new(),
        };
        let mut live = Live::new(2, 0);
        let offs = vec![off(0, 12_000), off(1_000, 2_000)];
        live.add(12_000 * MS, News { spins: vec![spin], ..self::offs(offs) });
        let digest = live.digest();
        let (seconds, off_s) = (digest.seconds, digest.off[1].off_s);
        assert_eq!((seconds, off_s, digest.halted_s), (10.0, 10.0, 10.0));
        assert_eq!((digest.off[1].intervals, digest.spin_s), (1, 0.0));
    }

    #[test]
    fn figures_are_of_the_vcpus_that_are_online() {
        let mut live = Live::new(4, 0);
        live.leave_out(vec![0, 2]);
        live.add(1_000 * MS, News { beats: vec![0, 100, 0, 300], ..offs(vec![off(10, 20)]) });
        let digest = live.digest();
        assert_eq!((digest.vcpus, digest.beats_per_s), (2, 200.0));
        let off: Vec<_> = digest.off.iter().map(|off| (off.vcpu, off.intervals)).collect();
        assert_eq!(off, [(1, 1), (3, 0)]);
    }

    #[test]
    fn a_vcpu_that_is_added_has_figures_from_then_on() {
        let mut live = Live::new(1, 0);
        live.add(1_000 * MS, News { beats: vec![100], ..News::default() });
        live.cover(2);
        live.cover(1);
        let beats = vec![100, 300];
        live.add(2_000 * MS, News { beats, ..offs(vec![off(1_500, 1_600)]) });
        let digest = live.digest();
        assert_eq!((digest.vcpus, digest.off[1].intervals, digest.beats_per_s), (2, 1, 125.0));
        assert_eq!(live.lane(1, 2), [Slice::default(), Slice { off: 0.1, idle: 0.0 }]);
    }

    #[test]
    fn heartbeats_are_those_of_the_window() {
        let mut live = Live::new(2, 0);
        live.add(1_000 * MS, News { beats: vec![100, 300], ..News::default() });
        assert_eq!(live.digest().beats_per_s, 200.0);
        live.add(20_000 * MS, News::default());
        assert_eq!(live.digest().beats_per_s, 0.0);
    }

    #[test]
    fn an_off_interval_lies_in_every_slice_that_it_touches() {
        let mut live = Live::new(2, 0);
        live.add(100 * MS, News { idle_ns: vec![0, 50 * MS], ..News::default() });
        live.add(200 * MS, offs(vec![off(90, 150)]));
        let lane = live.lane(1, 10);
        assert_eq!(lane, [Slice { off: 0.1, idle: 0.5 }, Slice { off: 0.5, idle: 0.0 }]);
        assert_eq!(live.lane(1, 1).len(), 1);
        assert_eq!(live.lane(0, 10)[1], Slice::default());
        assert_eq!(live.recent(1, 2), Slice { off: 0.3, idle: 0.25 });
        assert_eq!(live.digest().off[1].intervals, 1);
    }

    #[test]
    fn where_too_much_is_found_the_figures_are_of_less_time() {
        let mut live = Live::new(2, 0);
        for second in 0..10 {
            let offs = vec![off(second * 1_000, second * 1_000 + 500); KEPT / 4];
            live.add((second + 1) * 1_000 * MS, self::offs(offs));
        }
        let digest = live.digest();
        assert_eq!(digest.seconds, 4.0);
        assert_eq!(digest.off[1].intervals, KEPT as u64);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut live = Live::new(2, 0);
        live.add(100 * MS, News { lost: 1, ..offs(vec![off(10, 20)]) });
        assert_eq!(live.digest().lost, 1);
        for second in 1..60 {
            live.add(second * 1_000 * MS, News::default());
        }
        assert_eq!(live.digest().off[1].intervals, 0);
        assert_eq!((live.digest().seconds, live.digest().lost), (10.0, 0));
        assert_eq!((live.covers_s(2), live.covers_s(0)), (2.0, 0.0));
        for slice in 0..2 * SLICES as u64 {
            live.add((60_000 + slice) * MS, News::default());
        }
        assert_eq!(live.lane(0, usize::MAX).len(), SLICES);
    }
}

//! From spins and off intervals to episodes: why a spin lasted.
//!
//! The kernel knows a mutex's owner, but not a spinlock's. What is known of a spinlock is
//! who took it while others were waiting: that one holds it until the next one has it.
//! So the cause of a spin is looked for in this order:
//!
//! 1. the owner that the kernel named was off, or was not running at all;
//! 2. the one who took the lock while this one spun was off after that;
//! 3. another one who waited for the same lock, and got it earlier, was off meanwhile;
//! 4. where the kernel named nobody: one vCPU was off for most of the spin, and the spin
//!    ended soon after it was back;
//! 5. nobody was off.
//!
//! The surer the evidence, the higher the confidence.

use std::collections::HashMap;

use unspin_model::episode::{Cause, Episode, Spin, Wait};
use unspin_model::session::FoundOff;

/// A vCPU that is back needs so long to give way to a spinner.
const PASSES_ON_WITHIN_NS: u64 = 1_000_000;
/// The kernel named the one who is waited for.
const NAMED: f64 = 0.95;
/// It follows from the order in which the lock was taken.
const FOLLOWED: f64 = 0.85;
/// It is the only one that fits.
const FITTED: f64 = 0.6;

/// Explains each spin. Off intervals may come in any order.
pub fn explain(spins: Vec<Spin>, offs: &[FoundOff]) -> Vec<Episode> {
    let offs = Offs::of(offs);
    let mut by_lock: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, spin) in spins.iter().enumerate() {
        by_lock.entry(spin.lock).or_default().push(index);
    }
    let causes: Vec<(Cause, f64, u64)> = spins
        .iter()
        .map(|spin| {
            let rivals = by_lock[&spin.lock].iter().map(|index| &spins[*index]);
            cause(spin, rivals, &offs)
        })
        .collect();
    let pairs = spins.into_iter().zip(causes);
    pairs
        .map(|(spin, (cause, confidence, wasted_ns))| Episode {
            spin,
            cause,
            confidence,
            wasted_ns,
        })
        .collect()
}

/// Cause, confidence, nanoseconds wasted for it.
fn cause<'a>(
    spin: &Spin,
    rivals: impl Iterator<Item = &'a Spin>,
    offs: &Offs,
) -> (Cause, f64, u64) {
    let burned = |from_ns: u64, to_ns: u64, vcpu: u16| {
        offs.off_ns_but(vcpu, from_ns.max(spin.begin_ns), to_ns.min(spin.end_ns), spin.vcpu)
    };
    let whole = spin.end_ns - spin.begin_ns;
    let whole = whole - offs.off_ns(spin.vcpu, spin.begin_ns, spin.end_ns).min(whole);
    let is_most = |wasted: u64| wasted * 2 >= whole && wasted > 0;
    if spin.wait == Wait::Ipi {
        // Every one of its targets must answer: the slowest one counts.
        let others = offs.vcpus().filter(|vcpu| *vcpu != spin.vcpu);
        let slowest = others.map(|vcpu| burned(spin.begin_ns, spin.end_ns, vcpu)).max();
        return match slowest.filter(|wasted| is_most(*wasted)) {
            Some(wasted) => (Cause::IpiOff, FOLLOWED, wasted),
            None => (Cause::Plain, FOLLOWED, whole),
        };
    }
    if let Some(owner) = spin.owner {
        if !owner.running {
            return (Cause::HolderPreempted, NAMED, whole);
        }
        let wasted = burned(spin.begin_ns, spin.end_ns, owner.vcpu);
        if is_most(wasted) {
            return (Cause::HolderOff, NAMED, wasted);
        }
    }
    if let Some(taken) = spin.before.filter(|taken| taken.t_ns >= spin.begin_ns) {
        let wasted = burned(taken.t_ns, spin.end_ns, taken.vcpu);
        if is_most(wasted) {
            return (Cause::HolderOff, FOLLOWED, wasted);
        }
    }
    let in_front = rivals.filter(|rival| {
        rival.vcpu != spin.vcpu && rival.end_ns < spin.end_ns && rival.end_ns > spin.begin_ns
    });
    let longest = in_front.map(|rival| burned(rival.begin_ns, rival.end_ns, rival.vcpu)).max();
    if let Some(wasted) = longest.filter(|wasted| is_most(*wasted)) {
        return (Cause::WaiterOff, FOLLOWED, wasted);
    }
    let others = offs.vcpus().filter(|vcpu| *vcpu != spin.vcpu && spin.owner.is_none());
    let back_in_time = |vcpu: &u16| offs.ends_within(*vcpu, spin.end_ns, PASSES_ON_WITHIN_NS);
    let fitting = others.filter(back_in_time).map(|vcpu| burned(spin.begin_ns, spin.end_ns, vcpu));
    match fitting.max().filter(|wasted| is_most(*wasted)) {
        Some(wasted) => (Cause::HolderOff, FITTED, wasted),
        None => (Cause::Plain, FOLLOWED, whole),
    }
}

/// Each vCPU's off intervals, in order.
struct Offs(HashMap<u16, Vec<(u64, u64)>>);

impl Offs {
    fn of(offs: &[FoundOff]) -> Offs {
        let mut by_vcpu: HashMap<u16, Vec<(u64, u64)>> = HashMap::new();
        for off in offs {
            by_vcpu.entry(off.vcpu).or_default().push((off.start_ns, off.end_ns));
        }
        for intervals in by_vcpu.values_mut() {
            intervals.sort_unstable();
        }
        Offs(by_vcpu)
    }

    fn vcpus(&self) -> impl Iterator<Item = u16> {
        self.0.keys().copied()
    }

    fn within(&self, vcpu: u16, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (u64, u64)> {
        let all = self.0.get(&vcpu).map_or(&[][..], Vec::as_slice);
        let first = all.partition_point(|(_, end)| *end <= from_ns);
        let here = all[first..].iter().take_while(move |(start, _)| *start < to_ns);
        here.map(move |(start, end)| (*start.max(&from_ns), *end.min(&to_ns)))
    }

    /// Nanoseconds that a vCPU was off between two instants.
    fn off_ns(&self, vcpu: u16, from_ns: u64, to_ns: u64) -> u64 {
        self.within(vcpu, from_ns, to_ns).map(|(start, end)| end - start).sum()
    }

    /// The same, without what `but` was off at the same time.
    fn off_ns_but(&self, vcpu: u16, from_ns: u64, to_ns: u64, but: u16) -> u64 {
        let mine = |(start, end): (u64, u64)| (end - start) - self.off_ns(but, start, end);
        self.within(vcpu, from_ns, to_ns).map(mine).sum()
    }

    /// Whether one of a vCPU's off intervals ended at most so long before an instant.
    fn ends_within(&self, vcpu: u16, t_ns: u64, before_ns: u64) -> bool {
        let all = self.0.get(&vcpu).map_or(&[][..], Vec::as_slice);
        let next = all.partition_point(|(_, end)| *end <= t_ns);
        next > 0 && all[next - 1].1 + before_ns >= t_ns
    }
}

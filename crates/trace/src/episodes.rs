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
//! 5. a spinlock passed from one to the next so late that one of the two must have been off,
//!    unseen;
//! 6. nobody was off.
//!
//! The fifth is for spins with interrupts disabled, which hold back all by which a vCPU notices
//! that it was off. Who holds a spinlock is neither preempted by the guest nor asleep, and a
//! section of a millisecond would be a defect of the kernel.
//!
//! The surer the evidence, the higher the confidence. A wait that slept has only the first
//! kind of evidence: while it slept, others may have had the lock one after the other.

use std::collections::HashMap;

use unspin_model::episode::{Cause, Episode, OwnerState, Spin, Wait};
use unspin_model::session::FoundOff;

/// A vCPU that is back needs so long to give way to a spinner.
const PASSES_ON_WITHIN_NS: u64 = 1_000_000;
/// No section of a spinlock and no way to the next waiter takes so long, unless a vCPU is off.
const PASSES_LATE_NS: u64 = 1_000_000;
/// The kernel named the one who is waited for.
const NAMED: f64 = 0.95;
/// It follows from the order in which the lock was taken.
const FOLLOWED: f64 = 0.85;
/// It is the only one that fits.
const FITTED: f64 = 0.6;
/// Nothing else would take so long.
const INFERRED: f64 = 0.7;

/// Explains each spin. Off intervals may come in any order.
pub fn explain(spins: Vec<Spin>, offs: &[FoundOff]) -> Vec<Episode> {
    let offs = Offs::of(offs);
    let mut by_lock: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, spin) in spins.iter().enumerate() {
        by_lock.entry(spin.lock).or_default().push(index);
    }
    for rivals in by_lock.values_mut() {
        rivals.sort_by_key(|index| spins[*index].end_ns);
    }
    let in_front_of = |spin: &Spin| {
        let rivals = &by_lock[&spin.lock];
        let ends_by = |t_ns: u64| rivals.partition_point(|index| spins[*index].end_ns < t_ns);
        let (from, to) = (ends_by(spin.begin_ns + 1), ends_by(spin.end_ns));
        let meanwhile = rivals.get(from..to).unwrap_or_default();
        let (vcpu, others) = (spin.vcpu, meanwhile.iter().map(|index| &spins[*index]));
        others.filter(move |rival| rival.vcpu != vcpu)
    };
    let why: Vec<Why> = spins.iter().map(|spin| why(spin, in_front_of(spin), &offs)).collect();
    let pairs = spins.into_iter().zip(why);
    pairs
        .map(|(spin, why)| Episode {
            spin,
            cause: why.cause,
            confidence: why.confidence,
            waits_for: why.waits_for,
            wasted_ns: why.wasted_ns,
        })
        .collect()
}

/// Nanoseconds that spins burned: while their own vCPUs were off, they burned nothing.
pub fn burned_ns(spins: &[Spin], offs: &[FoundOff]) -> u64 {
    let offs = Offs::of(offs);
    let burned = |spin: &Spin| {
        let whole = spin.end_ns - spin.begin_ns;
        whole - offs.off_ns(spin.vcpu, spin.begin_ns, spin.end_ns).min(whole)
    };
    spins.iter().filter(|spin| !spin.asleep).map(burned).sum()
}

/// What is found out about a spin.
struct Why {
    cause: Cause,
    confidence: f64,
    waits_for: Option<u16>,
    wasted_ns: u64,
}

/// `in_front` are those who waited for the same lock and got it during this spin.
fn why<'a>(spin: &Spin, in_front: impl Iterator<Item = &'a Spin>, offs: &Offs) -> Why {
    let burned = |from_ns: u64, to_ns: u64, vcpu: u16| {
        let (from_ns, to_ns) = (from_ns.max(spin.begin_ns), to_ns.min(spin.end_ns));
        if spin.asleep {
            offs.off_ns(vcpu, from_ns, to_ns)
        } else {
            offs.off_ns_but(vcpu, from_ns, to_ns, spin.vcpu)
        }
    };
    let whole = spin.end_ns - spin.begin_ns;
    let own_ns = if spin.asleep { 0 } else { offs.off_ns(spin.vcpu, spin.begin_ns, spin.end_ns) };
    let whole = whole - own_ns.min(whole);
    let off = |cause, confidence, (wasted_ns, vcpu): (u64, u16)| {
        let is_most = wasted_ns * 2 >= whole && wasted_ns > 0;
        is_most.then_some(Why { cause, confidence, waits_for: Some(vcpu), wasted_ns })
    };
    let named = spin.owner.map(|owner| owner.vcpu).or(spin.before.map(|taken| taken.vcpu));
    let plain =
        Why { cause: Cause::Plain, confidence: FOLLOWED, waits_for: named, wasted_ns: whole };
    if spin.wait == Wait::Ipi {
        // Every one of its targets must answer: the slowest one counts.
        let others = offs.vcpus().filter(|vcpu| *vcpu != spin.vcpu);
        let slowest = others.map(|vcpu| (burned(spin.begin_ns, spin.end_ns, vcpu), vcpu)).max();
        return slowest.and_then(|it| off(Cause::IpiOff, FOLLOWED, it)).unwrap_or(plain);
    }
    if let Some(owner) = spin.owner {
        let wasted_ns = burned(spin.begin_ns, spin.end_ns, owner.vcpu);
        if let Some(why) = off(Cause::HolderOff, NAMED, (wasted_ns, owner.vcpu)) {
            return why;
        }
        let preempted = Why { cause: Cause::HolderPreempted, confidence: NAMED, ..plain };
        if owner.delay_ns.saturating_mul(2) >= whole && owner.delay_ns > 0 {
            return Why { wasted_ns: owner.delay_ns.min(whole), ..preempted };
        }
        if owner.state == OwnerState::Runnable && owner.delay_ns == 0 {
            return preempted;
        }
    }
    if spin.asleep {
        return plain;
    }
    if let Some(taken) = spin.before.filter(|taken| taken.t_ns >= spin.begin_ns) {
        let wasted_ns = burned(taken.t_ns, spin.end_ns, taken.vcpu);
        if let Some(why) = off(Cause::HolderOff, FOLLOWED, (wasted_ns, taken.vcpu)) {
            return why;
        }
    }
    let in_front: Vec<&Spin> = in_front.collect();
    let of_rival = |rival: &&Spin| (burned(rival.begin_ns, rival.end_ns, rival.vcpu), rival.vcpu);
    let longest = in_front.iter().map(of_rival).max();
    if let Some(why) = longest.and_then(|it| off(Cause::WaiterOff, FOLLOWED, it)) {
        return why;
    }
    let others = offs.vcpus().filter(|vcpu| *vcpu != spin.vcpu && spin.owner.is_none());
    let back_in_time = |vcpu: &u16| offs.ends_within(*vcpu, spin.end_ns, PASSES_ON_WITHIN_NS);
    let fitting =
        others.filter(back_in_time).map(|vcpu| (burned(spin.begin_ns, spin.end_ns, vcpu), vcpu));
    let fitted = fitting.max().and_then(|it| off(Cause::HolderOff, FITTED, it));
    fitted.or_else(|| passed_late(spin, &in_front, whole, offs)).unwrap_or(plain)
}

/// Whether the lock was on its way from one to the next for most of the spin.
fn passed_late(spin: &Spin, in_front: &[&Spin], whole_ns: u64, offs: &Offs) -> Option<Why> {
    if spin.wait != Wait::Spinlock {
        return None;
    }
    let late = |taker: &Spin| {
        let taken = taker.before?;
        let from_ns = taken.t_ns.max(taker.begin_ns).max(spin.begin_ns);
        let own_ns = offs.off_ns(spin.vcpu, from_ns, taker.end_ns);
        let ns = taker.end_ns.saturating_sub(from_ns + own_ns);
        (ns >= PASSES_LATE_NS).then_some((ns, taken.vcpu))
    };
    let (mine, theirs) = (late(spin), in_front.iter().filter_map(|rival| late(rival)));
    let wasted_ns: u64 = mine.into_iter().chain(theirs.clone()).map(|(ns, _)| ns).sum();
    let theirs = theirs.max();
    let (cause, waits_for) =
        if mine >= theirs { (Cause::HolderOff, mine) } else { (Cause::WaiterOff, theirs) };
    (wasted_ns * 2 >= whole_ns).then_some(())?;
    let (_, vcpu) = waits_for?;
    let wasted_ns = wasted_ns.min(whole_ns);
    Some(Why { cause, confidence: INFERRED, waits_for: Some(vcpu), wasted_ns })
}

/// Each vCPU's off intervals, in order and apart: of what was found twice, the union.
struct Offs(HashMap<u16, Vec<(u64, u64)>>);

impl Offs {
    fn of(offs: &[FoundOff]) -> Offs {
        let mut by_vcpu: HashMap<u16, Vec<(u64, u64)>> = HashMap::new();
        for off in offs {
            by_vcpu.entry(off.vcpu).or_default().push((off.start_ns, off.end_ns));
        }
        for intervals in by_vcpu.values_mut() {
            intervals.sort_unstable();
            intervals.dedup_by(|next, last| {
                let meet = next.0 <= last.1;
                last.1 = if meet { last.1.max(next.1) } else { last.1 };
                meet
            });
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
        let cut = here.map(move |(start, end)| (*start.max(&from_ns), *end.min(&to_ns)));
        cut.filter(|(start, end)| start < end)
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

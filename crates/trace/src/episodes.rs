//! From spins and off intervals to episodes: why a spin lasted.
//!
//! The kernel knows the owner of a mutex, but not that of a spinlock. For a spinlock, the recorder
//! knows which of the waiters took it: that vCPU holds the lock until the next one has it. So the
//! cause of a spin is the first of these that applies:
//!
//! 1. The owner that the kernel named was off, or the guest did not run it.
//! 2. The vCPU that took the lock during this spin was off after that.
//! 3. Another vCPU that waited for the same lock, and got it earlier, was off meanwhile.
//! 4. The kernel named no owner, one vCPU was off for most of the spin, and the spin ended soon
//!    after that vCPU was back.
//! 5. A spinlock passed from one vCPU to the next so late that one of the two must have been off,
//!    unseen.
//! 6. No vCPU was off.
//!
//! The fifth is for spins with interrupts disabled, which hold back everything by which a vCPU
//! notices that it was off. The holder of a spinlock is neither preempted by the guest nor asleep,
//! and a critical section of a millisecond would be a defect of the kernel.
//!
//! The stronger the evidence, the higher the confidence. A wait that slept has only the first kind
//! of evidence: while it slept, several threads may have had the lock one after the other.
//!
//! A forged session can make each of millions of spins overlap with all others, so the work is
//! limited: see [`RIVALS_MAX`] and [`STEPS_MAX`].

use std::cell::Cell;
use std::collections::HashMap;

use unspin_model::episode::{Cause, Episode, OwnerState, Spin, Wait};
use unspin_model::session::FoundOff;

/// Time in nanoseconds within which a vCPU that is back gives way to a spinner.
const PASSES_ON_WITHIN_NS: u64 = 1_000_000;
/// Time in nanoseconds that no critical section of a spinlock and no handover to the next waiter
/// takes, unless a vCPU is off.
const PASSES_LATE_NS: u64 = 1_000_000;
/// Confidence if the kernel named the owner.
const NAMED: f64 = 0.95;
/// Confidence if the cause follows from the order in which vCPUs took the lock.
const FOLLOWED: f64 = 0.85;
/// Confidence if only one vCPU fits.
const FITTED: f64 = 0.6;
/// Confidence if nothing else would take so long.
const INFERRED: f64 = 0.7;

/// Maximum number of rivals examined for one spin: those that got the lock last. A
/// [`Cause::WaiterOff`] by an earlier rival is lost. No queue is that long.
pub const RIVALS_MAX: usize = 4096;
/// Maximum number of rivals, vCPUs and off intervals examined for all spins together: 512 for each
/// row that a session file can have, which takes minutes. Beyond it, causes are lost: the remaining
/// spins are [`Cause::Plain`], unless their owner did not run at all. Waits that slept keep their
/// causes.
pub const STEPS_MAX: u64 = 1 << 33;

/// Explains each spin. Off intervals may come in any order.
pub fn explain(spins: Vec<Spin>, offs: &[FoundOff]) -> Vec<Episode> {
    explain_within(spins, offs, STEPS_MAX)
}

fn explain_within(spins: Vec<Spin>, offs: &[FoundOff], steps: u64) -> Vec<Episode> {
    let offs = Offs { steps: Cell::new(steps), ..Offs::of(offs) };
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
        let (from, to) = (ends_by(spin.begin_ns.saturating_add(1)), ends_by(spin.end_ns));
        let from = from.max(to.saturating_sub(RIVALS_MAX));
        let meanwhile = rivals.get(from..to).unwrap_or_default();
        let (vcpu, others) = (spin.vcpu, meanwhile.iter().map(|index| &spins[*index]));
        others.filter(move |rival| rival.vcpu != vcpu).take_while(|_| offs.step())
    };
    let why: Vec<Why> = spins.iter().map(|spin| why(spin, in_front_of(spin), &offs)).collect();
    let pairs = spins.into_iter().zip(why);
    pairs
        .map(|(spin, why)| Episode {
            blocked_ns: blocked_ns(&spin, why.wasted_ns, &offs),
            spin,
            cause: why.cause,
            confidence: why.confidence,
            waits_for: why.waits_for,
            wasted_ns: why.wasted_ns,
        })
        .collect()
}

/// Returns the nanoseconds of the wasted time that burned nothing: all of it for a wait that slept,
/// and the halted share of it for a spin.
fn blocked_ns(spin: &Spin, wasted_ns: u64, offs: &Offs) -> u64 {
    if spin.asleep || spin.halted_ns == 0 {
        return if spin.asleep { wasted_ns } else { 0 };
    }
    let whole_ns = spin.end_ns - spin.begin_ns;
    let own_ns = offs.off_ns(spin.vcpu, spin.begin_ns, spin.end_ns);
    let awake_ns = whole_ns.saturating_sub(own_ns).max(1);
    let halted_ns = spin.halted_ns.min(awake_ns);
    (u128::from(wasted_ns) * u128::from(halted_ns) / u128::from(awake_ns)) as u64
}

/// Returns the nanoseconds that spins burned. A spin burns nothing while its own vCPU is off or
/// halted.
pub fn burned_ns(spins: &[Spin], offs: &[FoundOff]) -> u64 {
    let offs = Offs::of(offs);
    let burned = |spin: &Spin| {
        let whole = spin.end_ns - spin.begin_ns;
        let off_ns = offs.off_ns(spin.vcpu, spin.begin_ns, spin.end_ns);
        whole - off_ns.saturating_add(spin.halted_ns).min(whole)
    };
    sum(spins.iter().filter(|spin| !spin.asleep).map(burned))
}

/// Adds up nanoseconds. A forged file can have more of them than fit, so the sum saturates.
pub(crate) fn sum(ns: impl IntoIterator<Item = u64>) -> u64 {
    ns.into_iter().fold(0, u64::saturating_add)
}

/// Explanation of a spin.
struct Why {
    cause: Cause,
    confidence: f64,
    waits_for: Option<u16>,
    wasted_ns: u64,
}

/// Explains a spin. `in_front` are the spins that waited for the same lock and got it during this
/// spin.
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
        let is_most = wasted_ns.saturating_mul(2) >= whole && wasted_ns > 0;
        is_most.then_some(Why { cause, confidence, waits_for: Some(vcpu), wasted_ns })
    };
    let named = spin.owner.map(|owner| owner.vcpu).or(spin.before.map(|taken| taken.vcpu));
    let plain =
        Why { cause: Cause::Plain, confidence: FOLLOWED, waits_for: named, wasted_ns: whole };
    if spin.wait == Wait::Ipi {
        // Every target must answer, so the slowest one counts.
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
    let anyone = spin.owner.is_none().then(|| offs.vcpus()).into_iter().flatten();
    let others = anyone.filter(|vcpu| *vcpu != spin.vcpu);
    let back_in_time = |vcpu: &u16| offs.ends_within(*vcpu, spin.end_ns, PASSES_ON_WITHIN_NS);
    let fitting =
        others.filter(back_in_time).map(|vcpu| (burned(spin.begin_ns, spin.end_ns, vcpu), vcpu));
    let fitted = fitting.max().and_then(|it| off(Cause::HolderOff, FITTED, it));
    fitted.or_else(|| passed_late(spin, &in_front, whole, offs)).unwrap_or(plain)
}

/// Explains a spin by late handovers, if the lock was on its way from one vCPU to the next for most
/// of the spin.
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
    let wasted_ns = sum(mine.into_iter().chain(theirs.clone()).map(|(ns, _)| ns));
    let theirs = theirs.max();
    let (cause, waits_for) =
        if mine >= theirs { (Cause::HolderOff, mine) } else { (Cause::WaiterOff, theirs) };
    (wasted_ns.saturating_mul(2) >= whole_ns).then_some(())?;
    let (_, vcpu) = waits_for?;
    let wasted_ns = wasted_ns.min(whole_ns);
    Some(Why { cause, confidence: INFERRED, waits_for: Some(vcpu), wasted_ns })
}

/// Off intervals of each vCPU, sorted and disjoint: overlapping intervals are merged.
struct Offs {
    by_vcpu: HashMap<u16, Vec<Off>>,
    /// Number of further steps that may be taken.
    steps: Cell<u64>,
}

struct Off {
    start_ns: u64,
    end_ns: u64,
    /// Off time of the vCPU before this interval, in nanoseconds.
    before_ns: u64,
}

impl Offs {
    fn of(offs: &[FoundOff]) -> Offs {
        let mut by_vcpu: HashMap<u16, Vec<Off>> = HashMap::new();
        for off in offs.iter().filter(|off| off.start_ns <= off.end_ns) {
            let FoundOff { start_ns, end_ns, .. } = *off;
            by_vcpu.entry(off.vcpu).or_default().push(Off { start_ns, end_ns, before_ns: 0 });
        }
        for intervals in by_vcpu.values_mut() {
            intervals.sort_unstable_by_key(|off| (off.start_ns, off.end_ns));
            intervals.dedup_by(|next, last| {
                let meet = next.start_ns <= last.end_ns;
                last.end_ns = if meet { last.end_ns.max(next.end_ns) } else { last.end_ns };
                meet
            });
            let mut sum_ns = 0;
            for off in intervals {
                off.before_ns = sum_ns;
                sum_ns += off.end_ns - off.start_ns;
            }
        }
        Offs { by_vcpu, steps: Cell::new(STEPS_MAX) }
    }

    /// Takes a step; returns whether the limit allows it.
    fn step(&self) -> bool {
        let left = self.steps.get();
        self.steps.set(left.saturating_sub(1));
        left > 0
    }

    fn vcpus(&self) -> impl Iterator<Item = u16> {
        self.by_vcpu.keys().copied().take_while(|_| self.step())
    }

    fn of_vcpu(&self, vcpu: u16) -> &[Off] {
        self.by_vcpu.get(&vcpu).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the nanoseconds for which a vCPU was off between two instants.
    fn off_ns(&self, vcpu: u16, from_ns: u64, to_ns: u64) -> u64 {
        let all = self.of_vcpu(vcpu);
        let until = |t_ns: u64| {
            let next = all.partition_point(|off| off.start_ns < t_ns);
            let last = all[..next].last();
            last.map_or(0, |off| off.before_ns + (off.end_ns.min(t_ns) - off.start_ns))
        };
        until(to_ns).saturating_sub(until(from_ns))
    }

    /// Returns the same without the time for which `but` was off, too.
    fn off_ns_but(&self, vcpu: u16, from_ns: u64, to_ns: u64, but: u16) -> u64 {
        let all = self.of_vcpu(vcpu);
        let first = all.partition_point(|off| off.end_ns <= from_ns);
        let here = all[first..].iter().take_while(|off| off.start_ns < to_ns && self.step());
        let cut = here.map(|off| (off.start_ns.max(from_ns), off.end_ns.min(to_ns)));
        let mine = |(start_ns, end_ns): (u64, u64)| {
            (end_ns - start_ns) - self.off_ns(but, start_ns, end_ns)
        };
        cut.filter(|(start_ns, end_ns)| start_ns < end_ns).map(mine).sum()
    }

    /// Returns whether one of a vCPU's off intervals ended at most `before_ns` before `t_ns`.
    fn ends_within(&self, vcpu: u16, t_ns: u64, before_ns: u64) -> bool {
        let all = self.of_vcpu(vcpu);
        let next = all.partition_point(|off| off.end_ns <= t_ns);
        all[..next].last().is_some_and(|off| off.end_ns.saturating_add(before_ns) >= t_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(wait: Wait, vcpu: u16, begin_ns: u64, end_ns: u64) -> Spin {
        Spin {
            wait,
            lock: 0xa0,
            asleep: false,
            vcpu,
            tid: 7,
            begin_ns,
            end_ns,
            halted_ns: 0,
            owner: None,
            before: None,
            site: String::new(),
        }
    }

    fn off(vcpu: u16, start_ns: u64, end_ns: u64) -> FoundOff {
        FoundOff { vcpu, start_ns, end_ns, start_error_ns: 0, was_idle: false }
    }

    #[test]
    fn those_who_got_the_lock_last_are_examined() {
        const MS: u64 = 1_000_000;
        let cause = |more: u64| {
            let mut spins = vec![spin(Wait::Spinlock, 0, 10 * MS, 20 * MS)];
            spins.push(spin(Wait::Spinlock, 1, 9 * MS, 18 * MS));
            let short = |n| spin(Wait::Spinlock, 2, 19 * MS + n, 19 * MS + n + 1);
            spins.extend((0..more).map(short));
            explain(spins, &[off(1, 11 * MS, 18 * MS)])[0].cause
        };
        assert_eq!(cause(RIVALS_MAX as u64 - 1), Cause::WaiterOff);
        assert_eq!(cause(RIVALS_MAX as u64), Cause::Plain);
    }

    #[test]
    fn what_is_examined_for_all_spins_together_is_limited() {
        let causes = |spins: &[Spin], steps: u64| {
            let all = explain_within(spins.to_vec(), &[off(1, 10, 19)], steps);
            all.into_iter().map(|episode| episode.cause).collect::<Vec<Cause>>()
        };
        // Each call takes two steps: one for the vCPU and one for its off interval.
        let calls = [0, 1, 2].map(|n: u64| spin(Wait::Ipi, 0, 10 + n, 20 + n));
        assert_eq!(causes(&calls, 6), [Cause::IpiOff; 3]);
        assert_eq!(causes(&calls, 4), [Cause::IpiOff, Cause::IpiOff, Cause::Plain]);
        // Of two rivals, the one that was off got the lock last.
        let waiters = [(0, 20), (2, 17), (1, 19)];
        let waiters = waiters.map(|(vcpu, end_ns)| spin(Wait::Mutex, vcpu, 9, end_ns));
        assert_eq!(causes(&waiters, 3)[0], Cause::WaiterOff);
        assert_eq!(causes(&waiters, 1)[0], Cause::Plain);
    }

    /// A difference of two prefix sums gives the same result as adding up the instants one by one.
    #[test]
    fn what_is_off_between_two_instants_is_added_up() {
        let all = [off(1, 5, 9), off(1, 3, 6), off(1, 20, 20), off(1, 12, 15), off(2, 4, 13)];
        let offs = Offs::of(&all);
        let is_off = |vcpu: u16, t_ns: u64| {
            all.iter().any(|off| off.vcpu == vcpu && (off.start_ns..off.end_ns).contains(&t_ns))
        };
        for (from_ns, to_ns) in (0..25_u64).flat_map(|from| (0..25_u64).map(move |to| (from, to))) {
            let here = || from_ns..to_ns;
            let one = here().filter(|t_ns| is_off(1, *t_ns)).count() as u64;
            assert_eq!(offs.off_ns(1, from_ns, to_ns), one, "{from_ns}..{to_ns}");
            let only = here().filter(|t_ns| is_off(1, *t_ns) && !is_off(2, *t_ns)).count() as u64;
            assert_eq!(offs.off_ns_but(1, from_ns, to_ns, 2), only, "{from_ns}..{to_ns}");
        }
    }
}

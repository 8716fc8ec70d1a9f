//! Compares a session that a guest recorded with the recording of its host.

use unspin_model::episode::{Cause, Wait};
use unspin_model::sensed::{KnownWaits, LENGTHS_US, SenseCheck};
use unspin_model::session::FoundOff;
use unspin_model::{Interval, Recording, Session, VcpuState};
use unspin_stats::quantile;
use unspin_trace::episodes::explain;
use unspin_trace::session::SessionError;

/// Length in nanoseconds from which the guest should notice that a vCPU is off.
const SEEN_AFTER_NS: u64 = 1_000_000;

/// Length in nanoseconds from which waits with known causes are judged.
const JUDGED_FROM_NS: u64 = 1_000_000;

/// Reads a session file and checks it against the host's recording.
///
/// # Errors
/// The file is not a valid session.
pub fn check_session(
    file: &[u8],
    truth: &Recording,
    waits: Option<&KnownWaits>,
) -> Result<SenseCheck, SessionError> {
    let session = unspin_trace::session::read_from(file, "the guest's session")?;
    let mut check = check(&session, truth);
    if let Some(known) = waits {
        causes(&mut check, &session, truth, known);
    }
    Ok(check)
}

/// A stretch of time on one vCPU.
#[derive(Debug, Clone, Copy)]
struct Span {
    start_ns: u64,
    end_ns: u64,
}

impl Span {
    fn len_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    fn common_ns(&self, other: &Span) -> u64 {
        self.end_ns.min(other.end_ns).saturating_sub(self.start_ns.max(other.start_ns))
    }
}

/// Compares the off intervals that both sides observed from before they began until after they
/// ended.
fn check(session: &Session, truth: &Recording) -> SenseCheck {
    let window = Span {
        start_ns: session.start_ns.max(truth.start_ns),
        end_ns: session.end_ns.min(truth.end_ns),
    };
    let mut check = SenseCheck { lost: session.lost, ..SenseCheck::default() };
    check.by_length = vec![[0; 2]; LENGTHS_US.len()];
    if window.end_ns <= window.start_ns {
        return check;
    }
    let inside = |span: &Span| span.start_ns > window.start_ns && span.end_ns < window.end_ns;
    let intervals = truth.intervals();
    let mut errors_us = Vec::new();
    for vcpu in 0..truth.vcpus {
        let real = intervals.iter().filter(|i| i.vcpu == vcpu && i.state == VcpuState::Off);
        let real: Vec<Span> =
            real.map(|i| Span { start_ns: i.start_ns, end_ns: i.end_ns }).collect();
        let of_vcpu = session.offs.iter().filter(|off| off.vcpu == vcpu);
        let found: Vec<Span> = of_vcpu.clone().map(span).collect();
        let certain: Vec<Span> = of_vcpu.map(certain).collect();
        for one in real.iter().filter(|one| inside(one)) {
            check.off_s[1] += one.len_ns() as f64 / 1e9;
            let Some(class) = class(one.len_ns()) else { continue };
            check.by_length[class][0] += 1;
            check.by_length[class][1] += u64::from(is_half_known(one, &found));
            errors_us.extend(length_error_us(one, &found));
        }
        for (one, certain) in found.iter().zip(&certain).filter(|(one, _)| inside(one)) {
            check.off_s[0] += one.len_ns() as f64 / 1e9;
            check.found += 1;
            check.real += u64::from(is_half_known(certain, &real));
        }
    }
    check.length_error_us = spread(errors_us);
    looks(&mut check, session, truth, window);
    let vcpu_s = window.len_ns() as f64 / 1e9 * f64::from(truth.vcpus.max(1));
    check.beats_per_s = session.beats as f64 / vcpu_s;
    check
}

fn span(off: &FoundOff) -> Span {
    Span { start_ns: off.start_ns, end_ns: off.end_ns }
}

/// Returns the part of an off interval that the guest is sure of: its start has an error.
fn certain(off: &FoundOff) -> Span {
    let start_ns = off.start_ns.saturating_add(off.start_error_ns).min(off.end_ns);
    Span { start_ns, end_ns: off.end_ns }
}

/// Returns the index of the class of [`LENGTHS_US`] that a length belongs to.
fn class(len_ns: u64) -> Option<usize> {
    LENGTHS_US.iter().rposition(|from_us| len_ns >= from_us * 1_000)
}

/// Returns the spans in `others` that overlap with `one`. `others` must be sorted.
fn overlapping<'a>(one: &'a Span, others: &'a [Span]) -> impl Iterator<Item = &'a Span> {
    let from = others.partition_point(|other| other.end_ns <= one.start_ns);
    others[from..].iter().take_while(|other| other.start_ns < one.end_ns)
}

fn is_half_known(one: &Span, others: &[Span]) -> bool {
    let known: u64 = overlapping(one, others).map(|other| one.common_ns(other)).sum();
    known * 2 >= one.len_ns()
}

/// Returns by how many microseconds the found interval is longer than the real one. The result is
/// `None` unless exactly one found interval matches.
fn length_error_us(real: &Span, found: &[Span]) -> Option<f64> {
    let mut answers = overlapping(real, found);
    let only = answers.next()?;
    let belongs = answers.next().is_none() && is_half_known(real, std::slice::from_ref(only));
    belongs.then(|| (only.len_ns() as f64 - real.len_ns() as f64) / 1e3)
}

fn spread(figures: Vec<f64>) -> Option<[f64; 3]> {
    let at = |share| quantile(&figures, share);
    Some([at(0.05)?, at(0.5)?, at(0.95)?])
}

/// Judges the causes that the guest names for waits on a vCPU that is known. If the host saw that
/// vCPU off for most of the wait, its absence is the real cause.
fn causes(check: &mut SenseCheck, session: &Session, truth: &Recording, known: &KnownWaits) {
    let intervals = truth.intervals();
    let off = |vcpu: u16| -> Vec<Span> {
        let own = |i: &&Interval| i.vcpu == vcpu && i.state == VcpuState::Off;
        let spans = intervals.iter().filter(own);
        spans.map(|i| Span { start_ns: i.start_ns, end_ns: i.end_ns }).collect()
    };
    let holder_off = off(known.vcpu);
    let window = Span { start_ns: truth.start_ns, end_ns: truth.end_ns };
    for episode in explain(session.spins.clone(), &session.offs) {
        let spin = &episode.spin;
        let wait = Span { start_ns: spin.begin_ns, end_ns: spin.end_ns };
        let inside = wait.start_ns > window.start_ns && wait.end_ns < window.end_ns;
        if spin.wait != known.wait || spin.vcpu == known.vcpu || !inside {
            continue;
        }
        if wait.len_ns() < JUDGED_FROM_NS {
            continue;
        }
        let own_off = if spin.asleep { Vec::new() } else { off(spin.vcpu) };
        let own_ns: u64 = overlapping(&wait, &own_off).map(|one| wait.common_ns(one)).sum();
        let kept_ns: u64 = overlapping(&wait, &holder_off)
            .map(|one| {
                let start_ns = one.start_ns.max(wait.start_ns);
                let part = Span { start_ns, end_ns: one.end_ns.min(wait.end_ns) };
                let both = overlapping(&part, &own_off).map(|own| part.common_ns(own));
                part.len_ns() - both.sum::<u64>()
            })
            .sum();
        let real = match known.wait {
            _ if kept_ns * 2 < wait.len_ns() - own_ns.min(wait.len_ns()) => known.otherwise,
            Wait::Ipi => Cause::IpiOff,
            _ => Cause::HolderOff,
        };
        if real.by_off() {
            check.kept_s[1] += kept_ns as f64 / 1e9;
        }
        if episode.cause.by_off() {
            check.kept_s[0] += episode.wasted_ns as f64 / 1e9;
        }
        check.add_waits(real, episode.cause, 1);
    }
}

/// Judges the guest's answers to "is that vCPU off now?". Answers so close to a change that the
/// error of the clocks' alignment could decide are left out.
fn looks(check: &mut SenseCheck, session: &Session, truth: &Recording, window: Span) {
    let intervals = truth.intervals();
    let margin_ns = truth.alignment_error_ns;
    for look in &session.looks {
        if look.t_ns <= window.start_ns || look.t_ns >= window.end_ns {
            continue;
        }
        let from = intervals.partition_point(|i| (i.vcpu, i.end_ns) <= (look.vcpu, look.t_ns));
        let Some(now) = intervals.get(from).filter(|i| i.vcpu == look.vcpu) else { continue };
        let since_ns = look.t_ns.saturating_sub(now.start_ns);
        let left_ns = now.end_ns - look.t_ns;
        if since_ns <= margin_ns || left_ns <= margin_ns {
            continue;
        }
        let says_off = look.state == VcpuState::Off;
        if now.state != VcpuState::Off {
            check.looks_not_off[0] += 1;
            check.looks_not_off[1] += u64::from(!says_off);
        } else if since_ns >= SEEN_AFTER_NS {
            check.looks_off[0] += 1;
            check.looks_off[1] += u64::from(says_off);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_model::VcpuEvent;
    use unspin_model::session::Look;

    const MS: u64 = 1_000_000;

    /// Returns the recording of one vCPU: off at 10-12, 20-25 and 30-30.5 ms, idle from 80 ms on.
    fn truth() -> Recording {
        let event = |ms: f64, state| VcpuEvent { t_ns: (ms * MS as f64) as u64, vcpu: 0, state };
        let mut events = vec![event(0.0, VcpuState::On)];
        for (off, on) in [(10.0, 12.0), (20.0, 25.0), (30.0, 30.5)] {
            events.extend([event(off, VcpuState::Off), event(on, VcpuState::On)]);
        }
        events.push(event(80.0, VcpuState::Idle));
        Recording {
            vm: "subject".into(),
            vcpus: 1,
            start_ns: 0,
            end_ns: 100 * MS,
            alignment_error_ns: 10_000,
            lost: 0,
            events,
        }
    }

    fn found(start_us: u64, end_us: u64) -> FoundOff {
        FoundOff {
            vcpu: 0,
            start_ns: start_us * 1_000,
            end_ns: end_us * 1_000,
            start_error_ns: 0,
            was_idle: false,
        }
    }

    #[test]
    fn what_was_found_and_missed_and_made_up_is_counted() {
        let look = |us: u64, state| Look { t_ns: us * 1_000, vcpu: 0, state };
        let session = Session {
            vcpus: 1,
            start_ns: 0,
            end_ns: 100 * MS,
            offs: vec![found(10_200, 12_000), found(20_000, 25_100), found(50_000, 51_000)],
            looks: vec![
                look(20_500, VcpuState::On),
                look(21_500, VcpuState::Off),
                look(22_500, VcpuState::On),
                look(40_000, VcpuState::On),
                look(60_000, VcpuState::Off),
                look(90_000, VcpuState::Idle),
            ],
            beats: 200,
            ..Session::default()
        };
        let check = check(&session, &truth());
        assert_eq!(check.by_length, [[1, 0], [1, 1], [1, 1], [0, 0]]);
        assert_eq!((check.found, check.real), (3, 2));
        assert_eq!(check.looks_off, [2, 1]);
        assert_eq!(check.looks_not_off, [3, 2]);
        assert_eq!(check.length_error_us, Some([-185.0, -50.0, 85.0]));
        assert!((check.beats_per_s - 2_000.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_in_common_is_no_result() {
        let session = Session { start_ns: 200 * MS, end_ns: 300 * MS, ..Session::default() };
        assert_eq!(check(&session, &truth()).found, 0);
    }
}

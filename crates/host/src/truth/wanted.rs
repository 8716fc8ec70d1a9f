//! The times at which a guest wanted its vCPUs.
//!
//! A host sees that a vCPU's thread sleeps, but not why. The vCPU may have halted. Or its
//! hypervisor makes it wait for something of its own (a lock, a page): the guest then wants the
//! vCPU and does not have it. A halted vCPU's thread may also be woken for an event that the guest
//! never sees. The guest itself knows when it wants a vCPU: whenever the vCPU does not idle. Its
//! kernel reports that by the tracepoint `cpu_idle`.

use std::io;

use unspin_model::{Interval, Recording, VcpuEvent, VcpuState};
use unspin_wire::IdleSpans;

use super::ring::{event_id, offset, u32_at};
use super::tracefs::Instance;

/// The state that `cpu_idle` reports at the end of idling (include/trace/events/power.h).
const EXIT: u32 = u32::MAX;

/// A trace of this kernel's `cpu_idle`.
pub struct IdleTrace {
    instance: Instance,
}

impl IdleTrace {
    /// Starts tracing.
    pub fn start() -> io::Result<IdleTrace> {
        let instance = Instance::recording("wanted")?;
        instance.write("events/power/cpu_idle/enable", "1")?;
        instance.write("tracing_on", "1")?;
        Ok(IdleTrace { instance })
    }

    /// Ends tracing. Returns the times at which each of the vCPUs idled, on CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// Lost events are an error, too.
    pub fn finish(self, vcpus: usize) -> io::Result<Vec<IdleSpans>> {
        self.instance.write("tracing_on", "0")?;
        let format = self.instance.read("events/power/cpu_idle/format")?;
        let layout =
            Layout::parse(&format).ok_or_else(|| io::Error::other("unknown format of cpu_idle"))?;
        let mut events = vec![Vec::new(); vcpus];
        let lost = self.instance.drain(|t_ns, record| {
            let Some((vcpu, idle)) = layout.read(record) else { return };
            if let Some(events) = events.get_mut(vcpu as usize) {
                events.push((t_ns, idle));
            }
        })?;
        if lost > 0 {
            return Err(io::Error::other(format!("{lost} events of cpu_idle were lost")));
        }
        Ok(events.into_iter().map(spans).collect())
    }
}

/// Offsets of the fields in a record.
struct Layout {
    id: u16,
    state: usize,
    cpu: usize,
}

impl Layout {
    fn parse(format: &str) -> Option<Layout> {
        Some(Layout {
            id: event_id(format)?,
            state: offset(format, "state")?,
            cpu: offset(format, "cpu_id")?,
        })
    }

    /// Returns the vCPU, and whether it idles from now on.
    fn read(&self, record: &[u8]) -> Option<(u32, bool)> {
        let id = u16::from_le_bytes(record.get(..2)?.try_into().ok()?);
        let is_ours = id == self.id;
        is_ours.then_some((u32_at(record, self.cpu)?, u32_at(record, self.state)? != EXIT))
    }
}

fn spans(mut events: Vec<(u64, bool)>) -> IdleSpans {
    events.sort_unstable();
    let mut spans = IdleSpans::new();
    let mut idle_since = events.first().and_then(|(_, idle)| (!idle).then_some(0));
    for (t_ns, idle) in events {
        match idle_since {
            None if idle => idle_since = Some(t_ns),
            Some(start_ns) if !idle => {
                spans.push([start_ns, t_ns]);
                idle_since = None;
            }
            _ => {}
        }
    }
    spans.extend(idle_since.map(|start_ns| [start_ns, u64::MAX]));
    spans
}

/// Returns the vCPUs' states, corrected by the guest's report of when it wanted them. A vCPU
/// without a report keeps the states that its host saw.
pub fn as_wanted(recording: &Recording, idle: &[IdleSpans]) -> Vec<VcpuEvent> {
    let mut by_vcpu = vec![Vec::new(); usize::from(recording.vcpus)];
    for interval in recording.intervals() {
        by_vcpu[usize::from(interval.vcpu)].push(interval);
    }
    let mut events = Vec::new();
    for (vcpu, seen) in by_vcpu.iter().enumerate() {
        let spans = idle.get(vcpu).map_or(&[][..], Vec::as_slice);
        let pieces = match spans {
            [] => seen.clone(),
            _ => of_vcpu(seen, spans, recording.alignment_error_ns),
        };
        events.extend(pieces.iter().map(|piece| VcpuEvent {
            t_ns: piece.start_ns,
            vcpu: vcpu as u16,
            state: piece.state,
        }));
    }
    events.sort_by_key(|event| event.t_ns);
    events
}

/// Corrects one vCPU. The guest's times are exact; the host's are shifted by up to `error_ns`.
fn of_vcpu(seen: &[Interval], idle: &[[u64; 2]], error_ns: u64) -> Vec<Interval> {
    let mut out = Vec::new();
    let mut before_ns = 0;
    for [start_ns, end_ns] in idle {
        let start_ns = start_ns.saturating_sub(error_ns).max(before_ns);
        let wanted = cut(seen, before_ns, start_ns).map(|piece| match piece.state {
            VcpuState::Idle => Interval { state: VcpuState::Off, ..piece },
            _ => piece,
        });
        out.extend(wanted);
        out.extend(unwanted(cut(seen, start_ns, *end_ns).collect()));
        before_ns = *end_ns;
    }
    let rest = cut(seen, before_ns, u64::MAX).map(|piece| match piece.state {
        VcpuState::Idle => Interval { state: VcpuState::Off, ..piece },
        _ => piece,
    });
    out.extend(rest);
    out
}

/// Corrects a span in which the guest idles. The vCPU is off only if it was woken and then leaves
/// idle.
fn unwanted(mut pieces: Vec<Interval>) -> Vec<Interval> {
    let mut leaves = true;
    for piece in pieces.iter_mut().rev().filter(|piece| piece.state != VcpuState::On) {
        if piece.state == VcpuState::Off && !std::mem::take(&mut leaves) {
            piece.state = VcpuState::Idle;
        }
        leaves = false;
    }
    pieces
}

/// Returns the part of the intervals between two instants.
fn cut(seen: &[Interval], from_ns: u64, to_ns: u64) -> impl Iterator<Item = Interval> {
    let first = seen.partition_point(|interval| interval.end_ns <= from_ns);
    let here = seen[first..].iter().take_while(move |interval| interval.start_ns < to_ns);
    let cut = here.map(move |interval| Interval {
        start_ns: interval.start_ns.max(from_ns),
        end_ns: interval.end_ns.min(to_ns),
        ..*interval
    });
    cut.filter(|interval| interval.end_ns > interval.start_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use VcpuState::{Idle, Off, On};

    /// Corrects the states that a host saw until 100, and returns them as (start, state).
    fn with_idle(seen: &[(u64, VcpuState)], idle: &[[u64; 2]]) -> Vec<(u64, VcpuState)> {
        let event =
            |(t_ns, state): &(u64, VcpuState)| VcpuEvent { t_ns: *t_ns, vcpu: 0, state: *state };
        let recording = Recording {
            vm: "subject".into(),
            vcpus: 1,
            start_ns: 0,
            end_ns: 100,
            alignment_error_ns: 2,
            lost: 0,
            events: seen.iter().map(event).collect(),
        };
        let events = as_wanted(&recording, &[idle.to_vec()]);
        let recording = Recording { events, ..recording };
        recording.intervals().iter().map(|piece| (piece.start_ns, piece.state)).collect()
    }

    #[test]
    fn a_thread_that_sleeps_while_the_guest_wants_it_is_off() {
        let seen = [(0, On), (20, Idle), (30, On), (49, Idle), (60, On)];
        assert_eq!(
            with_idle(&seen, &[[50, 61]]),
            [(0, On), (20, Off), (30, On), (49, Idle), (60, On)]
        );
    }

    #[test]
    fn a_thread_that_is_woken_for_the_hypervisor_alone_is_idle() {
        let seen = [(0, On), (12, Idle), (20, Off), (30, On), (31, Idle), (40, Off), (50, On)];
        assert_eq!(
            with_idle(&seen, &[[10, 52]]),
            [(0, On), (12, Idle), (30, On), (31, Idle), (40, Off), (50, On)]
        );
    }

    #[test]
    fn a_vcpu_that_the_guest_says_nothing_of_stays_as_it_was_seen() {
        let seen = [(0, On), (20, Idle), (30, Off), (35, On)];
        assert_eq!(with_idle(&seen, &[]), seen);
    }

    #[test]
    fn what_was_under_way_at_the_begin_and_at_the_end_counts() {
        assert_eq!(spans(vec![(5, false), (9, true)]), [[0, 5], [9, u64::MAX]]);
        assert_eq!(spans(vec![(5, true), (6, true), (9, false)]), [[5, 9]]);
        assert_eq!(spans(Vec::new()), IdleSpans::new());
    }

    #[test]
    fn a_record_says_who_idles() {
        let format = "ID: 40\n\tfield:u32 state;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:u32 cpu_id;\toffset:12;\tsize:4;\tsigned:0;\n";
        let layout = Layout::parse(format).unwrap();
        let record = |id: u16, state: u32, cpu: u32| {
            let mut bytes = vec![0; 16];
            bytes[..2].copy_from_slice(&id.to_le_bytes());
            bytes[8..12].copy_from_slice(&state.to_le_bytes());
            bytes[12..].copy_from_slice(&cpu.to_le_bytes());
            bytes
        };
        assert_eq!(layout.read(&record(40, 1, 3)), Some((3, true)));
        assert_eq!(layout.read(&record(40, EXIT, 3)), Some((3, false)));
        assert_eq!(layout.read(&record(41, 1, 3)), None);
        assert_eq!(layout.read(&record(40, 1, 3)[..12]), None);
    }
}

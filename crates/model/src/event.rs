//! The event stream: the states of vCPUs over time.

use serde::{Deserialize, Serialize};

/// State of a vCPU, as its host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VcpuState {
    /// The vCPU runs on a pCPU.
    On,
    /// The vCPU wants to run and is not on a pCPU.
    Off,
    /// The vCPU is halted: it does not want to run.
    Idle,
}

/// A change of state: from `t_ns` on, the vCPU is in `state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuEvent {
    /// Time of the change, nanoseconds in the recording's time base.
    pub t_ns: u64,
    /// The vCPU's index in its VM.
    pub vcpu: u16,
    /// The state entered.
    pub state: VcpuState,
}

/// The on/off/idle history of one VM's vCPUs over a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Name of the VM.
    pub vm: String,
    /// Number of the VM's vCPUs.
    pub vcpus: u16,
    /// Start of the window, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End of the window, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Bound on the error of the conversion from host time to guest time, in nanoseconds.
    pub alignment_error_ns: u64,
    /// Number of events that the host's ring buffer lost within the window; 0 if complete.
    pub lost: u64,
    /// Changes of state in time order; each vCPU's first one has the time `start_ns`.
    pub events: Vec<VcpuEvent>,
}

/// A period of one vCPU in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Index of the vCPU.
    pub vcpu: u16,
    /// State throughout the interval.
    pub state: VcpuState,
    /// Start, nanoseconds in the recording's time base.
    pub start_ns: u64,
    /// End, exclusive, nanoseconds in the recording's time base.
    pub end_ns: u64,
}

impl Interval {
    /// Returns the length in nanoseconds.
    pub fn len_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

impl Recording {
    /// Returns the intervals of each vCPU, in order of vCPU, then time. Consecutive events with one
    /// state become one interval; empty intervals are left out.
    pub fn intervals(&self) -> Vec<Interval> {
        let known = self.events.iter().filter(|event| event.vcpu < self.vcpus);
        let mut events: Vec<&VcpuEvent> = known.collect();
        events.sort_by_key(|event| event.vcpu);
        let of_vcpus = events.chunk_by(|event, next| event.vcpu == next.vcpu);
        of_vcpus.flat_map(|events| self.intervals_of(events)).collect()
    }

    fn intervals_of(&self, events: &[&VcpuEvent]) -> Vec<Interval> {
        let mut out: Vec<Interval> = Vec::new();
        let mut open: Option<VcpuEvent> = None;
        for event in events.iter().copied() {
            match open {
                Some(current) if current.state == event.state => continue,
                Some(current) => push_interval(&mut out, current, event.t_ns),
                None => {}
            }
            open = Some(*event);
        }
        if let Some(current) = open {
            push_interval(&mut out, current, self.end_ns);
        }
        out
    }
}

fn push_interval(out: &mut Vec<Interval>, from: VcpuEvent, end_ns: u64) {
    if end_ns > from.t_ns {
        out.push(Interval { vcpu: from.vcpu, state: from.state, start_ns: from.t_ns, end_ns });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_merge_repeats_and_close_at_the_window_end() {
        let event = |t_ns, vcpu, state| VcpuEvent { t_ns, vcpu, state };
        let recording = Recording {
            vm: "subject".into(),
            vcpus: 2,
            start_ns: 0,
            end_ns: 100,
            alignment_error_ns: 0,
            lost: 0,
            events: vec![
                event(0, 0, VcpuState::On),
                event(0, 1, VcpuState::Idle),
                event(40, 0, VcpuState::On),
                event(50, 0, VcpuState::Off),
                event(70, 0, VcpuState::On),
            ],
        };
        let lengths: Vec<_> =
            recording.intervals().iter().map(|i| (i.vcpu, i.state, i.len_ns())).collect();
        assert_eq!(
            lengths,
            [
                (0, VcpuState::On, 50),
                (0, VcpuState::Off, 20),
                (0, VcpuState::On, 30),
                (1, VcpuState::Idle, 100)
            ]
        );
    }
}

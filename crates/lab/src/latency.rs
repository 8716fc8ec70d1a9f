//! How long vCPUs wait for a pCPU, computed from a host's recording.

use unspin_model::{Lengths, Recording, VcpuState};
use unspin_stats::counted;

/// Returns the lengths in microseconds for which a vCPU was ready to run but had no pCPU. A wait
/// that extends beyond the recording is left out, because its length is unknown.
pub fn ready_to_on(recording: &Recording) -> Lengths {
    let intervals = recording.intervals();
    let whole = intervals.iter().filter(|one| {
        one.state == VcpuState::Off
            && one.start_ns > recording.start_ns
            && one.end_ns < recording.end_ns
    });
    counted(whole.map(|one| one.len_ns() as f64 / 1e3))
}

#[cfg(test)]
mod tests {
    use unspin_model::VcpuEvent;

    use super::*;

    #[test]
    fn waits_count_that_are_seen_from_begin_to_end() {
        use VcpuState::{Idle, Off, On};
        let history = [
            (0, 0, Off),
            (0, 1, On),
            (2_000, 1, Off),
            (4_400, 1, On),
            (5_000, 0, On),
            (6_000, 0, Idle),
            (7_000, 0, Off),
            (9_400, 0, On),
            (9_500, 1, Off),
        ];
        let event = |(t_ns, vcpu, state)| VcpuEvent { t_ns, vcpu, state };
        let recording = Recording {
            vm: "subject".into(),
            vcpus: 2,
            start_ns: 0,
            end_ns: 10_000,
            alignment_error_ns: 0,
            lost: 0,
            events: history.map(event).to_vec(),
        };
        assert_eq!(ready_to_on(&recording), [(2.4, 2)]);
    }
}

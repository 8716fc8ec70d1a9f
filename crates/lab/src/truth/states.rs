//! From what the scheduler did to a thread to what its vCPU was.

use std::collections::HashMap;

use unspin_model::{VcpuEvent, VcpuState};

/// What the scheduler did to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was put on a CPU.
    SwitchedIn,
    /// It was taken off a CPU while it wanted to run.
    Preempted,
    /// It went to sleep.
    Slept,
    /// It was woken.
    Woken,
}

/// A change of a thread, host CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadEvent {
    /// When.
    pub t_ns: u64,
    /// Which thread.
    pub tid: i32,
    /// What.
    pub change: Change,
}

/// Follows each vCPU's thread through the changes. The state before the first
/// change is the one that the change implies; a thread without any change ran
/// all the time or slept all the time, which /proc tells.
pub fn follow(threads: &[i32], events: &[ThreadEvent], start_ns: u64) -> Vec<VcpuEvent> {
    let vcpu_of: HashMap<i32, u16> =
        threads.iter().enumerate().map(|(index, tid)| (*tid, index as u16)).collect();
    let mut state: Vec<Option<VcpuState>> = vec![None; threads.len()];
    let mut changes = Vec::new();
    for event in events {
        let Some(&vcpu) = vcpu_of.get(&event.tid) else { continue };
        let now = &mut state[usize::from(vcpu)];
        let before = now.unwrap_or_else(|| implied_before(event.change));
        if now.is_none() {
            changes.push(VcpuEvent { t_ns: start_ns, vcpu, state: before });
        }
        let after = apply(before, event.change);
        if after != before {
            changes.push(VcpuEvent { t_ns: event.t_ns.max(start_ns), vcpu, state: after });
        }
        *now = Some(after);
    }
    for (vcpu, tid) in threads.iter().enumerate().filter(|(vcpu, _)| state[*vcpu].is_none()) {
        changes.push(VcpuEvent { t_ns: start_ns, vcpu: vcpu as u16, state: state_from_proc(*tid) });
    }
    changes.sort_by_key(|change| change.t_ns);
    changes
}

fn apply(before: VcpuState, change: Change) -> VcpuState {
    match (change, before) {
        (Change::SwitchedIn, _) => VcpuState::On,
        (Change::Preempted, _) => VcpuState::Off,
        (Change::Slept, _) => VcpuState::Idle,
        // Woken before it was off the CPU: it goes on running.
        (Change::Woken, VcpuState::On) => VcpuState::On,
        (Change::Woken, _) => VcpuState::Off,
    }
}

fn implied_before(change: Change) -> VcpuState {
    match change {
        Change::SwitchedIn => VcpuState::Off,
        Change::Preempted | Change::Slept => VcpuState::On,
        Change::Woken => VcpuState::Idle,
    }
}

fn state_from_proc(tid: i32) -> VcpuState {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    if state == Some('R') { VcpuState::On } else { VcpuState::Idle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_followed_through_sleep_wake_and_preemption() {
        let event = |t_ns, change| ThreadEvent { t_ns, tid: 7, change };
        let events = [
            event(10, Change::Preempted),
            event(30, Change::SwitchedIn),
            event(40, Change::Slept),
            event(60, Change::Woken),
            event(65, Change::SwitchedIn),
            event(70, Change::Woken),
        ];
        let states: Vec<_> = follow(&[7], &events, 5).iter().map(|e| (e.t_ns, e.state)).collect();
        use VcpuState::{Idle, Off, On};
        assert_eq!(states, [(5, On), (10, Off), (30, On), (40, Idle), (60, Off), (65, On)]);
    }
}

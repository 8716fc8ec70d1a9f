//! Derives the states of vCPUs from the scheduler's changes to their threads.

use std::collections::HashMap;

use unspin_model::{VcpuEvent, VcpuState};

/// A change that the scheduler made to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The thread was put on a CPU.
    SwitchedIn,
    /// The thread was taken off a CPU while it wanted to run.
    Preempted,
    /// The thread went to sleep.
    Slept,
    /// The thread's wake-up began (sched_waking).
    Waking,
    /// The thread's wake-up is done, and the thread is runnable (sched_wakeup).
    Woken,
}

/// A change to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadEvent {
    /// Host CLOCK_MONOTONIC, in nanoseconds.
    pub t_ns: u64,
    /// The thread.
    pub tid: i32,
    /// The change.
    pub change: Change,
}

/// Follows each vCPU's thread through the changes. The first change implies the state before it. A
/// thread without any change ran all the time or slept all the time, which /proc shows.
///
/// Some kernels (seen on a 6.18 guest kernel of a cloud) omit events of the idle task. This has two
/// consequences. First, a woken thread may leave a CPU, or be woken again, without a visible switch
/// to a CPU. It got the CPU from the idle task, so it was on since it was woken. Second, a wake-up
/// may begin before the thread leaves its CPU, and not be done by then. The idle task on that CPU
/// completes it, so the thread sleeps no longer than the switch lasts.
pub fn follow(threads: &[i32], events: &[ThreadEvent], start_ns: u64) -> Vec<VcpuEvent> {
    let mut vcpus: HashMap<i32, Follower> = HashMap::new();
    let mut changes = Vec::new();
    for event in events {
        let Some(vcpu) = threads.iter().position(|tid| *tid == event.tid) else { continue };
        let follower = vcpus.entry(event.tid).or_insert_with(|| {
            let state = implied_before(event.change);
            changes.push(VcpuEvent { t_ns: start_ns, vcpu: vcpu as u16, state });
            Follower { state, woken_at: None, waking: false }
        });
        follower.step(vcpu as u16, event, start_ns, &mut changes);
    }
    let silent = threads.iter().enumerate().filter(|(_, tid)| !vcpus.contains_key(tid));
    for (vcpu, tid) in silent {
        changes.push(VcpuEvent { t_ns: start_ns, vcpu: vcpu as u16, state: state_from_proc(*tid) });
    }
    changes.sort_by_key(|change| change.t_ns);
    changes
}

/// The state of a vCPU while the code follows its changes.
struct Follower {
    state: VcpuState,
    /// Index of the change to off that its wake-up caused, until another change follows.
    woken_at: Option<usize>,
    /// Whether a wake-up began while the vCPU was on, and is not done.
    waking: bool,
}

impl Follower {
    fn step(&mut self, vcpu: u16, event: &ThreadEvent, start_ns: u64, out: &mut Vec<VcpuEvent>) {
        let woken_at = self.woken_at.take_if(|_| event.change != Change::Woken);
        if let Some(index) = woken_at.filter(|_| event.change != Change::SwitchedIn) {
            out[index].state = VcpuState::On;
            self.state = VcpuState::On;
        }
        let after = self.after(event.change);
        self.waking = event.change == Change::Waking && self.state == VcpuState::On;
        if after != self.state {
            let woken = after == VcpuState::Off && event.change != Change::Preempted;
            self.woken_at = woken.then_some(out.len());
            out.push(VcpuEvent { t_ns: event.t_ns.max(start_ns), vcpu, state: after });
        }
        self.state = after;
    }

    fn after(&self, change: Change) -> VcpuState {
        match (change, self.state) {
            (Change::SwitchedIn, _) => VcpuState::On,
            (Change::Preempted, _) => VcpuState::Off,
            (Change::Slept, _) if self.waking => VcpuState::Off,
            (Change::Slept, _) => VcpuState::Idle,
            // A thread that is woken before it is off the CPU continues to run.
            (Change::Waking | Change::Woken, VcpuState::On) => VcpuState::On,
            (Change::Waking | Change::Woken, _) => VcpuState::Off,
        }
    }
}

fn implied_before(change: Change) -> VcpuState {
    match change {
        Change::SwitchedIn => VcpuState::Off,
        Change::Preempted | Change::Slept => VcpuState::On,
        Change::Waking | Change::Woken => VcpuState::Idle,
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

    #[test]
    fn a_switch_from_the_idle_task_that_was_not_traced_is_found() {
        let event = |t_ns, change| ThreadEvent { t_ns, tid: 7, change };
        let events = [
            event(10, Change::Slept),
            event(20, Change::Woken),
            event(25, Change::Woken),
            event(50, Change::Preempted),
            event(60, Change::SwitchedIn),
            event(70, Change::Slept),
            event(80, Change::Woken),
            event(85, Change::SwitchedIn),
        ];
        let states: Vec<_> = follow(&[7], &events, 5).iter().map(|e| (e.t_ns, e.state)).collect();
        use VcpuState::{Idle, Off, On};
        let expected =
            [(5, On), (10, Idle), (20, On), (50, Off), (60, On), (70, Idle), (80, Off), (85, On)];
        assert_eq!(states, expected);
    }

    #[test]
    fn a_wake_up_that_begins_before_the_thread_slept_ends_its_sleep() {
        let event = |t_ns, change| ThreadEvent { t_ns, tid: 7, change };
        let events = [
            event(10, Change::SwitchedIn),
            event(20, Change::Waking),
            event(24, Change::Slept),
            event(90, Change::Preempted),
            event(95, Change::SwitchedIn),
            // The wake-up is done in time, so the sleep that follows is another one.
            event(96, Change::Waking),
            event(97, Change::Woken),
            event(98, Change::Slept),
            event(110, Change::Waking),
            event(130, Change::Waking),
            event(131, Change::Slept),
            event(150, Change::Preempted),
        ];
        let states: Vec<_> = follow(&[7], &events, 5).iter().map(|e| (e.t_ns, e.state)).collect();
        use VcpuState::{Idle, Off, On};
        let expected = [(5, Off), (10, On), (24, On), (90, Off), (95, On), (98, Idle)];
        let expected = [&expected[..], &[(110, On), (131, On), (150, Off)]].concat();
        assert_eq!(states, expected);
    }
}

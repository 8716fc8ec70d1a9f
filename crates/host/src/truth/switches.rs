//! The scheduler's changes to some threads: sched_switch, sched_waking, sched_wakeup.

use std::io;

use super::ring::{event_id, offset, u32_at, u64_at};
use super::states::{Change, ThreadEvent};
use super::tracefs::{Instance, of_threads};

const WAKES: [&str; 2] = ["sched_waking", "sched_wakeup"];

/// A trace of the scheduler's events for some threads.
pub struct SwitchTrace {
    instance: Instance,
}

impl SwitchTrace {
    /// Starts tracing the threads.
    pub fn start(threads: &[i32]) -> io::Result<SwitchTrace> {
        let instance = Instance::recording("truth")?;
        let switches = of_threads(&["prev_pid", "next_pid"], threads);
        instance.write("events/sched/sched_switch/filter", &switches)?;
        for event in WAKES {
            let wakes = of_threads(&["pid"], threads);
            instance.write(&format!("events/sched/{event}/filter"), &wakes)?;
            instance.write(&format!("events/sched/{event}/enable"), "1")?;
        }
        instance.write("events/sched/sched_switch/enable", "1")?;
        instance.write("tracing_on", "1")?;
        Ok(SwitchTrace { instance })
    }

    /// Ends tracing. Returns the events in time order, and the number of lost events.
    pub fn finish(self) -> io::Result<(Vec<ThreadEvent>, u64)> {
        self.instance.write("tracing_on", "0")?;
        let format = |event| self.instance.read(&format!("events/sched/{event}/format"));
        let [waking, wakeup] = WAKES;
        let layout = Layout::parse(&format("sched_switch")?, &format(waking)?, &format(wakeup)?)
            .ok_or_else(|| io::Error::other("unknown format of sched_switch"))?;
        let mut events = Vec::new();
        let lost = self.instance.drain(|t_ns, record| layout.read(t_ns, record, &mut events))?;
        events.sort_by_key(|event| event.t_ns);
        Ok((events, lost))
    }
}

/// Offsets of the fields in their events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    switch_id: u16,
    prev_pid: usize,
    prev_state: usize,
    next_pid: usize,
    waking_id: u16,
    waking_pid: usize,
    wakeup_id: u16,
    wakeup_pid: usize,
}

impl Layout {
    /// Parses the three events' `format` files. Returns `None` if a field is missing.
    fn parse(switch: &str, waking: &str, wakeup: &str) -> Option<Layout> {
        Some(Layout {
            switch_id: event_id(switch)?,
            prev_pid: offset(switch, "prev_pid")?,
            prev_state: offset(switch, "prev_state")?,
            next_pid: offset(switch, "next_pid")?,
            waking_id: event_id(waking)?,
            waking_pid: offset(waking, "pid")?,
            wakeup_id: event_id(wakeup)?,
            wakeup_pid: offset(wakeup, "pid")?,
        })
    }

    /// Appends the changes that a record describes.
    fn read(&self, t_ns: u64, record: &[u8], out: &mut Vec<ThreadEvent>) {
        let id = record.get(..2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let pid = |offset| u32_at(record, offset).map(|pid| pid as i32);
        if id == Some(self.switch_id) {
            let (Some(prev), Some(next)) = (pid(self.prev_pid), pid(self.next_pid)) else { return };
            let Some(state) = u64_at(record, self.prev_state) else { return };
            // Bits 0 to 7 are the sleeping states (TASK_REPORT); if none is set, the thread is
            // runnable. Preemption sets TASK_REPORT_MAX in addition.
            let change = if state & 0xff == 0 { Change::Preempted } else { Change::Slept };
            out.push(ThreadEvent { t_ns, tid: prev, change });
            out.push(ThreadEvent { t_ns, tid: next, change: Change::SwitchedIn });
            return;
        }
        let (offset, change) = match id {
            Some(id) if id == self.waking_id => (self.waking_pid, Change::Waking),
            Some(id) if id == self.wakeup_id => (self.wakeup_pid, Change::Woken),
            _ => return,
        };
        if let Some(tid) = pid(offset) {
            out.push(ThreadEvent { t_ns, tid, change });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n";
    const WAKING: &str = "name: sched_waking\nID: 318\nformat:\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
    const WAKEUP: &str = "name: sched_wakeup\nID: 317\nformat:\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";

    /// Returns the thread and the change of each event of a record.
    fn read(fields: &[(usize, i64)]) -> Vec<(i32, Change)> {
        let layout = Layout::parse(SWITCH, WAKING, WAKEUP).unwrap();
        let mut record = vec![0; 64];
        for (at, value) in fields {
            let length = if *at == 32 { 8 } else { 4 };
            record[*at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        }
        let mut events = Vec::new();
        layout.read(7, &record, &mut events);
        events.iter().map(|event| (event.tid, event.change)).collect()
    }

    #[test]
    fn a_switch_is_two_changes() {
        let preempted = read(&[(0, 316), (24, 11), (32, 0x100), (56, 12)]);
        assert_eq!(preempted, [(11, Change::Preempted), (12, Change::SwitchedIn)]);
        let slept = read(&[(0, 316), (24, 12), (32, 1), (56, 11)]);
        assert_eq!(slept, [(12, Change::Slept), (11, Change::SwitchedIn)]);
    }

    #[test]
    fn a_wake_up_has_two_events() {
        assert_eq!(read(&[(0, 318), (24, 11)]), [(11, Change::Waking)]);
        assert_eq!(read(&[(0, 317), (24, 11)]), [(11, Change::Woken)]);
        assert_eq!(read(&[(0, 5), (24, 11)]), []);
    }

    #[test]
    fn a_format_without_a_field_is_none_of_ours() {
        assert!(Layout::parse("ID: 3\n", WAKING, WAKEUP).is_none());
    }
}

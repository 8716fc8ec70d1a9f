//! Ground truth: the times at which each vCPU thread was on, off and idle, as its host saw it.
//!
//! The truth comes from sched_switch and the wake-ups (every change) if tracefs works, else from
//! schedstat (totals only). A thread that is switched out while runnable becomes off. A thread that
//! sleeps is idle until it is woken, and off from then until it runs. If the guest reports when it
//! idled, its report decides what a sleep was.

mod align;
mod check;
mod ring;
mod schedstat;
mod states;
mod switches;
pub mod tracefs;
mod wanted;

use unspin_model::{Recording, TruthSummary, VcpuEvent, VcpuState};

pub use align::{Alignment, AskBy, align};
pub use schedstat::Totals;
pub use wanted::IdleTrace;

use states::ThreadEvent;
use switches::SwitchTrace;
use unspin_wire::clock::mono_ns;
use unspin_wire::{JobResult, TruthMode, VmSpec};

/// An observation in progress.
pub struct Observer {
    threads: Vec<i32>,
    trace: Option<SwitchTrace>,
    totals: Totals,
    pid: u32,
    start_ns: u64,
}

/// The result of an observation, in host time.
pub struct Observed {
    /// Start of the observation, in host CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// End of the observation.
    pub end_ns: u64,
    /// Changes of state by vCPU, in host time; `None` if only totals are known.
    pub events: Option<Vec<VcpuEvent>>,
    /// Changes that the scheduler made to the vCPUs' threads, and to the threads that ran before
    /// and after them. Empty if none were traced.
    pub changes: Vec<ThreadEvent>,
    /// Number of events that the ring buffer lost.
    pub lost: u64,
    /// Nanoseconds that the vCPUs were on and off.
    pub totals: Totals,
}

/// The least activity of a live guest: more than a hundredth of one vCPU's time.
const ALIVE: u64 = 100;

impl Observed {
    /// Returns whether the guest stopped as the observation began: all vCPUs were halted
    /// throughout. An emulated host sometimes loses an L2's interrupts, and no guest survives that.
    pub fn is_dead(&self) -> bool {
        (self.totals.on_ns + self.totals.off_ns) * ALIVE < self.end_ns - self.start_ns
    }
}

impl Observer {
    /// Starts observing a VM's vCPU threads.
    pub fn start(mode: TruthMode, pid: u32, threads: &[i32]) -> Option<Observer> {
        let trace = match mode {
            TruthMode::Off => return None,
            TruthMode::Totals => None,
            TruthMode::Events => SwitchTrace::start(threads).ok(),
        };
        let totals = Totals::read(pid, threads);
        Some(Observer { threads: threads.to_vec(), trace, totals, pid, start_ns: mono_ns() })
    }

    /// Ends the observation.
    pub fn finish(self) -> Observed {
        let end_ns = mono_ns();
        let totals = Totals::read(self.pid, &self.threads).since(self.totals);
        let trace = self.trace.map(SwitchTrace::finish).and_then(Result::ok);
        // What the first change implies about the time before it holds only if none came earlier.
        let whole = trace.as_ref().filter(|(_, lost)| *lost == 0);
        let events = whole.map(|(seen, _)| states::follow(&self.threads, seen, self.start_ns));
        let (changes, lost) = trace.unwrap_or_default();
        Observed { start_ns: self.start_ns, end_ns, events, changes, lost, totals }
    }
}

/// Returns the truth of a job's window: figures, and every change in the guest's time base if it is
/// known.
pub fn describe(
    observed: &Observed,
    alignment: Option<Alignment>,
    job: &JobResult,
    vm: &VmSpec,
) -> (TruthSummary, Option<Recording>) {
    let recording = alignment.zip(observed.events.as_ref()).map(|(alignment, events)| Recording {
        vm: vm.name.clone(),
        vcpus: vm.vcpus as u16,
        start_ns: job.start_ns,
        end_ns: job.end_ns,
        alignment_error_ns: alignment.error_ns,
        lost: observed.lost,
        events: clip(events, alignment, job, vm.vcpus as u16),
    });
    let recording = recording.map(|seen| match &job.idle {
        Some(idle) => Recording { events: wanted::as_wanted(&seen, idle), ..seen },
        None => seen,
    });
    let mut summary = match &recording {
        Some(recording) => summarize(recording),
        None => observed.totals.summary(observed.end_ns - observed.start_ns, vm.vcpus),
    };
    summary.alignment_error_us = alignment.map(|a| a.error_ns as f64 / 1e3);
    if recording.is_some() && job.idle.is_some() {
        summary.method.push_str(", cpu_idle");
    }
    summary.lost = observed.lost;
    (summary, recording)
}

/// Returns the events within the job's window, in guest time. Each vCPU starts with its state at
/// the start of the window.
fn clip(events: &[VcpuEvent], alignment: Alignment, job: &JobResult, vcpus: u16) -> Vec<VcpuEvent> {
    let mut first = vec![VcpuState::Idle; usize::from(vcpus)];
    let mut inside = Vec::new();
    for event in events {
        let t_ns = alignment.to_guest(event.t_ns);
        if t_ns <= job.start_ns {
            first[usize::from(event.vcpu)] = event.state;
        } else if t_ns < job.end_ns {
            inside.push(VcpuEvent { t_ns, ..*event });
        }
    }
    let starts = first.into_iter().enumerate();
    let starts =
        starts.map(|(vcpu, state)| VcpuEvent { t_ns: job.start_ns, vcpu: vcpu as u16, state });
    starts.chain(inside).collect()
}

fn summarize(recording: &Recording) -> TruthSummary {
    let mut totals_ns = [0_u64; 3];
    let mut off_us = Vec::new();
    for interval in recording.intervals() {
        totals_ns[interval.state as usize] += interval.len_ns();
        if interval.state == VcpuState::Off {
            off_us.push(interval.len_ns() as f64 / 1e3);
        }
    }
    off_us.sort_by(f64::total_cmp);
    let at = |q: f64| off_us[((off_us.len() - 1) as f64 * q).round() as usize];
    let seconds = |state: VcpuState| totals_ns[state as usize] as f64 / 1e9;
    TruthSummary {
        method: "sched_switch".into(),
        window_s: (recording.end_ns - recording.start_ns) as f64 / 1e9,
        on_s: seconds(VcpuState::On),
        off_s: seconds(VcpuState::Off),
        idle_s: seconds(VcpuState::Idle),
        off_count: off_us.len() as u64,
        off_us: (!off_us.is_empty()).then(|| [at(0.5), at(0.99), at(1.0)]),
        ..TruthSummary::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_only_halts_is_dead() {
        let observed = |on_ns, off_ns| Observed {
            start_ns: 0,
            end_ns: 30_000_000_000,
            events: None,
            changes: Vec::new(),
            lost: 0,
            totals: Totals { on_ns, off_ns },
        };
        assert!(observed(20_000_000, 1_000_000).is_dead());
        assert!(!observed(400_000_000, 0).is_dead());
        assert!(!observed(0, 400_000_000).is_dead(), "it wants to run");
    }
}

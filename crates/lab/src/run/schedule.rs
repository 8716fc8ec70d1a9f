//! The order of runs, as a pure state machine. The schedule has no access to hosts, disks or
//! clocks. The driver reports events, and the schedule answers with the next step.
//!
//! Several lanes can share a schedule. Each lane boots its own VMs and takes runs from its current
//! boot.

use std::collections::VecDeque;

use unspin_model::FailureKind;

use crate::experiment::{PlannedBoot, PlannedRun};

/// The next step of a lane.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Boot the VMs of this planned boot.
    Boot(Box<PlannedBoot>),
    /// Carry out a run on the current VMs.
    Run(Box<Attempt>),
    /// Stop the current VMs.
    Halt,
    /// Nothing is left for this lane.
    Done,
}

/// An attempt at a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The planned run.
    pub run: PlannedRun,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Position of the run in its boot, from 0.
    pub position: u32,
}

/// A boot and its unfinished runs, each with the number of its next attempt.
struct Open {
    boot: PlannedBoot,
    runs: VecDeque<(PlannedRun, u32)>,
}

enum Lane {
    Free,
    Booting(Open),
    Up {
        open: Open,
        position: u32,
    },
    /// The boot is used up. Its VMs stop before its unfinished runs are tried again.
    Spent(Open),
}

/// The schedule of an experiment's unfinished runs.
pub struct Schedule {
    waiting: VecDeque<Open>,
    lanes: Vec<Lane>,
    stopped: bool,
}

impl Schedule {
    /// Makes a schedule of the unfinished runs, in the order of the plan.
    pub fn new(plan: &[PlannedBoot], lanes: usize, is_done: impl Fn(u64) -> bool) -> Schedule {
        let open = |boot: &PlannedBoot| {
            let runs = boot.runs.iter().filter(|run| !is_done(run.run));
            let runs: VecDeque<_> = runs.map(|run| (run.clone(), 1)).collect();
            (!runs.is_empty()).then(|| Open { boot: boot.clone(), runs })
        };
        Schedule {
            waiting: plan.iter().filter_map(open).collect(),
            lanes: (0..lanes).map(|_| Lane::Free).collect(),
            stopped: false,
        }
    }

    /// Ends every lane after its current step, at the user's request or after an error elsewhere.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Returns the next step of a lane.
    pub fn next(&mut self, lane: usize) -> Step {
        let state = std::mem::replace(&mut self.lanes[lane], Lane::Free);
        let (step, state) = match state {
            Lane::Up { open, .. } | Lane::Spent(open) if self.stopped || open.runs.is_empty() => {
                (Step::Halt, self.put_back(open))
            }
            Lane::Spent(open) => (Step::Halt, self.put_back(open)),
            Lane::Up { open, position } => {
                let (run, attempt) = open.runs[0].clone();
                (
                    Step::Run(Box::new(Attempt { run, attempt, position })),
                    Lane::Up { open, position },
                )
            }
            Lane::Free | Lane::Booting(_) if self.stopped => (Step::Done, Lane::Free),
            Lane::Free | Lane::Booting(_) => match self.waiting.pop_front() {
                Some(open) => (Step::Boot(Box::new(open.boot.clone())), Lane::Booting(open)),
                None => (Step::Done, Lane::Free),
            },
        };
        self.lanes[lane] = state;
        step
    }

    /// Takes note that the lane's VMs are up.
    pub fn booted(&mut self, lane: usize) {
        if let Lane::Booting(open) = std::mem::replace(&mut self.lanes[lane], Lane::Free) {
            self.lanes[lane] = Lane::Up { open, position: 0 };
        }
    }

    /// Takes note that the lane's run has its result. If its guest is not usable, the next run
    /// boots again.
    pub fn ran(&mut self, lane: usize, usable: bool) {
        let Lane::Up { mut open, position } = std::mem::replace(&mut self.lanes[lane], Lane::Free)
        else {
            return;
        };
        open.runs.pop_front();
        let position = position + 1;
        self.lanes[lane] = if usable { Lane::Up { open, position } } else { Lane::Spent(open) };
    }

    /// Takes note that the lane's boot or run failed and its VMs are gone. Returns the attempts
    /// that failed: this one and, if the boot failed for good, all other runs of the boot.
    pub fn failed(&mut self, lane: usize, kind: FailureKind) -> Vec<Attempt> {
        let (mut open, position) = match std::mem::replace(&mut self.lanes[lane], Lane::Free) {
            Lane::Booting(open) => (open, None),
            Lane::Up { open, position } => (open, Some(position)),
            Lane::Free | Lane::Spent(_) => return Vec::new(),
        };
        if kind == FailureKind::Interrupted {
            self.stopped = true;
            return Vec::new();
        }
        let at = position.unwrap_or(0);
        let Some((run, attempt)) = open.runs.pop_front() else { return Vec::new() };
        let mut failed = vec![Attempt { run: run.clone(), attempt, position: at }];
        if attempt < attempts(kind, open.boot.virtual_time) {
            open.runs.push_front((run, attempt + 1));
        } else if position.is_none() {
            // A boot that fails for one run fails for the others, too.
            let rest = open.runs.drain(..);
            failed.extend(rest.map(|(run, _)| Attempt { run, attempt: 1, position: 0 }));
        }
        self.put_back(open);
        failed
    }

    /// Puts a boot's unfinished runs first, so a block is finished before the next one begins.
    fn put_back(&mut self, open: Open) -> Lane {
        if !open.runs.is_empty() {
            self.waiting.push_front(open);
        }
        Lane::Free
    }
}

/// Returns how many attempts a run gets, by the kind of its failure. A run gets more than one only
/// if another attempt is known to help. In virtual time, another attempt would have the same
/// result.
fn attempts(kind: FailureKind, virtual_time: bool) -> u32 {
    match kind {
        _ if virtual_time => 1,
        FailureKind::Int3Oops => 5,
        FailureKind::BootTimeout | FailureKind::GuestHang => 2,
        _ => 1,
    }
}

//! The states of the guest's vCPUs in a record: when each was on, off and idle.

use unspin_model::{Recording, TruthSummary, VcpuEvent, VcpuState};

use super::{Event, Kind, Record};

/// Mapping of virtual time to the guest's CLOCK_MONOTONIC: a line through two instants at which
/// both are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Virtual and guest nanoseconds of the first instant.
    pub begin: (u64, u64),
    /// Virtual and guest nanoseconds of the second instant.
    pub end: (u64, u64),
    /// Bound on the difference between the guest's reading and the instant, in nanoseconds.
    pub error_ns: u64,
}

impl Clock {
    /// Returns the guest's nanoseconds at a virtual time.
    pub fn to_guest(&self, virtual_ns: u64) -> u64 {
        let (virtual_span, guest_span) =
            (i128::from(self.end.0) - i128::from(self.begin.0), self.guest_span());
        let since = i128::from(virtual_ns) - i128::from(self.begin.0);
        let guest_since = if virtual_span > 0 { since * guest_span / virtual_span } else { since };
        u64::try_from(i128::from(self.begin.1) + guest_since).unwrap_or(0)
    }

    fn guest_span(&self) -> i128 {
        i128::from(self.end.1) - i128::from(self.begin.1)
    }
}

/// The true states of vCPUs and pCPUs in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// Every change of the guest's vCPUs, in guest time.
    pub recording: Recording,
    /// Sums over the guest's vCPUs.
    pub summary: TruthSummary,
    /// Seconds for which each neighbour entity was on, in order of entity.
    pub neighbours_on_s: Vec<f64>,
    /// Seconds for which each pCPU carried an entity, in order of pCPU.
    pub pcpus_busy_s: Vec<f64>,
}

/// Returns the state after an event; `None` if the event does not change the state.
pub(crate) fn state_after(kind: Kind) -> Option<VcpuState> {
    match kind {
        Kind::On => Some(VcpuState::On),
        Kind::Off | Kind::Wake => Some(VcpuState::Off),
        Kind::Idle => Some(VcpuState::Idle),
        _ => None,
    }
}

impl Record {
    /// Returns the states from `window.0` to `window.1` (virtual nanoseconds), with times of the
    /// guest's clock.
    pub fn truth(&self, vm: &str, window: (u64, u64), clock: &Clock) -> Truth {
        let changes = self.changes(window);
        let of_guest = |change: &&Change| u32::from(change.entity) < self.vcpus;
        let events = changes.iter().filter(of_guest).map(|change| VcpuEvent {
            t_ns: clock.to_guest(change.t_ns),
            vcpu: change.entity,
            state: change.state,
        });
        let recording = Recording {
            vm: vm.to_owned(),
            vcpus: self.vcpus as u16,
            start_ns: clock.to_guest(window.0),
            end_ns: clock.to_guest(window.1),
            alignment_error_ns: clock.error_ns,
            lost: 0,
            events: events.collect(),
        };
        let mut on_ns = vec![0; self.entities as usize];
        let mut busy_ns = vec![0; self.pcpus as usize];
        let mut sums = Sums::default();
        for stretch in stretches(&changes, window.1) {
            if stretch.state == VcpuState::On {
                on_ns[usize::from(stretch.entity)] += stretch.ns;
                if let Some(pcpu) = stretch.pcpu {
                    busy_ns[usize::from(pcpu)] += stretch.ns;
                }
            }
            if u32::from(stretch.entity) < self.vcpus {
                sums.add(stretch);
            }
        }
        let seconds = |ns: &[u64]| ns.iter().map(|ns| *ns as f64 / 1e9).collect();
        Truth {
            recording,
            summary: sums.summary(window),
            neighbours_on_s: seconds(&on_ns[self.vcpus as usize..]),
            pcpus_busy_s: seconds(&busy_ns),
        }
    }

    /// Returns the changes of state within a window in time order. Each entity's first change lies
    /// at the start of the window.
    fn changes(&self, window: (u64, u64)) -> Vec<Change> {
        let at_start =
            |entity| Change { t_ns: window.0, entity, state: VcpuState::Idle, pcpu: None };
        let mut first: Vec<Change> = (0..self.entities as u16).map(at_start).collect();
        let mut inside = Vec::new();
        for event in self.in_time_order() {
            let Some(change) = Change::of(event) else { continue };
            if event.t_ns <= window.0 {
                first[usize::from(event.entity)] = Change { t_ns: window.0, ..change };
            } else if event.t_ns < window.1 {
                inside.push(change);
            }
        }
        first.extend(inside);
        first
    }
}

/// An entity's change of state.
#[derive(Debug, Clone, Copy)]
struct Change {
    t_ns: u64,
    entity: u16,
    state: VcpuState,
    pcpu: Option<u8>,
}

impl Change {
    fn of(event: &Event) -> Option<Change> {
        let state = state_after(event.kind)?;
        Some(Change { t_ns: event.t_ns, entity: event.entity, state, pcpu: event.pcpu })
    }
}

/// A period of an entity in one state.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    entity: u16,
    state: VcpuState,
    pcpu: Option<u8>,
    ns: u64,
}

/// Returns the periods of each entity, closed at the window's end. Consecutive off or idle periods
/// become one.
fn stretches(changes: &[Change], end_ns: u64) -> Vec<Stretch> {
    let entities = changes.iter().map(|change| usize::from(change.entity) + 1).max().unwrap_or(0);
    let mut open: Vec<Option<Change>> = vec![None; entities];
    let mut out = Vec::new();
    let close = |from: Change, end_ns: u64, out: &mut Vec<Stretch>| {
        if end_ns > from.t_ns {
            let Change { entity, state, pcpu, t_ns } = from;
            out.push(Stretch { entity, state, pcpu, ns: end_ns - t_ns });
        }
    };
    for change in changes {
        let current = &mut open[usize::from(change.entity)];
        match current {
            Some(from) if from.state == change.state && from.state != VcpuState::On => {}
            Some(from) => {
                close(*from, change.t_ns, &mut out);
                *current = Some(*change);
            }
            None => *current = Some(*change),
        }
    }
    for from in open.into_iter().flatten() {
        close(from, end_ns, &mut out);
    }
    out
}

/// Sums over the guest's vCPUs.
#[derive(Default)]
struct Sums {
    ns: [u64; 3],
    off_us: Vec<f64>,
}

impl Sums {
    fn add(&mut self, stretch: Stretch) {
        self.ns[stretch.state as usize] += stretch.ns;
        if stretch.state == VcpuState::Off {
            self.off_us.push(stretch.ns as f64 / 1e3);
        }
    }

    fn summary(mut self, window: (u64, u64)) -> TruthSummary {
        self.off_us.sort_by(f64::total_cmp);
        let at = |q: f64| self.off_us[((self.off_us.len() - 1) as f64 * q).round() as usize];
        let seconds = |state: VcpuState| self.ns[state as usize] as f64 / 1e9;
        TruthSummary {
            method: "virtual time".into(),
            window_s: window.1.saturating_sub(window.0) as f64 / 1e9,
            on_s: seconds(VcpuState::On),
            off_s: seconds(VcpuState::Off),
            idle_s: seconds(VcpuState::Idle),
            off_count: self.off_us.len() as u64,
            off_us: (!self.off_us.is_empty()).then(|| [at(0.5), at(0.99), at(1.0)]),
            ..TruthSummary::default()
        }
    }
}

//! Compares injected off intervals with the observed ones.

use unspin_model::VcpuState;
use unspin_model::run::InjectionCheck;
use unspin_wire::VmSpec;

use super::Observed;
use super::states::{Change, ThreadEvent};
use crate::Injected;

/// The most by which the injector's begin follows the vCPU's preemption, in nanoseconds.
const BEGINS_WITHIN_NS: u64 = 300_000;

/// A stretch of a vCPU in one state: start and end in host nanoseconds.
type Stretch = (VcpuState, u64, u64);

/// The observation that corresponds to an injected interval.
enum Met {
    /// An off interval that began with the injected one: start and end.
    Off(u64, u64),
    /// The vCPU was not on.
    NotOn,
    /// The vCPU seems to have stayed on, which is impossible.
    Missing,
}

impl Observed {
    /// Finds for each interval that the injector took from a pCPU the off interval that began with
    /// it, in host time. The off interval is that of the vCPU pinned to the pCPU.
    pub fn check(&self, injected: &[Injected], vm: &VmSpec) -> InjectionCheck {
        let mut check =
            InjectionCheck { injected: injected.len() as u64, ..InjectionCheck::default() };
        for one in injected {
            let vcpu = vm.pcpus.iter().position(|pcpu| *pcpu == one.pcpu).unwrap_or(0);
            let stretches: Vec<Stretch> = self.stretches(vcpu as u16).collect();
            match meet(&stretches, one) {
                Met::Off(start_ns, end_ns) if self.prolonged(one, start_ns, end_ns) => {
                    check.prolonged += 1
                }
                Met::Off(start_ns, end_ns) => check.pairs_us.push([
                    one.asked_ns as f64 / 1e3,
                    (one.end_ns - one.start_ns) as f64 / 1e3,
                    (end_ns - start_ns) as f64 / 1e3,
                ]),
                Met::NotOn => check.not_on += 1,
                Met::Missing => check.missing += 1,
            }
        }
        check
    }

    /// Returns whether the vCPU lost its pCPU to another thread than the injector, or got it back
    /// from another thread.
    fn prolonged(&self, one: &Injected, start_ns: u64, end_ns: u64) -> bool {
        let others = |t_ns, is: fn(Change) -> bool| {
            self.changes_at(t_ns).any(|c| is(c.change) && c.tid != one.tid)
        };
        others(start_ns, |change| change == Change::SwitchedIn)
            || others(end_ns, |change| matches!(change, Change::Preempted | Change::Slept))
    }

    /// Returns the changes at a time. A switch is two changes, one for each thread.
    fn changes_at(&self, t_ns: u64) -> impl Iterator<Item = &ThreadEvent> {
        let from = self.changes.partition_point(|change| change.t_ns < t_ns);
        self.changes[from..].iter().take_while(move |change| change.t_ns == t_ns)
    }

    /// Returns the stretches of a vCPU, with repeated states merged.
    fn stretches(&self, vcpu: u16) -> impl Iterator<Item = Stretch> {
        let events = self.events.as_deref().unwrap_or_default();
        let mut changes: Vec<(VcpuState, u64)> = Vec::new();
        for event in events.iter().filter(|event| event.vcpu == vcpu) {
            if changes.last().is_none_or(|(state, _)| *state != event.state) {
                changes.push((event.state, event.t_ns));
            }
        }
        let ends: Vec<u64> = changes.iter().skip(1).map(|c| c.1).chain([self.end_ns]).collect();
        changes.into_iter().zip(ends).map(|((state, start), end)| (state, start, end))
    }
}

fn meet(stretches: &[Stretch], one: &Injected) -> Met {
    let Some(at) = stretches.iter().rposition(|(_, start, _)| *start <= one.start_ns) else {
        return Met::NotOn;
    };
    let was_on = at > 0 && stretches[at - 1].0 == VcpuState::On;
    match stretches[at] {
        (VcpuState::On, _, _) => Met::Missing,
        (VcpuState::Off, start, end) if was_on && start + BEGINS_WITHIN_NS >= one.start_ns => {
            Met::Off(start, end)
        }
        _ => Met::NotOn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::schedstat::Totals;
    use unspin_model::{Accel, VcpuEvent};

    fn spec() -> VmSpec {
        VmSpec {
            name: "subject".into(),
            vcpus: 1,
            memory_mib: 512,
            kernel: String::new(),
            initramfs: String::new(),
            boot_params: String::new(),
            accel: Accel::Tcg,
            cpu: "max".into(),
            pcpus: vec![1],
            pinned: true,
            pause_exits: None,
            boot_limit_s: 60.0,
        }
    }

    #[test]
    fn each_injected_interval_finds_its_observed_one() {
        let event = |t_ns, state| VcpuEvent { t_ns, vcpu: 0, state };
        let change = |t_ns, tid, change| ThreadEvent { t_ns, tid, change };
        let events = vec![
            event(0, VcpuState::On),
            event(990, VcpuState::Off),
            event(2_020, VcpuState::On),
            event(2_990, VcpuState::Off),
            event(4_100, VcpuState::On),
            event(5_800, VcpuState::Off),
            event(7_050, VcpuState::On),
            event(9_000, VcpuState::Idle),
        ];
        let observed = Observed {
            start_ns: 0,
            end_ns: 10_000,
            events: Some(events),
            changes: vec![
                change(990, 77, Change::SwitchedIn),
                change(2_020, 77, Change::Slept),
                change(2_990, 77, Change::SwitchedIn),
                change(4_100, 78, Change::Slept),
                change(5_800, 78, Change::SwitchedIn),
                change(7_050, 77, Change::Slept),
            ],
            lost: 0,
            totals: Totals::default(),
        };
        let injected = |start_ns| Injected {
            tid: 77,
            pcpu: 1,
            asked_ns: 1_000,
            start_ns,
            end_ns: start_ns + 1_000,
        };
        let all = [1_000, 3_000, 5_000, 6_000, 9_500].map(injected);
        let check = observed.check(&all, &spec());
        assert_eq!((check.injected, check.missing, check.not_on, check.prolonged), (5, 1, 1, 2));
        assert_eq!(check.pairs_us, [[1.0, 1.0, 1.03]]);
    }
}

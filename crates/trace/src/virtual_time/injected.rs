//! The intervals that the injector took from a pCPU, and the off intervals that they caused.

use unspin_model::run::InjectionCheck;

use super::{Event, Kind, Record};

impl Record {
    /// Compares each interval for which the injector had a pCPU with the off interval of the vCPU
    /// that ran there. In virtual time, nothing is missed or measured wrongly, so the result shows
    /// how the injector hit the guest. `not_on` counts the intervals that hit no vCPU, `prolonged`
    /// those after which the vCPU waited for another thread of the host.
    pub fn injected(&self) -> InjectionCheck {
        let mut check = InjectionCheck::default();
        let events = self.in_time_order();
        for (at, event) in events.iter().enumerate() {
            let (Kind::Steal(true), Some(pcpu)) = (event.kind, event.pcpu) else { continue };
            let given_back =
                |one: &&&Event| one.kind == Kind::Steal(false) && one.pcpu == Some(pcpu);
            let Some(end) = events[at..].iter().find(given_back) else { continue };
            check.injected += 1;
            let taken_ns = end.t_ns - event.t_ns;
            match self.off_from(&events, event) {
                None => check.not_on += 1,
                Some(off_ns) if off_ns > taken_ns + self.quantum_ns => check.prolonged += 1,
                Some(off_ns) => {
                    let [taken, off] = [taken_ns, off_ns].map(|ns| ns as f64 / 1e3);
                    check.pairs_us.push([taken, taken, off]);
                }
            }
        }
        check
    }

    /// Returns how long the vCPU that ran on the event's pCPU was off from that instant on, in
    /// nanoseconds; `None` if no vCPU ran there.
    fn off_from(&self, events: &[&Event], taken: &Event) -> Option<u64> {
        let same_ns = events.partition_point(|event| event.t_ns < taken.t_ns);
        let lost_it = |event: &&Event| {
            event.kind == Kind::Off && event.pcpu == taken.pcpu && self.is_vcpu(event)
        };
        let mut same = events[same_ns..].iter().copied().take_while(|e| e.t_ns == taken.t_ns);
        let off = same.find(lost_it)?;
        let back = |event: &&&Event| event.kind == Kind::On && event.entity == off.entity;
        let on = events[same_ns..].iter().find(|event| event.t_ns >= off.t_ns && back(event))?;
        Some(on.t_ns - off.t_ns)
    }

    fn is_vcpu(&self, event: &Event) -> bool {
        u32::from(event.entity) < self.vcpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_is_met_missed_or_prolonged() {
        let event = |t_ns, kind, pcpu, entity| Event { t_ns, kind, pcpu, entity, offset: 0 };
        let on_1 = |t_ns, kind, entity| event(t_ns, kind, Some(1), entity);
        let none = u16::MAX;
        let events = vec![
            on_1(0, Kind::On, 1),
            on_1(1_000, Kind::Off, 1),
            on_1(1_000, Kind::Steal(true), none),
            on_1(2_500, Kind::Steal(false), none),
            on_1(2_500, Kind::On, 1),
            on_1(4_000, Kind::Idle, 1),
            on_1(5_000, Kind::Steal(true), none),
            on_1(6_000, Kind::Steal(false), none),
            on_1(6_500, Kind::On, 1),
            on_1(7_000, Kind::Off, 1),
            on_1(7_000, Kind::Steal(true), none),
            on_1(8_000, Kind::Steal(false), none),
            on_1(8_000, Kind::On, 2),
            on_1(9_000, Kind::Idle, 2),
            on_1(9_000, Kind::On, 1),
            on_1(9_500, Kind::Steal(true), none),
        ];
        let record = Record {
            pcpus: 2,
            vcpus: 2,
            entities: 3,
            quantum_ns: 500,
            events,
            ..Record::default()
        };
        let check = record.injected();
        assert_eq!((check.injected, check.missing, check.not_on, check.prolonged), (3, 0, 1, 1));
        assert_eq!(check.pairs_us, [[1.5, 1.5, 1.5]]);
    }
}

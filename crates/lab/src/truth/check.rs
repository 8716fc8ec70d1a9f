//! Injected off intervals held against the observed ones.

use unspin_model::run::InjectionCheck;
use unspin_model::{VcpuEvent, VcpuState};

use super::Observed;
use crate::host::Injected;
use crate::wire::VmSpec;

impl Observed {
    /// For each interval that the injector took from a pCPU: the off interval
    /// of the vCPU held to that pCPU that overlaps it, in host time.
    pub fn check(&self, injected: &[Injected], vm: &VmSpec) -> InjectionCheck {
        let offs = off_intervals(self.events.as_deref().unwrap_or_default(), self.end_ns);
        let mut check =
            InjectionCheck { injected: injected.len() as u64, ..InjectionCheck::default() };
        for one in injected {
            let vcpu = vm.pcpus.iter().position(|pcpu| *pcpu == one.pcpu).unwrap_or(0);
            let overlapping = offs.iter().filter(|(v, start, end)| {
                usize::from(*v) == vcpu && *start < one.end_ns && *end > one.start_ns
            });
            let longest = overlapping.map(|(_, start, end)| end - start).max();
            match longest {
                Some(observed_ns) => check.pairs_us.push([
                    one.asked_ns as f64 / 1e3,
                    (one.end_ns - one.start_ns) as f64 / 1e3,
                    observed_ns as f64 / 1e3,
                ]),
                None => check.missing += 1,
            }
        }
        check
    }
}

/// (vCPU, start, end) of each off interval.
fn off_intervals(events: &[VcpuEvent], end_ns: u64) -> Vec<(u16, u64, u64)> {
    let mut since: Vec<Option<u64>> = Vec::new();
    let mut out = Vec::new();
    for event in events {
        let vcpu = usize::from(event.vcpu);
        since.resize(since.len().max(vcpu + 1), None);
        match (event.state, since[vcpu]) {
            (VcpuState::Off, None) => since[vcpu] = Some(event.t_ns),
            (VcpuState::Off, Some(_)) | (_, None) => {}
            (_, Some(start)) => {
                out.push((event.vcpu, start, event.t_ns));
                since[vcpu] = None;
            }
        }
    }
    let open = since.iter().enumerate().filter_map(|(vcpu, start)| start.map(|s| (vcpu, s)));
    out.extend(open.map(|(vcpu, start)| (vcpu as u16, start, end_ns)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::schedstat::Totals;
    use unspin_model::Accel;

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
        let events =
            vec![event(0, VcpuState::On), event(990, VcpuState::Off), event(2_020, VcpuState::On)];
        let observed = Observed {
            start_ns: 0,
            end_ns: 10_000,
            events: Some(events),
            lost: 0,
            totals: Totals::default(),
        };
        let injected = |start_ns, end_ns| Injected { pcpu: 1, asked_ns: 1_000, start_ns, end_ns };
        let check = observed.check(&[injected(1_000, 2_000), injected(5_000, 6_000)], &spec());
        assert_eq!((check.injected, check.missing), (2, 1));
        assert_eq!(check.pairs_us, [[1.0, 1.0, 1.03]]);
    }
}

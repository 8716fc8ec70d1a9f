//! The figures of the control loop: sums over all vCPUs, and the statistics that users see.

use unspin_model::scheduler::{Limits, Stats};

use super::control::Control;
use super::window::Sums;
use crate::sense::now_ns;

impl Control {
    /// Returns the sums over all online vCPUs until now.
    pub(super) fn sums(&mut self) -> Sums {
        let now_ns = now_ns();
        let mut sums = Sums { now_ns, ..Sums::default() };
        let page = self.sensor.page();
        let spun = self.account.spun(now_ns, |vcpu| page.vcpu(vcpu).idle_since_ns != 0);
        for &vcpu in &self.online {
            let record = page.vcpu(vcpu as usize);
            sums.idle_ns += record.idle_until(now_ns);
            let spun = spun[vcpu as usize];
            sums.off_ns += record.off_ns.saturating_sub(spun.held_ns);
            sums.held_ns += spun.held_ns;
            sums.spin_ns += spun.ns;
            sums.spin_off_ns += spun.off_ns;
            sums.switches += record.switches;
            sums.stopper_ns += record.stopper.on_ns;
            sums.ticks += record.samples.count;
            sums.user_ticks += record.samples.user_count;
            sums.lost += spun.lost;
            sums.paths += spun.count;
        }
        sums
    }

    /// Returns the statistics that `--status` and the metrics show.
    pub(super) fn stats(&self) -> Stats {
        let vcpus = |thousandths: u32| f64::from(thousandths) / 1e3;
        let seconds = self.started.elapsed().as_secs_f64();
        let since_start = self.before.less(&self.first);
        let usage = self.decider.in_use();
        let [trials_fewer, trials_more] = self.decider.trials();
        Stats {
            actuator: self.means.actuator(),
            seconds,
            late_us: self.late_ns / 1_000,
            vcpus: self.online.len() as u32,
            used: usage,
            used_vcpus: self.arrangement.split(&self.online, usage as usize).0,
            trial: self.decider.on_trial(),
            on: vcpus(self.facts.on_m),
            off: vcpus(self.facts.off_m),
            spinning: vcpus(self.facts.spin_m),
            used_mean: self.used_vcpu_s / seconds.max(1e-9),
            off_s: since_start.off_ns as f64 / 1e9,
            spin_s: since_start.spin_ns as f64 / 1e9,
            trials_fewer,
            trials_more,
            limits: Some(Limits {
                spins: since_start.paths,
                spins_lost: since_start.lost,
                not_counted: self.account.missing.clone(),
                not_counting: self.refused.as_ref().map(|(_, why)| why.clone()),
                failed: self.failed.clone(),
                failures: self.failures.count,
                late: self.late.clone(),
                ..self.means.limits()
            }),
            ..Stats::default()
        }
    }
}

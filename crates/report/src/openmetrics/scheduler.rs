//! Figures of the guest scheduler.

use unspin_model::scheduler::{Actuator, Limits, Stats};

use super::{counter, gauge, sample, value};

/// Returns all figures, with the closing line that the format requires. Counts restart when the
/// scheduler is loaded again, which the format allows.
pub fn scheduler(stats: &Stats) -> String {
    let mut out = String::new();
    vcpus(&mut out, stats);
    if stats.resting.is_none() {
        measured(&mut out, stats);
    }
    out + "# EOF\n"
}

/// Writes the figures that are valid whether or not anything is measured.
fn vcpus(out: &mut String, stats: &Stats) {
    let resting = f64::from(u8::from(stats.resting.is_some()));
    let gauges = [
        ("unspin_run_resting", "1 where the host helps: nothing is limited or measured", resting),
        ("unspin_run_vcpus", "vCPUs that there are", f64::from(stats.vcpus)),
        ("unspin_run_vcpus_in_use", "vCPUs in use", f64::from(stats.used)),
    ];
    for (name, about, number) in gauges {
        gauge(out, name, about);
        value(out, name, "", number);
    }
    gauge(out, "unspin_run_vcpu_in_use", "1 for each vCPU in use");
    // An offline vCPU is not in use, and the vCPUs after it have higher numbers.
    let end = stats.used_vcpus.iter().map(|vcpu| vcpu + 1).max().unwrap_or(0).max(stats.vcpus);
    for vcpu in 0..end {
        let used = f64::from(stats.used_vcpus.contains(&vcpu));
        value(out, "unspin_run_vcpu_in_use", &format!("vcpu=\"{vcpu}\""), used);
    }
    let name = "unspin_run_seconds";
    let about = "Time since unspin run began or last loaded its scheduler";
    counter(out, name, Some("seconds"), about);
    sample(out, name, "", stats.seconds);
}

fn measured(out: &mut String, stats: &Stats) {
    now(out, stats);
    let seconds = [
        ("unspin_run_vcpu_off_seconds", "vCPU time off", stats.off_s),
        ("unspin_run_vcpu_spin_seconds", "vCPU time spent spinning", stats.spin_s),
    ];
    for (name, about, value) in seconds {
        counter(out, name, Some("seconds"), about);
        sample(out, name, "", value);
    }
    trials(out, stats);
    let limited = stats.limits.iter().flat_map(limited);
    let scheduled = match stats.actuator {
        Actuator::Cpuset => Vec::new(),
        Actuator::SchedExt => counts(stats).to_vec(),
    };
    for (name, about, count) in limited.chain(scheduled) {
        counter(out, name, None, about);
        sample(out, name, "", count as f64);
    }
}

/// Writes the figures of the current state.
fn now(out: &mut String, stats: &Stats) {
    let gauges = [
        ("unspin_run_trial", "1 while that number is being tried", f64::from(stats.trial)),
        ("unspin_run_vcpus_on", "vCPUs on, in the last window", stats.on),
        ("unspin_run_vcpus_off", "vCPUs off, in the last window", stats.off),
        ("unspin_run_vcpus_spinning", "vCPUs spinning, in the last window", stats.spinning),
    ];
    let alone = match stats.actuator {
        Actuator::Cpuset => (
            "unspin_run_cgroups_limited",
            "Cgroups whose tasks are limited to the vCPUs in use",
            stats.limits.as_ref().map_or(0.0, |limits| limits.cgroups as f64),
        ),
        Actuator::SchedExt => (
            "unspin_run_tasks_waiting",
            "Tasks that waited for a vCPU, in the last window",
            stats.waiting,
        ),
    };
    for (name, about, number) in gauges.into_iter().chain([alone]) {
        gauge(out, name, about);
        value(out, name, "", number);
    }
}

fn trials(out: &mut String, stats: &Stats) {
    let directions = [("to=\"fewer\"", stats.trials_fewer), ("to=\"more\"", stats.trials_more)];
    let counts = [
        ("unspin_run_trials", "Times that another number of vCPUs was tried"),
        ("unspin_run_trials_kept", "Those that were kept"),
    ];
    for (place, (name, about)) in counts.into_iter().enumerate() {
        counter(out, name, None, about);
        for (labels, trials) in directions {
            sample(out, name, labels, trials[place] as f64);
        }
    }
}

fn limited(limits: &Limits) -> [(&'static str, &'static str, u64); 3] {
    [
        ("unspin_run_spins", "Times in spinning slow paths of the kernel", limits.spins),
        ("unspin_run_spins_lost", "Those whose end was not seen", limits.spins_lost),
        (
            "unspin_run_limit_failures",
            "Changes of the limit that failed, each try counted",
            limits.failures,
        ),
    ]
}

fn counts(stats: &Stats) -> [(&'static str, &'static str, u64); 11] {
    [
        ("unspin_run_placed", "Tasks that went to an idle vCPU at once", stats.placed),
        ("unspin_run_queued", "Tasks that were queued", stats.queued),
        ("unspin_run_pulled", "Tasks that a vCPU took from another one's queue", stats.pulled),
        (
            "unspin_run_preempted",
            "Tasks that gave way to one that woke and had had less",
            stats.preempted,
        ),
        (
            "unspin_run_slices_extended",
            "Slices that were lengthened because others waited for what the task held",
            stats.extended,
        ),
        (
            "unspin_run_holders_handed",
            "Holders that waited and ran next on the vCPU of a task that waits for them",
            stats.handed,
        ),
        (
            "unspin_run_spinners_slept",
            "Spinners that were sent to sleep because the owner's vCPU was off",
            stats.slept,
        ),
        ("unspin_run_vcpus_asked", "Times that a vCPU was asked whether it is on", stats.asked),
        (
            "unspin_run_throttled",
            "Tasks that had to wait because their cgroup had used its time",
            stats.throttled,
        ),
        (
            "unspin_run_reenqueued",
            "Tasks that left a vCPU's own queue because a real-time task took the vCPU",
            stats.reenqueued,
        ),
        ("unspin_run_cleared", "Times that a vCPU was taken out of use", stats.cleared),
    ]
}

//! Finds out which verbs work here: from trials if they were made, else from files.

use unspin_model::diagnosis::{Ready, Verb};

use super::distribution::Family;
use crate::confine::{HELPED, ONE_VCPU};
use crate::machine::{Facts, Trial, Trials, host_helps};
use crate::sense::{hidden, remedies};

/// The tracepoints that distinguish off vCPUs from busy and from idle ones.
const ACTIVITY: &[&str] =
    &["irq_vectors:local_timer_entry", "power:cpu_idle", "sched:sched_switch"];
/// The tracepoints of contended locks, since Linux 5.19 (commit 16edd9b511a1).
const CONTENTION: &[&str] = &["lock:contention_begin", "lock:contention_end"];

/// Returns all verbs, in the order in which a user needs them.
pub(super) fn all(facts: &Facts) -> Vec<Verb> {
    let sensor = sensing(facts, |trials| &trials.sensor);
    let mut verbs = vec![
        verb("watch", sensor.clone()),
        verb("record", sensor),
        verb("watch --listen", listening(facts)),
        verb("report", (Ready::Yes, vec![])),
        verb("run", scheduling(facts)),
        verb("trace", (Ready::Yes, vec![])),
    ];
    verbs.extend(facts.lab.as_ref().map(|_| verb("lab", lab(facts))));
    verbs
}

type Judged = (Ready, Vec<String>);

fn verb(name: &str, (ready, why): Judged) -> Verb {
    Verb { verb: name.into(), ready, why }
}

/// Judges whether a sensor works.
fn sensing(facts: &Facts, of: fn(&Trials) -> &Trial) -> Judged {
    let missing = bpf(facts);
    if !missing.is_empty() {
        return (Ready::No, missing);
    }
    match &facts.trials {
        None => by_tracepoints(facts),
        Some(trials) => match of(trials) {
            Trial { failed: Some(why), .. } => (Ready::No, vec![why.clone()]),
            Trial { missing, .. } if missing.is_empty() => (Ready::Yes, vec![]),
            Trial { missing, refused, .. } => (Ready::Partly, partly(missing, refused)),
        },
    }
}

/// Describes what is not visible without the missing hooks, and names the hooks.
fn partly(missing: &[String], refused: &Option<String>) -> Vec<String> {
    let hidden = hidden(missing).join(", ");
    let mut hooks: Vec<&str> =
        missing.iter().filter_map(|hook| hook.split('/').next_back()).collect();
    hooks.dedup();
    let lacks = hooks.join(", ");
    let mut why = vec![match hidden.is_empty() {
        true => format!("missing: {lacks}"),
        false => format!("does not show {hidden} (missing: {lacks})"),
    }];
    why.extend(refused.clone());
    why.extend(remedies(missing).into_iter().map(str::to_owned));
    why
}

/// Judges by the tracepoints that tracefs lists, if nothing was tried.
fn by_tracepoints(facts: &Facts) -> Judged {
    let Some(found) = &facts.tracepoints else {
        let mount = "tracefs: mount -t tracefs tracefs /sys/kernel/tracing";
        return (Ready::No, vec![mount.into()]);
    };
    let absent = |wanted: &[&str]| -> Vec<String> {
        let absent = wanted.iter().filter(|name| !found.contains(**name));
        absent.map(|name| format!("the tracepoint {name}: a newer kernel")).collect()
    };
    match (absent(ACTIVITY), absent(CONTENTION)) {
        (activity, _) if !activity.is_empty() => (Ready::No, activity),
        (_, contention) if !contention.is_empty() => (Ready::Partly, contention),
        _ => (Ready::Yes, vec![]),
    }
}

fn listening(facts: &Facts) -> Judged {
    let causes = sensing(facts, |trials| &trials.sensor);
    let (ready, mut why) = sensing(facts, |trials| &trials.light);
    let timers = why.iter().any(|why| why.contains("CONFIG_KALLSYMS_ALL"));
    if ready == Ready::No && causes.0 != Ready::No && timers {
        why = vec![
            "unspin cannot find this kernel's timers, because it lacks CONFIG_KALLSYMS_ALL: use \
             `watch --listen ADDR --causes`, which sets timers of its own"
                .into(),
        ];
    }
    (ready, why)
}

/// Judges whether `run` can act: with cpusets or, if these are missing, with a scheduler in place
/// of the kernel's.
fn scheduling(facts: &Facts) -> Judged {
    let unknown = "cgroup version 2 has no usable cpuset controller here";
    let lacks = || facts.cpuset_lacks.clone().unwrap_or_else(|| unknown.into());
    if facts.container {
        return (Ready::No, vec![lacks()]);
    }
    let mut why = deciding(facts);
    if !facts.cpuset {
        // Beside isolcpus=, no kernel loads one.
        let missing = if facts.isolates() { Vec::new() } else { sched_ext(facts) };
        let neither = (facts.isolates() || !missing.is_empty()).then(lacks);
        add(&mut why, neither.into_iter().chain(missing));
    }
    if why.is_empty() {
        return match host_helps(facts) {
            true => (Ready::Partly, vec![format!("acts only with --actuator: {HELPED}")]),
            false if facts.cpus == 1 => (Ready::Partly, vec![ONE_VCPU.into()]),
            false => (Ready::Yes, vec![]),
        };
    }
    if host_helps(facts) {
        why.insert(0, format!("it would do nothing: {HELPED}"));
    }
    (Ready::No, why)
}

/// Returns why the number of vCPUs cannot be decided. That takes both off intervals and spins,
/// whichever way limits them.
fn deciding(facts: &Facts) -> Vec<String> {
    let off = sensing(facts, |trials| &trials.light);
    let spins = sensing(facts, |trials| &trials.spins);
    let mut why = Vec::new();
    for (ready, lacks) in [off, spins] {
        add(&mut why, lacks.into_iter().filter(|_| ready == Ready::No));
    }
    why
}

/// Adds reasons that are not in the list yet.
fn add(why: &mut Vec<String>, more: impl Iterator<Item = String>) {
    for reason in more {
        if !why.contains(&reason) {
            why.push(reason);
        }
    }
}

/// Returns what is missing for a scheduler in place of the kernel's.
fn sched_ext(facts: &Facts) -> Vec<String> {
    let mut missing = bpf(facts);
    match facts.sched_ext.as_deref() {
        None => missing.push(no_sched_ext(&facts.kernel)),
        Some("disabled") => {
            let trial = facts.trials.as_ref().map(|trials| &trials.scheduler);
            missing.extend(trial.and_then(|trial| trial.failed.clone()));
        }
        Some(state) => missing.push(format!(
            "sched_ext is {state}: another scheduler uses it (`unspin run --status` asks ours)"
        )),
    }
    missing
}

/// Returns why sched_ext is missing. It exists since Linux 6.12, but not every kernel is built with
/// it.
fn no_sched_ext(release: &str) -> String {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let is_new_enough = number().zip(number()).is_some_and(|version| version >= (6, 12));
    match is_new_enough {
        true => format!(
            "sched_ext: Linux {release} is new enough, but built without CONFIG_SCHED_CLASS_EXT"
        ),
        false => "sched_ext: Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y".into(),
    }
}

/// Judges whether the lab works. It needs QEMU and the programs of its guests; hardware
/// virtualization only makes it faster.
fn lab(facts: &Facts) -> Judged {
    let has = |name: &str| facts.lab.as_ref().is_some_and(|found| found.contains(name));
    let packages = Family::of(&facts.os_release).lab_packages();
    let missing: Vec<String> = [("qemu-system-x86_64", "QEMU"), ("busybox", "a static busybox")]
        .into_iter()
        .filter(|(program, _)| !has(program))
        .map(|(program, what)| format!("{what} ({program})"))
        .collect();
    if !missing.is_empty() {
        return (Ready::No, vec![format!("{}: {packages}", missing.join(" and "))]);
    }
    if has("/dev/kvm") {
        return (Ready::Yes, vec![]);
    }
    (Ready::Partly, vec!["no /dev/kvm: guests are emulated, or run in virtual time".into()])
}

fn bpf(facts: &Facts) -> Vec<String> {
    let mut missing = Vec::new();
    if !facts.privileged {
        missing.push("root: sudo unspin doctor tries it".to_owned());
    }
    if !facts.btf {
        missing.push("BTF: a kernel with CONFIG_DEBUG_INFO_BTF=y".to_owned());
    }
    missing
}

//! What this kernel and this user's rights allow.

use unspin_model::diagnosis::Ability;

use crate::machine::Facts;

/// Needed to tell off vCPUs from busy and from idle ones.
const ACTIVITY: &[&str] =
    &["irq_vectors:local_timer_entry", "power:cpu_idle", "sched:sched_switch"];
/// Since Linux 5.19 (commit 16edd9b511a1).
const CONTENTION: &[&str] = &["lock:contention_begin", "lock:contention_end"];

/// All of them, possible or not.
pub(super) fn all(facts: &Facts) -> Vec<Ability> {
    vec![
        ability("see when vCPUs are off", tracing(facts, ACTIVITY)),
        ability("see who spins on which lock", tracing(facts, CONTENTION)),
        ability("schedule around it", scheduling(facts)),
    ]
}

fn ability(name: &str, missing: Vec<String>) -> Ability {
    Ability { name: name.into(), possible: missing.is_empty(), missing }
}

/// What BPF programs on tracepoints need.
fn tracing(facts: &Facts, tracepoints: &[&str]) -> Vec<String> {
    let mut missing = bpf(facts);
    match &facts.tracepoints {
        None if facts.privileged => {
            missing.push("tracefs: mount -t tracefs tracefs /sys/kernel/tracing".into());
        }
        None => {}
        Some(found) => {
            let absent = tracepoints.iter().filter(|name| !found.contains(**name));
            missing.extend(absent.map(|name| format!("the tracepoint {name}: a newer kernel")));
        }
    }
    missing
}

fn scheduling(facts: &Facts) -> Vec<String> {
    let mut missing = bpf(facts);
    match facts.sched_ext.as_deref() {
        None => missing.push("sched_ext: a kernel >= 6.12 with CONFIG_SCHED_CLASS_EXT=y".into()),
        Some("disabled") => {}
        Some(state) => missing
            .push(format!("the kernel's sched_ext is {state}: stop the scheduler that uses it")),
    }
    missing
}

fn bpf(facts: &Facts) -> Vec<String> {
    let mut missing = Vec::new();
    if !facts.privileged {
        missing.push("root: sudo unspin doctor".to_owned());
    }
    if !facts.btf {
        missing.push("BTF: a kernel with CONFIG_DEBUG_INFO_BTF=y".to_owned());
    }
    missing
}

//! Describes what the sensor's hooks in the kernel show.

/// The finding that is lost without heartbeats if no other timer's due time is known.
pub use unspin_model::session::BUSY;

use super::heartbeat;
use super::load::TEST_AND_SET;
use crate::spinning::{ADDRESSES, TIMERS};

/// The findings that are lost without a hook, by a part of the hook's name.
const SHOWN: [(&str, &str); 12] = [
    ("contention_", "waits for kernel locks"),
    (TEST_AND_SET, "waits for spinlocks"),
    ("slowpath", "who holds a spinlock"),
    ("kvm_wait", "halts of waiters for PV spinlocks, which count as burned"),
    ("smp_call_function_many", "waits for IPIs"),
    ("futex_wait", "waits for glibc mutexes"),
    (TIMERS, "spinning in user space"),
    (ADDRESSES, "where the kernel spins"),
    (heartbeat::MISSING, BUSY),
    ("ipi_send_cpu", "off intervals of idle vCPUs"),
    ("wake_idle_without_ipi", "off intervals of idle vCPUs"),
    ("_entry", "some off intervals"),
];

/// The ways to get a hook back on this kernel, by a part of the hook's name.
const REMEDIES: [(&str, &str); 3] = [
    (TIMERS, "hrtimer_bases needs CONFIG_KALLSYMS_ALL=y"),
    (ADDRESSES, "/proc/kallsyms hides its addresses: sysctl kernel.kptr_restrict=1"),
    (heartbeat::MISSING, "a larger --budget, or --beat 4ms, brings heartbeats"),
];

/// Returns the findings that are lost on a kernel that lacks these hooks, each once.
pub fn hidden(missing: &[String]) -> Vec<&'static str> {
    let mut all = of(&SHOWN, missing);
    all.dedup();
    all
}

/// Returns the ways to see more on this kernel or a similar one.
pub fn remedies(missing: &[String]) -> Vec<&'static str> {
    of(&REMEDIES, missing)
}

fn of(table: &[(&str, &'static str)], missing: &[String]) -> Vec<&'static str> {
    let lacks = |part: &str| missing.iter().any(|hook| hook.contains(part));
    table.iter().filter(|(part, _)| lacks(part)).map(|(_, words)| *words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hooks_of_one_thing_are_said_once() {
        let missing = ["fentry/smp_call_function_many_cond", "fexit/smp_call_function_many_cond"];
        assert_eq!(hidden(&missing.map(str::to_owned)), ["waits for IPIs"]);
        let missing = ["tp_btf/ipi_send_cpu", "tp_btf/ipi_send_cpumask"];
        assert_eq!(hidden(&missing.map(str::to_owned)), ["off intervals of idle vCPUs"]);
        assert!(hidden(&[]).is_empty() && remedies(&[]).is_empty());
    }

    /// The waiters for a test-and-set spinlock pass no tracepoint.
    #[test]
    fn without_its_slow_path_a_test_and_set_spinlock_shows_nothing() {
        let missing = ["fentry/native_queued_spin_lock_slowpath", TEST_AND_SET].map(str::to_owned);
        assert_eq!(hidden(&missing), ["waits for spinlocks", "who holds a spinlock"]);
        assert_eq!(hidden(&missing[..1]), ["who holds a spinlock"]);
    }

    #[test]
    fn what_the_user_can_change_has_a_remedy() {
        let missing = [ADDRESSES, heartbeat::MISSING].map(str::to_owned);
        assert_eq!(hidden(&missing), ["where the kernel spins", BUSY]);
        let remedies = remedies(&missing).join("; ");
        assert!(remedies.contains("sysctl kernel.kptr_restrict=1"), "{remedies}");
        assert!(remedies.contains("--beat"), "{remedies}");
    }
}

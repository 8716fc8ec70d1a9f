//! What the sensor's hooks in the kernel show, in words.

/// What is not seen without a hook, by a part of its name.
const SHOWN: [(&str, &str); 8] = [
    ("contention_", "waits for kernel locks"),
    ("slowpath", "who holds a spinlock"),
    ("smp_call_function_many", "waits for IPIs"),
    ("futex_wait", "waits for glibc mutexes"),
    ("hrtimer_bases", "spinning in user space"),
    ("ipi_send_cpu", "off intervals of idle vCPUs"),
    ("wake_idle_without_ipi", "off intervals of idle vCPUs"),
    ("_entry", "some off intervals"),
];

/// What cannot be seen on a kernel that lacks these hooks, each said once.
pub fn hidden(missing: &[String]) -> Vec<&'static str> {
    let lacks = |part: &str| missing.iter().any(|hook| hook.contains(part));
    let mut all: Vec<_> = SHOWN.iter().filter(|(part, _)| lacks(part)).map(|it| it.1).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hooks_of_one_thing_are_said_once() {
        let missing = ["fentry/smp_call_function_many_cond", "fexit/smp_call_function_many_cond"];
        assert_eq!(hidden(&missing.map(str::to_owned)), ["waits for IPIs"]);
        assert!(hidden(&[]).is_empty());
    }
}

//! The shipped workloads, compiled in.

use std::path::Path;

use super::Workload;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each file in `workloads/`, sorted by name.
        const SHIPPED: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../workloads/", $name, ".toml")))),*
        ];
    };
}

shipped![
    "changing",
    "cyclictest",
    "cyclictest-batch",
    "dbench",
    "fio",
    "greedy",
    "greedy-at-times",
    "hackbench-lasting",
    "hackbench-pipe-processes",
    "hackbench-pipe-threads",
    "hackbench-socket-processes",
    "hackbench-socket-threads",
    "half-loaded",
    "hold-futex",
    "hold-ipi",
    "hold-mutex",
    "hold-preempted",
    "hold-spinlock",
    "idle",
    "iperf3",
    "make",
    "microbench",
    "pbzip2",
    "phases",
    "redis",
    "spinbench-mcs",
    "spinbench-none",
    "spinbench-pthread-mutex",
    "spinbench-pthread-spin",
    "spinbench-sections",
    "spinbench-tas",
    "spinbench-ticket",
    "stress-ng-dentry",
    "stress-ng-flock",
    "stress-ng-futex",
    "stress-ng-lockofd",
    "stress-ng-madvise",
    "stress-ng-mmapfork",
    "stress-ng-mutex",
    "stress-ng-rename",
    "stress-ng-switch",
    "stress-ng-tlb-shootdown",
    "sysbench-cpu",
    "sysbench-cpu-lasting",
    "sysbench-mutex",
    "sysbench-threads",
    "vips",
];

/// The shipped workload of that name, or `None` if there is none.
pub fn builtin(name: &str) -> Option<Workload> {
    let (name, text) = SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
    let file = format!("workloads/{name}.toml");
    Some(Workload::parse(Path::new(&file), text).expect("a test reads every shipped workload"))
}

/// The names of the shipped workloads, sorted.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

#[cfg(test)]
#[path = "builtin_tests.rs"]
mod tests;

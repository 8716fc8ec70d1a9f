//! The plan of a seed: steps at random times, each a line of the guest's script.

use std::fmt::{self, Display};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Duration of a seed's steps in milliseconds.
pub const LENGTH_MS: u32 = 2000;
/// Number of steps of a seed.
const STEPS: std::ops::RangeInclusive<usize> = 5..=14;
/// Share of seeds that end and restart their scheduler. Restarts take as much machine time as all
/// other steps together.
const RESTARTS: f64 = 0.2;
/// Time in milliseconds after which no step begins, so that the last one has an effect.
const LAST_MS: u32 = LENGTH_MS - 200;

/// Stressors of stress-ng that block, wake, spin, fork and compute without harming the guest.
const STRESSORS: &[&str] = &[
    "rename",
    "futex",
    "flock",
    "pipe",
    "switch",
    "yield",
    "poll",
    "nanosleep",
    "sem",
    "pthread",
    "fork",
    "madvise",
    "dentry",
    "lockofd",
    "sigq",
    "sock",
    "eventfd",
    "msg",
    "cpu",
    "schedpolicy",
    "affinity",
];

/// Commands that set the scheduling policy of a task that computes. Each starts as a FIFO task,
/// because it inherits that policy.
const POLICIES: &[&str] = &[
    "chrt -o 0 nice -n -20",
    "chrt -o 0 nice -n 19",
    "chrt -b 0",
    "chrt -i 0",
    "chrt -f 10",
    "chrt -r 50",
    "chrt -d --sched-runtime 4000000 --sched-deadline 10000000 --sched-period 10000000 0",
];

/// The machine of a seed. Consecutive seeds use the topologies in rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    /// Name in results.
    pub name: &'static str,
    /// Number of the guest's vCPUs.
    pub vcpus: u32,
    /// Number of pCPUs that all vCPUs share.
    pub pcpus: u32,
    /// Number of vCPUs of a neighbour that always computes; 0 for no neighbour.
    pub neighbour: u32,
}

/// All topologies, in rotation order.
pub const TOPOLOGIES: [Topology; 4] = [
    Topology { name: "4-on-2", vcpus: 4, pcpus: 2, neighbour: 0 },
    Topology { name: "3-on-1", vcpus: 3, pcpus: 1, neighbour: 0 },
    Topology { name: "2-on-2", vcpus: 2, pcpus: 2, neighbour: 0 },
    Topology { name: "6-on-3-shared", vcpus: 6, pcpus: 3, neighbour: 3 },
];

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// Milliseconds after the beginning of the plan.
    pub at_ms: u32,
    /// A command of the guest's script.
    pub command: String,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4} ms  {}", self.at_ms, self.command)
    }
}

/// The steps of a seed and the machine that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The machine.
    pub topology: Topology,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Returns the plan of a seed. A seed has the same plan in every version that chooses from the
    /// same steps.
    pub fn of(seed: u64) -> Plan {
        let topology = TOPOLOGIES[(seed % TOPOLOGIES.len() as u64) as usize];
        let mut rng = Pcg64::seed_from_u64(seed);
        let count = rng.random_range(STEPS);
        let restarts = rng.random_bool(RESTARTS);
        // The first two steps begin at once, so the guest is loaded from the beginning.
        let at = |index, rng: &mut Pcg64| match index {
            0 | 1 => 0,
            _ => rng.random_range(0..LAST_MS / 10) * 10,
        };
        let mut steps: Vec<Step> = (0..count)
            .map(|index| {
                let at_ms = at(index, &mut rng);
                let command = match index {
                    0 | 1 => stress("plain", &mut rng),
                    2 if restarts => restart(&mut rng),
                    _ => command(index, topology.vcpus, &mut rng),
                };
                Step { at_ms, command }
            })
            .collect();
        steps.sort();
        Plan { topology, steps }
    }

    /// Returns the plan without one of its steps.
    pub fn without(&self, step: usize) -> Plan {
        let mut fewer = self.clone();
        fewer.steps.remove(step);
        fewer
    }
}

fn command(index: usize, vcpus: u32, rng: &mut Pcg64) -> String {
    let short_ms = |rng: &mut Pcg64| rng.random_range(1..=60) * 10;
    let mask = |rng: &mut Pcg64| format!("{:x}", rng.random_range(1..1u32 << vcpus));
    match rng.random_range(0..100) {
        0..25 => stress("plain", rng),
        25..40 => {
            let policy = POLICIES.choose(rng).copied().unwrap_or_default();
            format!("computes {} {policy}", rng.random_range(10..=90) * 10)
        }
        40..60 => in_group(index, vcpus, rng),
        60..70 => format!("affine {}", mask(rng)),
        70..80 => format!("offline {} {}", rng.random_range(1..vcpus), short_ms(rng)),
        80..90 => format!("freeze {}", short_ms(rng)),
        _ => format!("forks {}", rng.random_range(20..=150)),
    }
}

/// Returns a step that ends the scheduler and starts it again.
fn restart(rng: &mut Pcg64) -> String {
    let signal = ["KILL", "TERM", "INT"].choose(rng).copied().unwrap_or("KILL");
    format!("restart {signal} {}", rng.random_range(0..=40) * 10)
}

fn stress(group: &str, rng: &mut Pcg64) -> String {
    let stressor = STRESSORS.choose(rng).copied().unwrap_or("cpu");
    format!("stress {group} {stressor} {}", rng.random_range(1..=8))
}

/// Returns a step that starts a stressor in a cgroup with a limit. The limit may change later.
fn in_group(index: usize, vcpus: u32, rng: &mut Pcg64) -> String {
    let value = |file: &str, rng: &mut Pcg64| match file {
        "cpu.weight" => rng.random_range(1..=1000).to_string(),
        "cpu.max" => format!("\"{} 20000\"", rng.random_range(2..=40) * 1000),
        _ => rng.random_range(0..vcpus).to_string(),
    };
    let file = ["cpu.weight", "cpu.max", "cpuset.cpus"].choose(rng).copied().unwrap_or("cpu.max");
    let mut group = format!("group g{index} {file} {}", value(file, rng));
    if rng.random_bool(0.5) {
        group += &format!(" {} {}", value(file, rng), rng.random_range(5..=50) * 10);
    }
    format!("{group}; {}", stress(&format!("g{index}"), rng))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_another_seed_another() {
        assert_eq!(Plan::of(7), Plan::of(7));
        assert_ne!(Plan::of(7).steps, Plan::of(11).steps);
        assert_eq!(Plan::of(7).topology, Plan::of(11).topology);
    }

    #[test]
    fn steps_are_in_order_and_fit_their_machine() {
        for seed in 0..400 {
            let Plan { topology, steps } = Plan::of(seed);
            assert!(STEPS.contains(&steps.len()));
            assert!(steps.is_sorted_by_key(|step| step.at_ms), "{steps:?}");
            assert!(steps.iter().all(|step| step.at_ms < LAST_MS));
            for command in steps.iter().map(|step| step.command.split(' ').collect::<Vec<_>>()) {
                match command[..] {
                    ["offline", cpu, _] => {
                        assert!((1..topology.vcpus).contains(&cpu.parse().unwrap()), "{command:?}");
                    }
                    ["affine", mask] => {
                        let mask = u32::from_str_radix(mask, 16).unwrap();
                        assert!(mask != 0 && mask < 1 << topology.vcpus, "{command:?}");
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn every_kind_of_step_comes_up() {
        let all: Vec<Step> = (0..400).flat_map(|seed| Plan::of(seed).steps).collect();
        for kind in
            ["stress", "computes", "group", "affine", "offline", "freeze", "forks", "restart"]
        {
            let found = all.iter().filter(|step| step.command.starts_with(kind)).count();
            assert!(found > 50, "{kind}: {found} of {}", all.len());
        }
    }

    #[test]
    fn a_step_less() {
        let plan = Plan::of(3);
        let fewer = plan.without(1);
        assert_eq!(fewer.steps.len(), plan.steps.len() - 1);
        assert_eq!(fewer.steps[0], plan.steps[0]);
        assert_eq!(fewer.steps[1], plan.steps[2]);
    }
}

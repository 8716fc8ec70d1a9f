//! The machine: facts as they were read, and the properties that follow from them.

mod confidential;
mod config;
mod hex;
mod hypervisor;
mod probe;
mod spinlock;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use serde::{Deserialize, Serialize};
use unspin_model::class::chain;

use crate::account::Account;
use crate::sense::LightSensor;
pub use confidential::confidential;
pub use hypervisor::{Kvm, KvmFeature, hypervisor, kvm};
pub use spinlock::{has_steal_time, host_helps, spinlock};

/// Everything that is read from a machine, so that another machine can judge it. This is the format
/// of `unspin doctor --facts`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The source of these facts, if they were not read from the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The CPUID leaves.
    pub cpuid: Vec<Leaf>,
    /// The MSR SEV_STATUS, if it could be read.
    #[serde(default, with = "hex::optional")]
    pub sev_status: Option<u64>,
    /// The kernel's message about memory encryption in its log.
    #[serde(default)]
    pub kernel_says: Option<String>,
    /// The kernel's message about PV spinlocks in its log. KVM guests alone have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spinlocks_say: Option<String>,
    /// The number of CPUs online.
    pub cpus: u32,
    /// CPUs that may come online. Facts of an older unspin lack them.
    #[serde(default)]
    pub possible_cpus: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's command line.
    #[serde(default)]
    pub command_line: String,
    /// The relevant settings of the kernel's build, as far as they are known.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// The current clock source.
    #[serde(default)]
    pub clocksource: Option<String>,
    /// The steal time of all CPUs since boot, in ticks of 1/100 s.
    #[serde(default)]
    pub steal_ticks: Option<u64>,
    /// The CPU time of all CPUs since boot in all states, in ticks of 1/100 s.
    #[serde(default)]
    pub cpu_ticks: Option<u64>,
    /// The relevant keys of /etc/os-release, which describes the distribution.
    #[serde(default)]
    pub os_release: BTreeMap<String, String>,
    /// The programs and devices for the lab that were found; `None` if nobody looked.
    #[serde(default)]
    pub lab: Option<BTreeSet<String>>,
    /// The results of trying to attach the hooks of each verb; `None` if that was not tried.
    #[serde(default)]
    pub trials: Option<Trials>,
    /// The state of sched_ext; `None` if the kernel lacks it.
    #[serde(default)]
    pub sched_ext: Option<String>,
    /// Whether cgroups of version 2 can limit tasks to some vCPUs.
    #[serde(default)]
    pub cpuset: bool,
    /// Why cgroups cannot limit tasks.
    #[serde(default)]
    pub cpuset_lacks: Option<String>,
    /// Whether this is a container, in which `run` cannot act at all.
    #[serde(default)]
    pub container: bool,
    /// Whether the kernel describes its types (BTF).
    #[serde(default)]
    pub btf: bool,
    /// The existing tracepoints, of those that unspin could use; `None` if tracefs cannot be read.
    #[serde(default)]
    pub tracepoints: Option<BTreeSet<String>>,
    /// Whether this process may load BPF programs (root).
    #[serde(default)]
    pub privileged: bool,
}

/// The results of trying to attach the programs of each verb.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trials {
    /// The programs of `watch` and `record`.
    pub sensor: Trial,
    /// The programs of `watch --listen`.
    pub light: Trial,
    /// The programs with which `run` counts spins, whichever way it limits vCPUs. Facts of an older
    /// unspin lack this result.
    #[serde(default)]
    pub spins: Trial,
    /// The programs of `run --actuator sched-ext`, which were only loaded: the kernel kept its own
    /// scheduler.
    pub scheduler: Trial,
}

/// The result of one trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Why the trial failed.
    pub failed: Option<String>,
    /// The hooks that this kernel lacks.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Why programs cannot be attached to the kernel's functions, if they cannot.
    #[serde(default)]
    pub refused: Option<String>,
}

impl Trial {
    pub(crate) fn failed(error: impl Error) -> Trial {
        Trial { failed: Some(chain(&error).to_string()), ..Trial::default() }
    }
}

/// The result of CPUID for one leaf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// The leaf, in EAX before the instruction; ECX was 0.
    #[serde(with = "hex")]
    pub leaf: u32,
    /// EAX after the instruction.
    #[serde(with = "hex")]
    pub eax: u32,
    /// EBX after the instruction.
    #[serde(with = "hex")]
    pub ebx: u32,
    /// ECX after the instruction.
    #[serde(with = "hex")]
    pub ecx: u32,
    /// EDX after the instruction.
    #[serde(with = "hex")]
    pub edx: u32,
}

/// The tracepoints that reveal off vCPUs, spinning and its causes.
pub const TRACEPOINTS: &[&str] = &[
    "ipi:ipi_send_cpu",
    "irq_vectors:local_timer_entry",
    "lock:contention_begin",
    "lock:contention_end",
    "power:cpu_idle",
    "sched:sched_switch",
    "sched:sched_waking",
    "timer:hrtimer_expire_entry",
    "tlb:tlb_flush",
];

impl Facts {
    /// Returns the keys of a file like /etc/os-release, for [`Facts::os_release`].
    pub fn parse_os_release(file: &str) -> BTreeMap<String, String> {
        probe::os_release(file)
    }

    /// Reads only the facts that decide about spinlocks on this machine.
    pub fn of_spinlocks() -> Facts {
        probe::of_spinlocks()
    }

    /// Reads the facts of this machine. Facts that cannot be read are left out.
    pub fn probe() -> Facts {
        probe::probe()
    }

    /// Reads the facts of this machine, and tries to attach the programs of each verb, if this user
    /// may. The programs stay attached until this process ends, which should be soon. The kernel's
    /// scheduler is left alone.
    pub fn probe_and_try() -> Facts {
        let facts = Facts::probe();
        let trials = facts.privileged.then(|| {
            // The trials run in parallel, since each mostly waits for the kernel.
            std::thread::scope(|scope| {
                let light = scope.spawn(LightSensor::trial);
                let spins = scope.spawn(Account::trial);
                let scheduler = scope.spawn(crate::run::trial);
                let sensor = crate::sense::trial();
                let died =
                    |_| Trial { failed: Some("it could not be tried".into()), ..Trial::default() };
                let (light, spins) = (light.join(), spins.join());
                Trials {
                    sensor,
                    light: light.unwrap_or_else(died),
                    spins: spins.unwrap_or_else(died),
                    scheduler: scheduler.join().unwrap_or_else(died),
                }
            })
        });
        Facts { trials, ..facts }
    }

    fn leaf(&self, leaf: u32) -> Option<&Leaf> {
        self.cpuid.iter().find(|found| found.leaf == leaf)
    }

    /// CPUs that the kernel was booted for, by which it chooses what it uses of its host's help.
    pub(crate) fn cpus_at_boot(&self) -> u32 {
        self.cpus.max(self.possible_cpus)
    }

    /// The CPU's vendor, such as `AuthenticAMD`.
    pub fn vendor(&self) -> String {
        let leaf = self.leaf(0).copied().unwrap_or_default();
        words(&[leaf.ebx, leaf.edx, leaf.ecx])
    }

    /// Returns whether the CPU says that it is virtual (CPUID 1, ECX bit 31).
    pub fn is_virtual(&self) -> bool {
        self.leaf(1).is_some_and(|leaf| leaf.ecx & 1 << 31 != 0)
    }

    /// Returns whether the CPU offers MONITOR and MWAIT (CPUID 1, ECX bit 3).
    pub fn has_mwait(&self) -> bool {
        self.leaf(1).is_some_and(|leaf| leaf.ecx & 1 << 3 != 0)
    }

    /// Whether `isolcpus=` keeps ordinary tasks from vCPUs. With other flags alone, it does not.
    pub(crate) fn isolates(&self) -> bool {
        let parameters = self.command_line.split_ascii_whitespace();
        parameters.filter_map(|word| word.strip_prefix("isolcpus=")).any(|value| {
            let has = |flag: &str| value.split(',').any(|word| word == flag);
            has("domain") || !(has("nohz") || has("managed_irq"))
        })
    }

    /// Whether the kernel was booted with a parameter.
    pub fn booted_with(&self, parameter: &str) -> bool {
        self.command_line.split_ascii_whitespace().any(|word| word == parameter)
    }
}

/// Returns the text in registers, without its padding.
fn words(registers: &[u32]) -> String {
    let bytes: Vec<u8> = registers.iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_matches(['\0', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::SenseError;

    #[test]
    fn a_trial_that_failed_says_why() {
        let error = SenseError::Load(libbpf_rs::Error::from_raw_os_error(22));
        let failed = Trial::failed(error).failed.expect("a reason");
        assert!(failed.ends_with(": Invalid argument (os error 22)"), "{failed}");
    }
}

//! What machine this is: facts as they were read, and what they say.

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

/// Everything that is read from a machine, so that it can be judged elsewhere.
/// This is the format of `unspin doctor --facts`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Where these facts come from, where they were not read from the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// CPUID leaves.
    pub cpuid: Vec<Leaf>,
    /// MSR SEV_STATUS, where it could be read.
    #[serde(default, with = "hex::optional")]
    pub sev_status: Option<u64>,
    /// The kernel's own words on memory encryption, from its log.
    #[serde(default)]
    pub kernel_says: Option<String>,
    /// CPUs online.
    pub cpus: u32,
    /// CPUs that may come online. Facts of an older unspin lack them.
    #[serde(default)]
    pub possible_cpus: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's command line.
    #[serde(default)]
    pub command_line: String,
    /// Settings of the kernel's build that matter, those that are known.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// The current clock source.
    #[serde(default)]
    pub clocksource: Option<String>,
    /// Steal time since boot, all CPUs, in ticks of 1/100 s.
    #[serde(default)]
    pub steal_ticks: Option<u64>,
    /// CPU time since boot, all CPUs and whatever they did, in ticks of 1/100 s.
    #[serde(default)]
    pub cpu_ticks: Option<u64>,
    /// What /etc/os-release says of the distribution, the keys that matter.
    #[serde(default)]
    pub os_release: BTreeMap<String, String>,
    /// What the lab needs and was found; `None` where nobody looked.
    #[serde(default)]
    pub lab: Option<BTreeSet<String>>,
    /// What came of attaching the hooks of each verb; `None` where it was not tried.
    #[serde(default)]
    pub trials: Option<Trials>,
    /// State of sched_ext; `None` where the kernel has none.
    #[serde(default)]
    pub sched_ext: Option<String>,
    /// Whether cgroups of version 2 can limit tasks to some vCPUs.
    #[serde(default)]
    pub cpuset: bool,
    /// Why they cannot.
    #[serde(default)]
    pub cpuset_lacks: Option<String>,
    /// Whether this is a container, in which `run` cannot act at all.
    #[serde(default)]
    pub container: bool,
    /// Whether the kernel describes its types (BTF).
    #[serde(default)]
    pub btf: bool,
    /// Tracepoints that exist, of those that unspin could use; `None` where tracefs
    /// cannot be read.
    #[serde(default)]
    pub tracepoints: Option<BTreeSet<String>>,
    /// Whether this process may load BPF programs (root).
    #[serde(default)]
    pub privileged: bool,
}

/// What came of attaching what each verb attaches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trials {
    /// `watch` and `record`.
    pub sensor: Trial,
    /// `watch --listen`.
    pub light: Trial,
    /// `run`, which counts spins whatever it limits vCPUs by. Facts of an older unspin lack it.
    #[serde(default)]
    pub spins: Trial,
    /// `run --actuator sched-ext`; its programs were loaded, and the kernel kept its own scheduler.
    pub scheduler: Trial,
}

/// What came of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Why it does not work.
    pub failed: Option<String>,
    /// Hooks that this kernel does not have.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Why it cannot be hooked into its functions, where that is so.
    #[serde(default)]
    pub refused: Option<String>,
}

impl Trial {
    pub(crate) fn failed(error: impl Error) -> Trial {
        Trial { failed: Some(chain(&error).to_string()), ..Trial::default() }
    }
}

/// What CPUID returned for one leaf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// EAX before. ECX was 0.
    #[serde(with = "hex")]
    pub leaf: u32,
    /// EAX after.
    #[serde(with = "hex")]
    pub eax: u32,
    /// EBX after.
    #[serde(with = "hex")]
    pub ebx: u32,
    /// ECX after.
    #[serde(with = "hex")]
    pub ecx: u32,
    /// EDX after.
    #[serde(with = "hex")]
    pub edx: u32,
}

/// Tracepoints that tell of off vCPUs, spinning and its causes.
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
    /// What a file like /etc/os-release says, for [`Facts::os_release`].
    pub fn parse_os_release(file: &str) -> BTreeMap<String, String> {
        probe::os_release(file)
    }

    /// What decides about spinlocks on this machine; nothing else is read.
    pub fn of_spinlocks() -> Facts {
        probe::of_spinlocks()
    }

    /// Reads this machine's. What cannot be read is left out.
    pub fn probe() -> Facts {
        probe::probe()
    }

    /// The same, and tries what each verb attaches, where this user may. It stays attached
    /// until this process ends, which should be soon; the kernel's scheduler is left alone.
    pub fn probe_and_try() -> Facts {
        let facts = Facts::probe();
        let trials = facts.privileged.then(|| {
            // Side by side, since each mostly waits for the kernel.
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

    /// Whether the CPU says that it is virtual (CPUID 1, ECX bit 31).
    pub fn is_virtual(&self) -> bool {
        self.leaf(1).is_some_and(|leaf| leaf.ecx & 1 << 31 != 0)
    }

    /// Whether the CPU offers MONITOR and MWAIT (CPUID 1, ECX bit 3).
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

/// Registers as text, without what pads it.
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

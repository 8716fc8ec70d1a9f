//! The guest schedulers of an experiment's cells.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// The scheduler that assigns tasks to vCPUs in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheduler {
    /// The kernel's scheduler, with all vCPUs.
    Stock,
    /// The kernel's scheduler. Affinity restricts the workload to the first K vCPUs.
    Hold(u32),
    /// The kernel's scheduler with all vCPUs, longer slices and no wake-up preemption: the tuning
    /// that an administrator can apply without another scheduler.
    Tuned,
    /// A command that starts before the workload. It loads a sched_ext scheduler, or records a
    /// session.
    Command(Command),
}

/// A command that runs beside the workload: a guest scheduler, or the recorder of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Name in results.
    pub name: String,
    /// Program and arguments. The lab looks for the program on the host.
    pub argv: Vec<String>,
    /// The crate that `cargo install` builds if the host does not have the program.
    #[serde(rename = "crate")]
    pub crate_name: Option<String>,
    /// Version of the crate.
    pub version: Option<String>,
    /// The session file that the command writes in the guest. Such a command loads no scheduler.
    /// The lab compares its session with the ground truth.
    pub session: Option<String>,
    /// The address in the guest at which the command accepts connections once it is ready. Such a
    /// command loads no scheduler, either.
    pub listens: Option<SocketAddr>,
    /// The unix socket in the guest at which a guest scheduler serves its figures, as `unspin run`
    /// does. They become co-metrics of each run.
    pub stats: Option<PathBuf>,
}

impl Scheduler {
    /// Returns the scheduler's name in results.
    pub fn name(&self) -> String {
        match self {
            Scheduler::Stock => "stock".into(),
            Scheduler::Hold(vcpus) => format!("hold:{vcpus}"),
            Scheduler::Tuned => "tuned".into(),
            Scheduler::Command(command) => command.name.clone(),
        }
    }

    /// Parses `stock`, `tuned`, `hold:K` or the name of one of `commands`.
    pub fn parse(name: &str, commands: &[Command]) -> Result<Scheduler, String> {
        match name {
            "stock" => return Ok(Scheduler::Stock),
            "tuned" => return Ok(Scheduler::Tuned),
            _ => {}
        }
        if let Some(vcpus) = name.strip_prefix("hold:").and_then(|k| k.parse::<u32>().ok()) {
            let hold = Scheduler::Hold(vcpus);
            return match hold.name() {
                _ if vcpus == 0 => Err("hold:0 holds nothing: write `hold:1` or more".into()),
                // Each cell must have exactly one name.
                written if written != name => Err(format!("`{name}` is written `{written}`")),
                _ => Ok(hold),
            };
        }
        let found = commands.iter().find(|command| command.name == name);
        found.map(|command| Scheduler::Command(command.clone())).ok_or_else(|| {
            let names: Vec<String> = commands.iter().map(|c| format!(", `{}`", c.name)).collect();
            let names = names.concat();
            format!("unknown scheduler `{name}`, expected `stock`, `tuned`, `hold:K`{names}")
        })
    }

    /// Returns the command that tunes the guest's kernel.
    pub fn tune() -> Vec<String> {
        tuning("on")
    }

    /// Returns the command that undoes [`Scheduler::tune`].
    pub fn undo_tune() -> Vec<String> {
        tuning("off")
    }

    /// Returns the vCPUs to which the job is restricted, if any.
    pub fn cpus(&self) -> Option<Vec<u32>> {
        match self {
            Scheduler::Hold(vcpus) => Some((0..*vcpus).collect()),
            _ => None,
        }
    }
}

fn tuning(state: &str) -> Vec<String> {
    ["sh", "-c", include_str!("tuned.sh"), "tuned.sh", state].map(str::to_owned).to_vec()
}

impl Command {
    /// Returns the root folder for `cargo install`: a folder of the cache, named by crate and
    /// version.
    pub fn install_root(&self) -> Option<PathBuf> {
        let name = self.crate_name.as_ref()?;
        let version = self.version.as_deref().unwrap_or("latest");
        Some(unspin_sources::cache_dir().join("crates").join(format!("{name}-{version}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_vcpus_is_written_in_one_way() {
        let parse = |name| Scheduler::parse(name, &[]);
        assert_eq!(parse("hold:2"), Ok(Scheduler::Hold(2)));
        for name in ["hold:02", "hold:+2"] {
            assert_eq!(parse(name), Err(format!("`{name}` is written `hold:2`")));
        }
        for name in ["hold:0", "hold:00", "hold:", "hold:-2", "hold:x"] {
            assert!(parse(name).is_err(), "{name}");
        }
    }
}

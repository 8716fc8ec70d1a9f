//! The ingredients of a run, and the name that follows from them.
//!
//! Two runs have the same [`Identity`] only if everything that decides their results is the same:
//! the programs, the kernel, the virtual machines, the accelerator, and the seed (in virtual time)
//! or the machine and the repeat (in real time). The lab files, resumes and reuses results by their
//! identity.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Accel, Cell};

/// Number of hexadecimal digits of an identity.
const DIGITS: usize = 16;

/// The first 16 hexadecimal digits of the SHA-256 of the content that the identity names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(String);

impl Identity {
    /// Returns the identity of bytes, such as those of a file.
    pub fn of_bytes(bytes: &[u8]) -> Identity {
        let digest = Sha256::digest(bytes);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Identity(hex[..DIGITS].to_owned())
    }

    /// Returns the identity of a value: of its JSON with sorted keys and without spaces.
    pub fn of(value: &impl Serialize) -> Result<Identity, serde_json::Error> {
        let mut text = String::new();
        canonical(&serde_json::to_value(value)?, &mut text);
        Ok(Identity::of_bytes(text.as_bytes()))
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Distinction between the runs of one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Seed of everything random in virtual time: the run repeats to the same bytes.
    Seed(u64),
    /// Number of the repeat in real time: each repeat is another measurement.
    Repeat(u32),
}

/// The machine behind a run in real time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Model of the CPU.
    pub cpu: String,
    /// Release of the host's kernel.
    pub kernel: String,
    /// Version of QEMU.
    pub qemu: String,
}

/// The part of a run in virtual time that takes the place of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualTime {
    /// Digest of QEMU's behaviour, that is, of its source and patches, whoever compiled it.
    pub qemu: String,
    /// Digest of the price table.
    pub prices: String,
}

/// Everything that decides the runs of a cell, except their [`Draw`]. An output folder keeps it in
/// `identities.json`, so that a reader sees why two runs differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ingredients {
    /// Coordinates of the cell.
    pub cell: Cell,
    /// Accelerator of the outermost virtual machine.
    pub accel: Accel,
    /// Ids of the kernels: `subject`, and `l1` in a nested machine.
    pub kernels: BTreeMap<String, String>,
    /// The virtual machines in full (`vms`, `l1`, `fairness`), without paths of this host.
    pub machines: Value,
    /// The run in full: commands, guest scheduler, time limit, ground truth, injection.
    pub run: Value,
    /// How the lab parses results from the workloads' output.
    pub reading: Value,
    /// Digests of the guest's programs with their libraries, by name.
    pub programs: BTreeMap<String, String>,
    /// Whether every run has its own boot.
    pub fresh_boots: bool,
    /// The machine; only in real time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// QEMU's behaviour and the prices; only in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_time: Option<VirtualTime>,
}

impl Ingredients {
    /// Returns the name of the setting, which all runs of a cell share.
    pub fn setting(&self) -> Result<Identity, serde_json::Error> {
        Identity::of(self)
    }

    /// Returns the identity of one run.
    pub fn identity(&self, draw: Draw) -> Result<Identity, serde_json::Error> {
        Identity::of(&serde_json::json!({ "ingredients": self, "draw": draw }))
    }

    /// Returns the differences between two settings, as paths such as `programs.unspin` or
    /// `kernels.subject`.
    pub fn differences(&self, other: &Ingredients) -> Vec<String> {
        let json = |one: &Ingredients| serde_json::to_value(one).unwrap_or_default();
        differences(&json(self), &json(other), 2)
    }
}

/// Returns the paths of values that differ, such as `kernels.subject`; goes up to `depth` levels
/// into objects.
pub fn differences(a: &Value, b: &Value, depth: u32) -> Vec<String> {
    let mut paths = Vec::new();
    collect_differences(a, b, depth, "", &mut paths);
    paths
}

fn collect_differences(a: &Value, b: &Value, depth: u32, path: &str, found: &mut Vec<String>) {
    let (Value::Object(a), Value::Object(b), 1..) = (a, b, depth) else {
        if a != b {
            found.push(path.to_owned());
        }
        return;
    };
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        collect_differences(&of(a), &of(b), depth - 1, &inner, found);
    }
}

/// Writes JSON whose text depends on the value alone. serde_json keeps the keys of an object in
/// sorted or in inserted order, depending on the features that the build's crates enable.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (index, value) in list.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                canonical(value, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;

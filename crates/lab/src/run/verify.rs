//! Compares runs in virtual time with published runs of the same identity. Their results are equal
//! byte for byte, whichever machine carried them out. If the identities differ, the settings show
//! why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;
use unspin_model::identity::{Identity, Ingredients, differences};
use unspin_model::{Cell, RunRecord};

use super::folder::{self, Meta, Settings, read_runs, read_settings};
use super::{LabError, Selection};
use crate::experiment::{Experiment, Topology};
use crate::toml_error::ConfigError;

/// Fields of a record that depend on the machine, the order of runs or the files of its folder.
const NOT_COMPARED: [&str; 10] = [
    "/run",
    "/block",
    "/boot",
    "/position",
    "/attempt",
    "/lab_cpu_share",
    "/started",
    "/label/host",
    "/truth/recording",
    // The field exists only if the experiment asks for it.
    "/latencies",
];
/// Maximal depth of the field that a difference names, as in `co_metrics.user_s`.
const DEPTH: u32 = 2;
/// Maximal number of differences of a run that an error names.
const NAMED_MAX: usize = 4;
/// Characters of a digest or another long value that a message shows.
const SHOWN_MAX: usize = 16;

/// Published runs, with which others are compared.
#[derive(Debug)]
pub struct Published {
    folder: PathBuf,
    meta: Meta,
    settings: Settings,
    runs: BTreeMap<Identity, RunRecord>,
}

impl Published {
    /// Opens the published runs with which an experiment is compared if its results are in `out`.
    /// Returns `None` if the folder does not exist.
    ///
    /// # Errors
    /// [`LabError::Topology`] if a topology runs in real time, or if `out` holds the published runs
    /// themselves. [`LabError::Read`] if a folder cannot be read.
    pub fn open(
        folder: &Path,
        experiment: &Experiment,
        out: &Path,
    ) -> Result<Option<Published>, LabError> {
        let in_real_time = |topology: &&Topology| !topology.in_virtual_time();
        if let Some(topology) = experiment.topologies.iter().find(in_real_time) {
            let message = format!(
                "--verify compares runs in virtual time, and topology `{}` runs in real time, \
                 where no run repeats: leave --verify out, or add `--accel vt`",
                topology.name
            );
            return Err(ConfigError::file(&experiment.file, message).into());
        }
        if !folder.exists() {
            return Ok(None);
        }
        let published = Published::read(folder)?;
        match published.copies_in(out)? {
            0 => Ok(Some(published)),
            copies => {
                let message = format!(
                    "holds {copies} of the very runs of {}, which are not carried out again: \
                     remove the folder, or name another one with `--out`",
                    folder.display()
                );
                Err(ConfigError::file(&out.join("runs.jsonl"), message).into())
            }
        }
    }

    fn read(folder: &Path) -> Result<Published, LabError> {
        let meta = folder::meta(folder)?;
        let (records, _) = read_runs(&folder.join("runs.jsonl"))?;
        let observed = records.into_iter().filter(|record| record.observation().is_some());
        let runs = observed.filter_map(|record| Some((record.identity.clone()?, record)));
        let (runs, settings) = (runs.collect(), read_settings(folder)?);
        Ok(Published { folder: folder.to_owned(), meta, settings, runs })
    }

    /// Returns how many runs of a folder are copies of these. Copies begin in the same second.
    fn copies_in(&self, out: &Path) -> Result<usize, LabError> {
        let path = out.join("runs.jsonl");
        if !path.exists() {
            return Ok(0);
        }
        let (records, _) = read_runs(&path)?;
        let is_copy = |record: &&RunRecord| {
            let original = record.identity.as_ref().and_then(|identity| self.runs.get(identity));
            original.is_some_and(|original| original.started == record.started)
        };
        Ok(records.iter().filter(is_copy).count())
    }

    /// Compares the selected runs of an output folder with the published ones.
    ///
    /// # Errors
    /// [`LabError::Read`] if the folder cannot be read.
    pub fn compare(&self, out: &Path, runs: Selection) -> Result<Comparison, LabError> {
        let (meta, settings) = (folder::meta(out)?, read_settings(out)?);
        let mut comparison = Comparison {
            folder: self.folder.clone(),
            runs: runs.count(meta.planned),
            ..Comparison::default()
        };
        for record in folder::load(out)?.records {
            let Some(identity) = record.identity.as_ref().filter(|_| runs.contains(record.run))
            else {
                continue;
            };
            match (record.observation(), self.runs.get(identity)) {
                (None, _) => {}
                (Some(_), Some(original)) => comparison.add(&record, original),
                (Some(_), None) => {
                    comparison.others.extend(self.reasons(&record, &meta, &settings))
                }
            }
        }
        Ok(comparison)
    }

    /// Returns the reasons why no published run has the identity of a record, such as `another
    /// kernel (...)`.
    fn reasons(&self, record: &RunRecord, meta: &Meta, settings: &Settings) -> Vec<String> {
        if self.meta.settings.is_empty() {
            return vec!["a version without identities".to_owned()];
        }
        if record.identity.as_ref().is_some_and(|name| self.meta.plan.contains_key(name)) {
            return vec!["an experiment that did not end".to_owned()];
        }
        let Some(own) = record.setting.as_ref().and_then(|name| settings.get(name)) else {
            return vec!["settings that identities.json does not hold".to_owned()];
        };
        match folder::of_the_same_cell(own, &self.meta, &self.settings) {
            None => vec!["other cells".to_owned()],
            Some(theirs) if theirs == own => vec!["other seeds".to_owned()],
            Some(theirs) => {
                let commits = [&self.meta.machine.commit, &meta.machine.commit];
                own.differences(theirs)
                    .iter()
                    .filter_map(|path| ingredient(path, theirs, own, commits))
                    .collect()
            }
        }
    }
}

/// Describes an ingredient that differs. Returns `None` if another difference implies it.
fn ingredient(
    path: &str,
    there: &Ingredients,
    here: &Ingredients,
    commits: [&String; 2],
) -> Option<String> {
    let another = |what: &str, there: &str, here: &str| {
        Some(format!("another {what} ({there} there, {here} here)"))
    };
    let versions = [there, here].map(kernel_version);
    let qemus = [there, here].map(|one| one.virtual_time.as_ref().map(|v| shown(&v.qemu)));
    match (path.split_once('.'), qemus) {
        (Some(("kernels", _)), _) => another("kernel", &versions[0], &versions[1]),
        // The base image contains the kernel's modules, so another kernel implies another image.
        (Some(("programs", "guest")), _) if versions[0] != versions[1] => None,
        (Some(("programs", "guest")), _) => Some("another base image (busybox, modules)".into()),
        (Some(("programs", "unspin")), _) if commits[0] != commits[1] => {
            another("unspin", commits[0], commits[1])
        }
        (Some(("programs", "unspin")), _) => Some("another build of unspin".into()),
        (Some(("programs", "init")), _) => {
            Some("another build of unspin-init, which boots every guest".into())
        }
        (Some(("programs", name)), _) => {
            let name = Path::new(name).file_name().unwrap_or_default();
            Some(format!("another {}", name.to_string_lossy()))
        }
        (Some(("virtual_time", "qemu")), [Some(there), Some(here)]) => {
            another("QEMU", &there, &here)
        }
        // QEMU's program contains the tables of prices, so another QEMU implies other prices.
        (Some(("virtual_time", "prices")), [there, here]) if there != here => None,
        _ => Some(format!("another `{path}`")),
    }
}

/// Returns the kernel's id without the prefix that the experiment's name for it adds.
fn kernel_version(one: &Ingredients) -> String {
    let id = one.kernels.get("subject").map_or("", String::as_str);
    let version = id.strip_prefix(&one.cell.kernel).and_then(|rest| rest.strip_prefix('-'));
    version.unwrap_or(id).to_owned()
}

/// The comparison of a folder's runs with published ones.
#[derive(Debug, Default)]
pub struct Comparison {
    folder: PathBuf,
    /// Number of selected runs.
    runs: u64,
    identical: u64,
    broken: Vec<Broken>,
    /// Reasons why runs have no published counterpart.
    others: BTreeSet<String>,
}

/// A run whose result differs from the published one, although both have the same identity.
#[derive(Debug)]
struct Broken {
    run: u64,
    cell: Cell,
    differences: Vec<String>,
}

/// Error: runs of the same identity have different results. This should be impossible.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct NotIdentical(String);

impl Comparison {
    fn add(&mut self, record: &RunRecord, original: &RunRecord) {
        let differences = result_differences(record, original);
        if differences.is_empty() {
            self.identical += 1;
        } else {
            self.broken.push(Broken { run: record.run, cell: record.cell.clone(), differences });
        }
    }

    /// Returns the comparison as one line.
    ///
    /// # Errors
    /// The runs whose results differ although their identities are equal, and the fields that
    /// differ.
    pub fn verdict(&self) -> Result<String, NotIdentical> {
        if !self.broken.is_empty() {
            return Err(NotIdentical(self.to_string()));
        }
        Ok(self.to_string())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { folder, runs, identical, broken, others } = self;
        let folder = folder.display();
        let others = others.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        if !broken.is_empty() {
            let count = broken.len();
            write!(
                f,
                "{count} of {runs} runs differ from those of {folder}, although everything "
            )?;
            write!(f, "that decides them is the same:")?;
            return broken.iter().try_for_each(|one| write!(f, "\n  {one}"));
        }
        match (*identical, others.is_empty()) {
            (0, false) => write!(f, "The published runs are of {others}: nothing to compare."),
            (_, true) => write!(f, "{identical} of {runs} runs are identical to those of {folder}"),
            (_, false) => write!(
                f,
                "{identical} of {runs} runs are identical to those of {folder}. For the others, \
                 the published runs are of {others}: nothing to compare."
            ),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.differences.iter().take(NAMED_MAX).map(String::as_str);
        let named = named.collect::<Vec<_>>().join("; ");
        write!(f, "run {} ({}): {named}", self.run, self.cell)?;
        match self.differences.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Returns the fields in which the results of two runs differ, with the digest and the value first.
pub(super) fn result_differences(here: &RunRecord, there: &RunRecord) -> Vec<String> {
    let (here, there) = (result(here), result(there));
    let mut paths = differences(&here, &there, DEPTH);
    paths.sort_by_key(|path| (path != "digest", path != "value", path.clone()));
    let value = |one: &Value, path: &str| {
        let value = one.pointer(&format!("/{}", path.replacen('.', "/", 1)));
        value.map_or("none".to_owned(), |value| match value {
            Value::String(text) => shown(text),
            other => shown(&other.to_string()),
        })
    };
    let describe = |path: &String| {
        format!("{path} {} there, {} here", value(&there, path), value(&here, path))
    };
    paths.iter().map(describe).collect()
}

/// Returns a record without the fields that may differ between machines.
fn result(record: &RunRecord) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    for pointer in NOT_COMPARED {
        if let Some(part) = value.pointer_mut(pointer) {
            *part = Value::Null;
        }
    }
    value
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;

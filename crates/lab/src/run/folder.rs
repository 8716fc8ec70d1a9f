//! What an output folder holds, read back.
//!
//! | file | content |
//! |---|---|
//! | `runs.jsonl` | a line for each attempt; lines are only ever added |
//! | `experiment.json` | the experiment, the machine, and which runs are planned: [`Meta`] |
//! | `identities.json` | what decides the runs, by setting |
//! | `runs.jsonl.torn` | ends of lines that an interrupted write left |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use unspin_model::identity::{Identity, Ingredients};
use unspin_model::summary::{ExperimentInfo, Machine};
use unspin_model::{Accel, Cell, RunRecord};

use super::LabError;
use super::verify::result_differences;

/// What the spelled-out settings are kept as.
pub type Settings = BTreeMap<Identity, Ingredients>;

/// What an output folder is about: the content of `experiment.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
    /// The experiment.
    pub info: ExperimentInfo,
    /// The machine.
    pub machine: Machine,
    /// How many runs are planned.
    pub planned: u64,
    /// Seconds spent measuring so far.
    pub elapsed_s: f64,
    /// The experiment's file, as it was named.
    pub file: PathBuf,
    /// Whether the last command ended with nothing left to do.
    #[serde(default)]
    pub complete: bool,
    /// The numbers of the planned runs by identity. Empty in folders from before runs had one:
    /// all of their runs count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plan: BTreeMap<Identity, u64>,
    /// The settings of the planned runs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub settings: BTreeSet<Identity>,
}

/// What an output folder holds.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The experiment.
    pub info: ExperimentInfo,
    /// The machine.
    pub machine: Machine,
    /// How many runs are planned.
    pub planned: u64,
    /// The planned cells. In folders from before runs had an identity, those with an attempt.
    pub cells: BTreeSet<Cell>,
    /// Seconds spent measuring.
    pub elapsed_s: f64,
    /// The experiment's file, as it was named.
    pub file: PathBuf,
    /// Every attempt at a planned run.
    pub records: Vec<RunRecord>,
    /// Attempts at other runs, which stay in the file: how many, by the reason.
    pub left_out: BTreeMap<String, u64>,
}

/// Reads an output folder.
///
/// # Errors
/// [`LabError::Read`] with the file, and the line where one is wrong. A last line without its
/// end is what an interrupted write left, and is passed over. Also where two results in virtual
/// time differ although everything that decides them is the same.
pub fn load(out: &Path) -> Result<Loaded, LabError> {
    let meta = meta(out)?;
    let path = out.join("runs.jsonl");
    let (records, _) = read_runs(&path)?;
    refuse_conflicts(&path, &records)?;
    let settings = read_settings(out)?;
    let (records, left_out) = if meta.plan.is_empty() {
        (records, BTreeMap::new())
    } else {
        planned(records, &meta, &settings)
    };
    let of_settings = meta.settings.iter().filter_map(|name| settings.get(name));
    let cells = of_settings.map(|one| &one.cell).chain(records.iter().map(|one| &one.cell));
    let cells = cells.cloned().collect();
    Ok(Loaded {
        info: meta.info,
        machine: meta.machine,
        planned: meta.planned,
        cells,
        elapsed_s: meta.elapsed_s,
        file: meta.file,
        records,
        left_out,
    })
}

/// A report would take one of two results that differ, although a run in virtual time has one.
/// The lab writes each once, so the second line came from elsewhere, as by a merge.
fn refuse_conflicts(path: &Path, records: &[RunRecord]) -> Result<(), LabError> {
    let mut first: BTreeMap<&Identity, (usize, &RunRecord)> = BTreeMap::new();
    let repeats = |record: &RunRecord| {
        record.observation().is_some() && record.label.accel == Some(Accel::Vt)
    };
    for (index, record) in records.iter().enumerate().filter(|(_, record)| repeats(record)) {
        let Some(identity) = &record.identity else { continue };
        let (line, original) = *first.entry(identity).or_insert((index + 1, record));
        if std::ptr::eq(original, record) {
            continue;
        }
        let differences = result_differences(record, original);
        if !differences.is_empty() {
            let detail = format!(
                "the run of line {line} has another result here ({}): find out which build gave \
                 which, and remove one of the two lines",
                differences.join("; ")
            );
            return Err(read_error(path, index + 1, &detail));
        }
    }
    Ok(())
}

/// The content of the `experiment.json` of a folder that is to be an output folder.
pub(super) fn meta(out: &Path) -> Result<Meta, LabError> {
    read_meta(out)?.ok_or_else(|| {
        let detail = "missing: this is not an output folder of `unspin lab run`";
        read_error(&out.join("experiment.json"), 0, &detail)
    })
}

/// The content of `experiment.json`; `None` where there is no such file.
pub(super) fn read_meta(out: &Path) -> Result<Option<Meta>, LabError> {
    let path = out.join("experiment.json");
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| read_error(&path, e.line(), &e)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(read_error(&path, 0, &error)),
    }
}

/// The same of the output folder of an experiment.
///
/// # Errors
/// [`LabError::OtherExperiment`] where the folder is another one's.
pub(super) fn meta_of(out: &Path, experiment: &str) -> Result<Option<Meta>, LabError> {
    match read_meta(out)? {
        Some(meta) if meta.info.name != experiment => Err(LabError::OtherExperiment {
            out: out.to_owned(),
            holds: meta.info.name,
            wanted: experiment.to_owned(),
        }),
        meta => Ok(meta),
    }
}

/// The records of a `runs.jsonl`, and the bytes up to the end of its last whole line.
pub(super) fn read_runs(path: &Path) -> Result<(Vec<RunRecord>, usize), LabError> {
    let bytes = fs::read(path).map_err(|e| read_error(path, 0, &e))?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let parse = |(index, line): (usize, &[u8])| {
        serde_json::from_slice(line).map_err(|e| read_error(path, index + 1, &e))
    };
    let lines = bytes[..whole].split_inclusive(|byte| *byte == b'\n');
    let records = lines.enumerate().map(parse).collect::<Result<_, _>>()?;
    Ok((records, whole))
}

/// The settings of a folder, spelled out; none in a folder from before runs had them.
pub(super) fn read_settings(out: &Path) -> Result<Settings, LabError> {
    let path = out.join("identities.json");
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|e| read_error(&path, e.line(), &e)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Settings::new()),
        Err(error) => Err(read_error(&path, 0, &error)),
    }
}

/// The planned ones of the records, under their planned numbers; and why others are not.
fn planned(
    records: Vec<RunRecord>,
    meta: &Meta,
    settings: &Settings,
) -> (Vec<RunRecord>, BTreeMap<String, u64>) {
    let mut kept = Vec::new();
    let mut left_out = BTreeMap::new();
    for mut record in records {
        match record.identity.as_ref().and_then(|identity| meta.plan.get(identity)) {
            Some(run) => {
                record.run = *run;
                kept.push(record);
            }
            None => *left_out.entry(reason(&record, meta, settings)).or_default() += 1,
        }
    }
    (kept, left_out)
}

/// Why a record is of no planned run.
fn reason(record: &RunRecord, meta: &Meta, settings: &Settings) -> String {
    let Some(setting) = &record.setting else {
        return "recorded before runs had an identity".to_owned();
    };
    let Some(own) = settings.get(setting) else {
        return "of a setting that identities.json does not hold".to_owned();
    };
    match of_the_same_cell(own, meta, settings) {
        Some(other) if other == own => "of another repeat or seed".to_owned(),
        Some(other) => format!("another {}", own.differences(other).join(", ")),
        None => "of a cell that is not planned".to_owned(),
    }
}

/// The planned setting of a folder that has the same cell.
pub(super) fn of_the_same_cell<'a>(
    own: &Ingredients,
    meta: &Meta,
    settings: &'a Settings,
) -> Option<&'a Ingredients> {
    let mut planned = meta.settings.iter().filter_map(|name| settings.get(name));
    planned.find(|other| other.cell == own.cell)
}

/// Replaces a file in one step, so that it is whole at all times, and on the disk afterwards.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), LabError> {
    let new = path.with_extension("json.new");
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|e| write_error(path, e))
}

pub(super) fn write_error(path: &Path, source: io::Error) -> LabError {
    LabError::Write { path: path.to_owned(), source }
}

pub(super) fn read_error(path: &Path, line: usize, error: &dyn std::fmt::Display) -> LabError {
    LabError::Read { path: path.to_owned(), line, detail: error.to_string() }
}

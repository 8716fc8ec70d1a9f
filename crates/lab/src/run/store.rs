//! The output folder. `runs.jsonl` gets a line a run, on disk before the next
//! run starts; everything else can be made again from it.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use unspin_model::summary::{ExperimentInfo, Machine};
use unspin_model::{Recording, RunRecord};

use super::LabError;
use crate::experiment::Experiment;

/// What an output folder is about.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Meta {
    /// The experiment.
    info: ExperimentInfo,
    /// The machine.
    machine: Machine,
    /// Planned runs.
    planned: u64,
    /// Seconds spent measuring so far.
    elapsed_s: f64,
    /// The experiment's file, as it was named.
    file: PathBuf,
    /// The text of the experiment's file.
    text: String,
}

/// What an output folder holds.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The experiment.
    pub info: ExperimentInfo,
    /// The machine.
    pub machine: Machine,
    /// Planned runs.
    pub planned: u64,
    /// Seconds spent measuring.
    pub elapsed_s: f64,
    /// The experiment's file, as it was named.
    pub file: PathBuf,
    /// The text of the experiment's file.
    pub text: String,
    /// Every attempt.
    pub records: Vec<RunRecord>,
}

/// An output folder that is being written.
pub struct Store {
    out: PathBuf,
    meta: Meta,
    runs: File,
    length: u64,
    done: HashSet<u64>,
    boots: u32,
}

impl Store {
    /// Opens or makes the folder. The experiment's text must be the one it was
    /// made with; more repeats are fine.
    pub fn open(out: &Path, experiment: &Experiment, planned: u64) -> Result<Store, LabError> {
        fs::create_dir_all(out.join("logs")).map_err(|e| write_error(out, e))?;
        let machine = crate::machine::describe();
        let mut meta = Meta {
            info: experiment.info(),
            machine,
            planned,
            elapsed_s: 0.0,
            file: experiment.file.clone(),
            text: experiment.text.clone(),
        };
        let path = out.join("runs.jsonl");
        let records = if out.join("experiment.json").exists() {
            let old = load(out)?;
            if without_repeats(&old.text) != without_repeats(&meta.text) {
                return Err(LabError::OtherExperiment { out: out.to_owned() });
            }
            meta.elapsed_s = old.elapsed_s;
            old.records
        } else {
            Vec::new()
        };
        let (runs, length) = open_runs(&path)?;
        let finished = records.iter().filter(|r| r.observation().is_some());
        let done = finished.map(|record| record.run).collect();
        let boots = records.iter().map(|record| record.boot + 1).max().unwrap_or(0);
        let store = Store { out: out.to_owned(), meta, runs, length, done, boots };
        store.write_meta()?;
        Ok(store)
    }

    /// Whether a run has its result.
    pub fn is_done(&self, run: u64) -> bool {
        self.done.contains(&run)
    }

    /// The number of the next boot.
    pub fn next_boot(&mut self) -> u32 {
        self.boots += 1;
        self.boots - 1
    }

    /// Appends a record and brings it to the disk. A line that does not fit is
    /// taken back, so that the file always ends with a whole one.
    pub fn append(&mut self, record: &RunRecord) -> Result<(), LabError> {
        let path = self.out.join("runs.jsonl");
        let mut line =
            serde_json::to_vec(record).map_err(|e| write_error(&path, std::io::Error::other(e)))?;
        line.push(b'\n');
        let written = self.runs.write_all(&line).and_then(|()| self.runs.sync_data());
        if let Err(error) = written {
            let _ = self.runs.set_len(self.length);
            let _ = self.runs.seek(SeekFrom::Start(self.length));
            return Err(write_error(&path, error));
        }
        self.length += line.len() as u64;
        if record.observation().is_some() {
            self.done.insert(record.run);
        }
        Ok(())
    }

    /// Keeps a run's on/off/idle history; returns its path relative to the folder.
    pub fn keep_recording(&self, run: u64, recording: &Recording) -> Result<String, LabError> {
        let name = format!("truth/{run:06}.gz");
        let path = self.out.join(&name);
        let folder = self.out.join("truth");
        fs::create_dir_all(&folder).map_err(|e| write_error(&folder, e))?;
        unspin_trace::recording::write(&path, std::slice::from_ref(recording))
            .map_err(|e| write_error(&path, std::io::Error::other(e)))?;
        Ok(name)
    }

    /// Keeps the session that a guest recorded of itself during a run.
    pub fn keep_session(&self, run: u64, session: &[u8]) -> Result<(), LabError> {
        let folder = self.out.join("sessions");
        fs::create_dir_all(&folder).map_err(|e| write_error(&folder, e))?;
        let path = folder.join(format!("{run:06}.arrow.gz"));
        fs::write(&path, session).map_err(|e| write_error(&path, e))
    }

    /// Keeps the log of a failed attempt.
    pub fn keep_log(&self, run: u64, attempt: u32, text: &str) -> Result<(), LabError> {
        let path = self.out.join(format!("logs/run-{run:06}-attempt-{attempt}.log"));
        fs::write(&path, text).map_err(|e| write_error(&path, e))
    }

    /// Adds to the seconds spent measuring.
    pub fn add_elapsed(&mut self, seconds: f64) -> Result<(), LabError> {
        self.meta.elapsed_s += seconds;
        self.write_meta()
    }

    /// Replaces the description in one step, so that it is whole at all times.
    fn write_meta(&self) -> Result<(), LabError> {
        let path = self.out.join("experiment.json");
        let text = serde_json::to_string_pretty(&self.meta)
            .map_err(|e| write_error(&path, std::io::Error::other(e)))?;
        let new = self.out.join("experiment.json.new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.map_err(|e| write_error(&path, e))
    }
}

/// Reads an output folder. A last line without its end is what a crash left of
/// a run that had not finished; it is passed over.
pub fn load(out: &Path) -> Result<Loaded, LabError> {
    let path = out.join("experiment.json");
    let text = fs::read_to_string(&path).map_err(|e| {
        let detail = format!("not an output folder of `unspin lab run`: {e}");
        read_error(&path, 0, &detail)
    })?;
    let meta: Meta = serde_json::from_str(&text).map_err(|e| read_error(&path, e.line(), &e))?;
    let path = out.join("runs.jsonl");
    let runs = fs::read_to_string(&path).unwrap_or_default();
    let whole = &runs[..runs.rfind('\n').map_or(0, |end| end + 1)];
    let parse = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| read_error(&path, index + 1, &e))
    };
    let records = whole.lines().enumerate().map(parse).collect::<Result<_, _>>()?;
    Ok(Loaded {
        info: meta.info,
        machine: meta.machine,
        planned: meta.planned,
        elapsed_s: meta.elapsed_s,
        file: meta.file,
        text: meta.text,
        records,
    })
}

/// Opens the file for appending, without a last line that has no end.
fn open_runs(path: &Path) -> Result<(File, u64), LabError> {
    let bytes = fs::read(path).unwrap_or_default();
    let length = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end as u64 + 1);
    let open = || -> std::io::Result<File> {
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(file)
    };
    Ok((open().map_err(|e| write_error(path, e))?, length))
}

/// The text without its `repeats` line: more repeats extend an experiment.
fn without_repeats(text: &str) -> String {
    let kept = text.lines().filter(|line| !line.trim_start().starts_with("repeats"));
    kept.collect::<Vec<_>>().join("\n")
}

fn write_error(path: &Path, source: std::io::Error) -> LabError {
    LabError::Write { path: path.to_owned(), source }
}

fn read_error(path: &Path, line: usize, error: &dyn std::fmt::Display) -> LabError {
    LabError::Read { path: path.to_owned(), line, detail: error.to_string() }
}

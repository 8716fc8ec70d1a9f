//! The output folder while it is written. `runs.jsonl` gets a line for each attempt, on disk
//! before the next run starts; everything else can be made again from it.
//!
//! A run is done when the file has a result of its identity, whatever its number was. Lines
//! of other identities stay in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use unspin_model::summary::Machine;
use unspin_model::{Identity, Recording, RunRecord};

use super::LabError;
use super::folder::{self, Meta, read_error, read_runs, read_settings, write_error};
use super::identity::Plan;
use crate::experiment::Experiment;

/// An output folder that is being written.
pub struct Store {
    out: PathBuf,
    meta: Meta,
    runs: File,
    length: u64,
    /// Each planned run's number, and whether it has its result.
    done: BTreeMap<u64, bool>,
    boots: u32,
    torn: Option<u64>,
    /// This machine and program, until their first run: the folder names those of its last one.
    here: Option<Machine>,
    /// Held as long as the store: a second writer would tear the lines of the first.
    _lock: Flock<File>,
}

impl Store {
    /// Opens or makes the folder for the runs of a plan.
    ///
    /// # Errors
    /// [`LabError::Read`] where what is there cannot be read, and
    /// [`LabError::OtherExperiment`] where it is another experiment's: nothing is changed then.
    pub fn open(
        out: &Path,
        experiment: &Experiment,
        plan: &Plan,
        commit: &str,
    ) -> Result<Store, LabError> {
        folder::meta_of(out, &experiment.name)?;
        fs::create_dir_all(out.join("logs")).map_err(|e| write_error(out, e))?;
        let lock = lock(out)?;
        // Another command may have ended between the check and the lock.
        let old = folder::meta_of(out, &experiment.name)?;
        let mut settings = read_settings(out)?;
        let (runs, length, torn, records) = open_runs(&out.join("runs.jsonl"))?;
        let numbers = plan.numbers();
        let mut done: BTreeMap<u64, bool> = plan.names.keys().map(|run| (*run, false)).collect();
        done.extend(finished(&records, &numbers).map(|run| (run, true)));
        settings.extend(plan.settings.iter().map(|(name, one)| (name.clone(), one.clone())));
        let goes_on = done.values().any(|done| *done);
        let here = crate::machine::describe(commit);
        let (machine, elapsed_s) =
            old.filter(|_| goes_on).map_or((here.clone(), 0.0), |old| (old.machine, old.elapsed_s));
        let meta = Meta {
            info: experiment.info(),
            machine,
            planned: plan.names.len() as u64,
            elapsed_s,
            file: experiment.file.clone(),
            complete: false,
            plan: numbers,
            settings: plan.settings.keys().cloned().collect(),
        };
        let boots = records.iter().map(|record| record.boot + 1).max().unwrap_or(0);
        let store = Store {
            out: out.to_owned(),
            meta,
            runs,
            length,
            done,
            boots,
            torn,
            here: Some(here),
            _lock: lock,
        };
        let path = out.join("identities.json");
        let text = serde_json::to_string_pretty(&settings)
            .map_err(|e| write_error(&path, io::Error::other(e)))?;
        folder::replace(&path, &(text + "\n"))?;
        store.write_meta()?;
        Ok(store)
    }

    /// Takes over results of planned runs in virtual time from another folder. A run in real
    /// time is one of this folder's measurements or none.
    pub fn reuse(&mut self, other: &Path, plan: &Plan) -> Result<(), LabError> {
        let records = others_runs(other)?;
        if self.done() == 0 {
            self.meta.machine = folder::meta(other)?.machine;
        }
        for record in records.iter().filter(|record| record.observation().is_some()) {
            let run = record.identity.as_ref().and_then(|id| self.meta.plan.get(id)).copied();
            let wanted = |run: &u64| plan.is_deterministic(*run) && !self.is_done(*run);
            let Some(run) = run.filter(wanted) else { continue };
            let mut record = RunRecord { run, boot: self.next_boot(), ..record.clone() };
            if let Some(truth) = &mut record.truth {
                truth.recording = None;
            }
            self.write(&record)?;
        }
        Ok(())
    }

    /// Whether a planned run has its result.
    pub fn is_done(&self, run: u64) -> bool {
        self.done.get(&run).copied().unwrap_or(false)
    }

    /// How many planned runs have their result.
    pub fn done(&self) -> u64 {
        self.done.values().filter(|done| **done).count() as u64
    }

    /// What an interrupted write had left at the end of `runs.jsonl`, in bytes, and where it is
    /// now.
    pub fn torn(&self) -> Option<(u64, PathBuf)> {
        self.torn.map(|bytes| (bytes, torn_path(&self.out.join("runs.jsonl"))))
    }

    /// The number of the next boot.
    pub fn next_boot(&mut self) -> u32 {
        self.boots += 1;
        self.boots - 1
    }

    /// Appends what this program has measured, and brings it to the disk.
    pub fn append(&mut self, record: &RunRecord) -> Result<(), LabError> {
        if let Some(here) = self.here.take() {
            self.meta.machine = here;
            self.write_meta()?;
        }
        self.write(record)
    }

    /// A line that does not fit is taken back, so that the file always ends with a whole one.
    fn write(&mut self, record: &RunRecord) -> Result<(), LabError> {
        let path = self.out.join("runs.jsonl");
        let mut line =
            serde_json::to_vec(record).map_err(|e| write_error(&path, io::Error::other(e)))?;
        line.push(b'\n');
        let written = self.runs.write_all(&line).and_then(|()| self.runs.sync_data());
        if let Err(error) = written {
            let _ = self.runs.set_len(self.length);
            let _ = self.runs.seek(SeekFrom::Start(self.length));
            return Err(write_error(&path, error));
        }
        self.length += line.len() as u64;
        if record.observation().is_some() {
            self.done.insert(record.run, true);
        }
        Ok(())
    }

    /// Keeps a run's on/off/idle history; returns its path relative to the folder. The name
    /// holds the run's identity, so that no run of a changed experiment replaces the file.
    pub fn keep_recording(
        &self,
        run: u64,
        identity: &Identity,
        recording: &Recording,
    ) -> Result<String, LabError> {
        let name = format!("truth/{run:06}-{identity}.gz");
        let path = self.out.join(&name);
        let folder = self.out.join("truth");
        fs::create_dir_all(&folder).map_err(|e| write_error(&folder, e))?;
        unspin_trace::recording::write(&path, std::slice::from_ref(recording))
            .map_err(|e| write_error(&path, io::Error::other(e)))?;
        Ok(name)
    }

    /// Keeps the session that a guest recorded of itself during a run.
    pub fn keep_session(
        &self,
        run: u64,
        identity: &Identity,
        session: &[u8],
    ) -> Result<(), LabError> {
        let folder = self.out.join("sessions");
        fs::create_dir_all(&folder).map_err(|e| write_error(&folder, e))?;
        let path = folder.join(format!("{run:06}-{identity}.arrow.gz"));
        fs::write(&path, session).map_err(|e| write_error(&path, e))
    }

    /// Keeps the log of a failed attempt.
    pub fn keep_log(
        &self,
        run: u64,
        identity: &Identity,
        attempt: u32,
        text: &str,
    ) -> Result<(), LabError> {
        let path = self.out.join(format!("logs/run-{run:06}-{identity}-attempt-{attempt}.log"));
        fs::write(&path, text).map_err(|e| write_error(&path, e))
    }

    /// Notes that the command ends: how long it measured, and whether nothing is left to do.
    pub fn end(&mut self, seconds: f64, complete: bool) -> Result<(), LabError> {
        self.meta.elapsed_s += seconds;
        self.meta.complete = complete;
        self.write_meta()
    }

    fn write_meta(&self) -> Result<(), LabError> {
        let path = self.out.join("experiment.json");
        let text = serde_json::to_string_pretty(&self.meta)
            .map_err(|e| write_error(&path, io::Error::other(e)))?;
        folder::replace(&path, &(text + "\n"))
    }
}

/// The planned runs that have a result among the records.
fn finished<'a>(
    records: &'a [RunRecord],
    numbers: &'a BTreeMap<Identity, u64>,
) -> impl Iterator<Item = u64> + use<'a> {
    let observed = records.iter().filter(|record| record.observation().is_some());
    observed.filter_map(|record| numbers.get(record.identity.as_ref()?).copied())
}

/// The runs of a plan that have a result in a folder, or that would be taken over from the
/// folders in `reuse`. It changes nothing.
///
/// # Errors
/// As [`Store::open`] and [`Store::reuse`].
pub(super) fn done_in(
    out: &Path,
    name: &str,
    reuse: &[PathBuf],
    plan: &Plan,
) -> Result<BTreeSet<u64>, LabError> {
    let numbers = plan.numbers();
    let mut done = BTreeSet::new();
    folder::meta_of(out, name)?;
    let own = out.join("runs.jsonl");
    if own.exists() {
        done.extend(finished(&read_runs(&own)?.0, &numbers));
    }
    for other in reuse {
        let records = others_runs(other)?;
        done.extend(finished(&records, &numbers).filter(|run| plan.is_deterministic(*run)));
    }
    Ok(done)
}

/// Refuses a folder with results of runs in virtual time that are to be carried out twice: they
/// would pass without having run once.
pub(super) fn refuse_results(out: &Path, name: &str, plan: &Plan) -> Result<(), LabError> {
    let done = done_in(out, name, &[], plan)?;
    let selected = plan.boots.iter().filter(|boot| boot.virtual_time);
    match selected.flat_map(|boot| &boot.runs).any(|run| done.contains(&run.run)) {
        true => Err(LabError::HasResults { out: out.to_owned() }),
        false => Ok(()),
    }
}

/// Keeps other writers out of a folder: runs of the lab, and sweeps of the Python package.
fn lock(out: &Path) -> Result<Flock<File>, LabError> {
    let path = out.join("runs.lock");
    let file = File::create(&path).map_err(|e| write_error(&path, e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => {
            read_error(out, 0, &"another run or sweep writes there: wait, or give another --out")
        }
        other => write_error(&path, other.into()),
    })
}

/// The runs of a folder to take results over from.
fn others_runs(folder: &Path) -> Result<Vec<RunRecord>, LabError> {
    let file = folder.join("runs.jsonl");
    if file.is_file() {
        return Ok(read_runs(&file)?.0);
    }
    Err(read_error(folder, 0, &"not a folder with results of `unspin lab run`"))
}

/// Opens the file for appending. An incomplete last line goes into a file of its own; how many
/// bytes it had comes with the file's length.
fn open_runs(path: &Path) -> Result<(File, u64, Option<u64>, Vec<RunRecord>), LabError> {
    let write = |e| write_error(path, e);
    let mut options = OpenOptions::new();
    let mut file =
        options.create(true).truncate(false).read(true).write(true).open(path).map_err(write)?;
    let (records, whole) = read_runs(path)?;
    let length = whole as u64;
    let torn = file.metadata().map_err(write)?.len().checked_sub(length).filter(|bytes| *bytes > 0);
    if torn.is_some() {
        set_aside(&mut file, length, path)?;
    }
    file.seek(SeekFrom::Start(length)).map_err(write)?;
    Ok((file, length, torn, records))
}

/// Where incomplete lines go.
fn torn_path(runs: &Path) -> PathBuf {
    runs.with_extension("jsonl.torn")
}

/// Moves what follows the last whole line to `runs.jsonl.torn`, on the disk before it is cut off.
fn set_aside(runs: &mut File, length: u64, path: &Path) -> Result<(), LabError> {
    let torn = torn_path(path);
    let mut keep = || -> io::Result<()> {
        runs.seek(SeekFrom::Start(length))?;
        let mut into = OpenOptions::new().create(true).append(true).open(&torn)?;
        io::copy(runs, &mut into)?;
        into.write_all(b"\n")?;
        into.sync_all()
    };
    keep().map_err(|e| write_error(&torn, e))?;
    runs.set_len(length).and_then(|()| runs.sync_all()).map_err(|e| write_error(path, e))
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(super) mod tests;

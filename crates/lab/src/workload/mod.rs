//! Workloads: what runs in a guest and how its result is read.
//!
//! A workload is a TOML file. The shipped ones are in the repository's `workloads/`
//! and compiled in ([`builtin`]); any other file is read by [`Workload::load`].
//!
//! ```
//! use unspin_lab::workload::builtin;
//!
//! let workload = builtin("hackbench-pipe-threads").unwrap();
//! let reading = workload.read("Time: 1.25\n", 1.4).unwrap();
//! assert_eq!(reading.value, 1.25);
//! ```

mod builtin;
mod file;
mod reading;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex::Regex;
use unspin_model::Metric;
use unspin_model::sensed::KnownWaits;
use unspin_stats::counted;

use crate::toml_error::{self, ConfigError};

pub use builtin::{builtin, builtin_names};
use reading::Reader;
pub use reading::{ReadError, Reading};

/// A program to run in a guest, and how its result is read.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Its name: lower-case letters, digits and `-`.
    pub name: String,
    /// One line that says what runs.
    pub title: String,
    /// One line that says what it stresses.
    pub stresses: String,
    /// Debian packages that hold the programs.
    pub packages: Vec<String>,
    /// Programs put into the guest, with their libraries. The guest's own busybox
    /// (`sh`, `awk`, `seq`, ...) is always there.
    pub programs: Vec<String>,
    /// Further host files or folders put into the guest, at the same path.
    pub files: Vec<PathBuf>,
    /// Commands run before, not timed; argv each. See [`Workload::setup_argv`].
    pub setup: Vec<Vec<String>>,
    /// The command, argv. See [`Workload::argv`].
    pub command: Vec<String>,
    /// For how many seconds it runs, where its command asks for a time: `{seconds}`.
    pub seconds: Option<u32>,
    /// True when it runs until it gets SIGINT and prints its result then.
    pub until_stopped: bool,
    /// After so many seconds it did not finish.
    pub time_limit_s: f64,
    /// What is measured.
    pub metric: Metric,
    /// What is known of its waits.
    pub waits: Option<KnownWaits>,
    reader: Reader,
    co_metrics: Vec<(String, Reader)>,
    latencies: Vec<(String, Regex)>,
}

impl Workload {
    /// Reads a workload's file.
    ///
    /// # Errors
    /// When the file cannot be read or is not a valid workload; names the line.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (raw, text) = toml_error::load(path)?;
        file::check(raw, path, &text)
    }

    /// Reads a workload from the text of a file.
    ///
    /// # Errors
    /// When the text is not a valid workload; names the line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        file::check(toml_error::parse(path, text)?, path, text)
    }

    /// The command for a guest of `vcpus` vCPUs: each `{vcpus}` and `{seconds}` is replaced.
    pub fn argv(&self, vcpus: u32) -> Vec<String> {
        self.fill_in(&self.command, vcpus)
    }

    /// The commands that prepare the run, each as argv.
    pub fn setup_argv(&self, vcpus: u32) -> Vec<Vec<String>> {
        self.setup.iter().map(|argv| self.fill_in(argv, vcpus)).collect()
    }

    fn fill_in(&self, argv: &[String], vcpus: u32) -> Vec<String> {
        let seconds = self.seconds.map(|seconds| seconds.to_string());
        let fill = |word: &String| {
            let word = word.replace("{vcpus}", &vcpus.to_string());
            seconds.as_ref().map_or(word.clone(), |seconds| word.replace("{seconds}", seconds))
        };
        argv.iter().map(fill).collect()
    }

    /// How the result is read, for the identity of a run.
    pub fn reading(&self) -> serde_json::Value {
        let co_metrics = self.co_metrics.iter().map(|(name, reader)| (name, reader.describe()));
        let mut reading = serde_json::json!({
            "metric": self.metric,
            "read": self.reader.describe(),
            "co_metrics": co_metrics.collect::<BTreeMap<_, _>>(),
            "waits": self.waits,
        });
        // A key of its own, so that other workloads' runs keep the identity that they had.
        if !self.latencies.is_empty() {
            let latencies = self.latencies.iter().map(|(name, regex)| (name, regex.as_str()));
            reading["latencies"] = serde_json::json!(latencies.collect::<BTreeMap<_, _>>());
        }
        reading
    }

    /// Reads the result from what the command printed to its standard output and
    /// the seconds that it ran.
    ///
    /// A co-metric that is not found is listed in [`Reading::missing`]: versions of a
    /// program differ in them.
    ///
    /// # Errors
    /// When the metric's value is not there or not a number, or latencies are missing.
    pub fn read(&self, stdout: &str, elapsed_s: f64) -> Result<Reading, ReadError> {
        if !self.latencies.is_empty() && reading::is_cut(stdout) {
            return Err(ReadError::Cut);
        }
        let mut reading =
            Reading { value: self.reader.read(stdout, elapsed_s)?, ..Reading::default() };
        for (name, reader) in &self.co_metrics {
            match reader.read(stdout, elapsed_s) {
                Ok(value) => drop(reading.co_metrics.insert(name.clone(), value)),
                Err(_) => reading.missing.push(name.clone()),
            }
        }
        for (name, regex) in &self.latencies {
            let lengths = reading::every_match(regex, stdout)?;
            reading.latencies.insert(name.clone(), counted(lengths));
        }
        Ok(reading)
    }
}

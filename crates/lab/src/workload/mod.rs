//! Workloads: the programs that guests run, and how the lab reads their results.
//!
//! A workload is a TOML file. The shipped workloads lie in the repository's `workloads/` and are
//! compiled in ([`builtin`]). [`Workload::load`] reads any other file.
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

/// A program that a guest runs, and how its result is read.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Name of lower-case letters, digits and `-`.
    pub name: String,
    /// One line that says which program runs.
    pub title: String,
    /// One line that says what the program stresses.
    pub stresses: String,
    /// Debian packages that provide the programs.
    pub packages: Vec<String>,
    /// Programs that the guest's image gets, with their libraries. Every guest has busybox (`sh`,
    /// `awk`, `seq`, ...).
    pub programs: Vec<String>,
    /// More host files or folders that the image gets, at the same path.
    pub files: Vec<PathBuf>,
    /// Commands that run before the measured one and are not timed, each as argv. See
    /// [`Workload::setup_argv`].
    pub setup: Vec<Vec<String>>,
    /// The measured command as argv. See [`Workload::argv`].
    pub command: Vec<String>,
    /// Seconds that replace `{seconds}` in the command, if the command contains it.
    pub seconds: Option<u32>,
    /// Whether the command runs until it gets SIGINT, and only then prints its result.
    pub until_stopped: bool,
    /// Seconds after which the run counts as unfinished.
    pub time_limit_s: f64,
    /// The measured quantity.
    pub metric: Metric,
    /// The vCPU that the workload waits for and the cause of its waits, if they are known
    /// beforehand.
    pub waits: Option<KnownWaits>,
    reader: Reader,
    co_metrics: Vec<(String, Reader)>,
    latencies: Vec<(String, Regex)>,
}

impl Workload {
    /// Reads a workload from a file.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid workload. The error names the line.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (raw, text) = toml_error::load(path)?;
        file::check(raw, path, &text)
    }

    /// Reads a workload from a file's text.
    ///
    /// # Errors
    /// The text is not a valid workload. The error names the line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        file::check(toml_error::parse(path, text)?, path, text)
    }

    /// Returns the command for a guest of `vcpus` vCPUs, with `{vcpus}` and `{seconds}` filled in.
    pub fn argv(&self, vcpus: u32) -> Vec<String> {
        self.fill_in(&self.command, vcpus)
    }

    /// Returns the commands that prepare the run, each as argv.
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

    /// Describes how the result is read. The description is part of a run's identity.
    pub fn reading(&self) -> serde_json::Value {
        let co_metrics = self.co_metrics.iter().map(|(name, reader)| (name, reader.describe()));
        let mut reading = serde_json::json!({
            "metric": self.metric,
            "read": self.reader.describe(),
            "co_metrics": co_metrics.collect::<BTreeMap<_, _>>(),
            "waits": self.waits,
        });
        // This key is absent unless it is needed, so runs of other workloads keep their identity.
        if !self.latencies.is_empty() {
            let latencies = self.latencies.iter().map(|(name, regex)| (name, regex.as_str()));
            reading["latencies"] = serde_json::json!(latencies.collect::<BTreeMap<_, _>>());
        }
        reading
    }

    /// Reads the result from the command's standard output and its running time in seconds.
    ///
    /// A co-metric that is not found is listed in [`Reading::missing`], because versions of a
    /// program differ in their co-metrics.
    ///
    /// # Errors
    /// The metric's value is missing, the metric or a latency is not a number, or the output is cut
    /// and lacks latencies.
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

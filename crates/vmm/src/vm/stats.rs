//! The file of `--stats`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::VmmError;
use crate::ghcb::Reader;
use crate::memory::Ram;

/// A file that is opened before threads are confined, and written when they have ended.
#[derive(Debug)]
pub struct Stats {
    file: File,
    path: PathBuf,
    start: Instant,
}

impl Stats {
    /// Creates an empty file. A FIFO without a reader is an error instead of a wait.
    pub fn create(path: &Path) -> Result<Stats, VmmError> {
        let error = |source| VmmError::File { what: "create", path: path.to_owned(), source };
        let mut options = File::options();
        options.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).map_err(error)?;
        Ok(Stats { file, path: path.to_owned(), start: Instant::now() })
    }

    /// Writes the counters. A failed write does not change how the VM ended.
    pub fn write(&mut self, ram: &Ram, ghcb: Option<&Reader>) {
        let seconds = self.start.elapsed().as_secs_f64();
        let pages = ram
            .devices
            .table()
            .map(|table| table.counters.json(table.policy().name(), ram.key.is_some(), seconds));
        let lines: String = pages.into_iter().chain(ghcb.map(Reader::json)).collect();
        if let Err(error) = self.file.write_all(lines.as_bytes()) {
            let path = self.path.display();
            let _ = writeln!(std::io::stderr(), "unspin-vmm: cannot write {path}: {error}");
        }
    }
}

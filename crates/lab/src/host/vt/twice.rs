//! The check of determinism: carries out a run twice and compares the results byte by byte.

use std::fs;
use std::path::Path;

use unspin_model::FailureKind;
use unspin_wire::{BootSpec, Failure, RunOutput, RunSpec};

use super::args::{RECORD_FILE, RESULTS_FILE};
use super::{VtOptions, carry_out};

/// The first difference between two runs of the same cell and seed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not deterministic: the second run's {file} differs at byte {offset} ({} and {} bytes)",
    bytes[0],
    bytes[1]
)]
pub struct Difference {
    /// Name of the file that differs.
    pub file: &'static str,
    /// Offset of the first byte that differs; the shorter length if one file is a prefix of the
    /// other.
    pub offset: usize,
    /// Lengths of both files in bytes.
    pub bytes: [usize; 2],
}

/// Carries out a run twice, below `folder`, and compares the files that guest and host wrote.
/// Returns the first run's output, and the first difference if the runs differ.
///
/// # Errors
/// The failure of either run, or a file that cannot be read.
pub fn twice(
    options: &VtOptions,
    boot: &BootSpec,
    run: &RunSpec,
    folder: &Path,
) -> Result<(RunOutput, Option<Difference>), Failure> {
    let folders = ["first", "second"].map(|name| folder.join(name));
    let output = carry_out(options, boot, run, &folders[0])?;
    carry_out(options, boot, run, &folders[1])?;
    for file in [RESULTS_FILE, RECORD_FILE] {
        let read = |folder: &Path| {
            let path = folder.join(file);
            fs::read(&path).map_err(|e| {
                Failure::new(FailureKind::NoResult, format!("{}: {e}", path.display()))
            })
        };
        let (first, second) = (read(&folders[0])?, read(&folders[1])?);
        if let Some(offset) = difference(&first, &second) {
            let bytes = [first.len(), second.len()];
            return Ok((output, Some(Difference { file, offset, bytes })));
        }
    }
    Ok((output, None))
}

/// Returns the offset of the first byte that differs.
fn difference(first: &[u8], second: &[u8]) -> Option<usize> {
    let differs = first.iter().zip(second).position(|(a, b)| a != b);
    differs.or_else(|| (first.len() != second.len()).then(|| first.len().min(second.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert_eq!(difference(b"abc", b"abX"), Some(2));
        assert_eq!(difference(b"abc", b"ab"), Some(2));
    }
}

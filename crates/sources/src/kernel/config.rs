//! Reads kernel configuration files (`.config`, `/boot/config-RELEASE`).

use std::fs;
use std::path::Path;

use crate::SourcesError;

/// Returns whether `option` is built in (`=y`) in the configuration file at `path`. `option` has no
/// `CONFIG_` prefix: `SCHED_CLASS_EXT`.
///
/// # Errors
/// If the file cannot be read.
pub fn config_has(path: &Path, option: &str) -> Result<bool, SourcesError> {
    let text = fs::read_to_string(path)
        .map_err(|e| SourcesError::io("read the kernel's configuration", path, e))?;
    Ok(has(&text, option))
}

fn has(text: &str, option: &str) -> bool {
    text.lines().any(|line| {
        line.strip_prefix("CONFIG_").and_then(|line| line.strip_suffix("=y")) == Some(option)
    })
}

/// Returns the options that `wanted` (a fragment) sets and that `got` (a configuration) lacks.
///
/// The result ignores options that `wanted` turns off, because a kernel that does not know an
/// option has it off, too.
pub(super) fn missing(wanted: &str, got: &str) -> Vec<String> {
    let got: std::collections::HashSet<&str> = got.lines().collect();
    let set = wanted.lines().filter(|line| line.starts_with("CONFIG_"));
    set.filter(|line| !got.contains(line)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str =
        "CONFIG_SMP=y\nCONFIG_NR_CPUS=64\nCONFIG_EXT4_FS=m\n# CONFIG_NUMA is not set\n";

    #[test]
    fn only_built_in_options_count() {
        assert!(has(CONFIG, "SMP"));
        for option in ["EXT4_FS", "NUMA", "NR_CPUS", "SM", "MP", "SMP_OTHER"] {
            assert!(!has(CONFIG, option), "{option}");
        }
    }

    #[test]
    fn options_that_got_lost_are_named() {
        let wanted = "# why\nCONFIG_SMP=y\nCONFIG_EXT4_FS=y\n# CONFIG_KASLR is not set\n";
        assert_eq!(missing(wanted, CONFIG), ["CONFIG_EXT4_FS=y"]);
    }
}

//! Bounds of an experiment's figures. Figures within these bounds do not overflow in later
//! multiplications.

use toml::Spanned;

use super::file::Source;
use crate::toml_error::ConfigError;

const VCPUS_MAX: u32 = 128;
/// Lower than the memory that any kernel and its image need.
const MEMORY_MIN_MIB: u64 = 128;
/// 1 TiB.
const MEMORY_MAX_MIB: u64 = 1 << 20;
/// An hour.
const DURATION_MAX_US: u64 = 3_600_000_000;

/// Checks the number of a guest's vCPUs.
pub(super) fn vcpus(source: &Source, vcpus: &Spanned<u32>) -> Result<u32, ConfigError> {
    match *vcpus.get_ref() {
        count @ 1..=VCPUS_MAX => Ok(count),
        _ => Err(source.error(vcpus, format!("a guest has 1 to {VCPUS_MAX} vCPUs"))),
    }
}

/// Checks the memory of a guest in MiB, if the file sets it.
pub(super) fn memory_mib(
    source: &Source,
    memory: Option<&Spanned<u64>>,
) -> Result<Option<u64>, ConfigError> {
    match memory {
        Some(mib) if *mib.get_ref() > MEMORY_MAX_MIB => {
            Err(source.error(mib, format!("a guest has at most {MEMORY_MAX_MIB} MiB (1 TiB)")))
        }
        Some(mib) if *mib.get_ref() < MEMORY_MIN_MIB => {
            Err(source.error(mib, format!("a guest needs at least {MEMORY_MIN_MIB} MiB")))
        }
        mib => Ok(mib.map(|mib| *mib.get_ref())),
    }
}

/// Checks a duration in microseconds, if the file sets it.
pub(super) fn duration_us(
    source: &Source,
    duration: Option<&Spanned<u64>>,
) -> Result<Option<u64>, ConfigError> {
    match duration {
        Some(us) if !is_duration_us(*us.get_ref()) => Err(source.error(us, too_long())),
        us => Ok(us.map(|us| *us.get_ref())),
    }
}

/// Returns whether a duration in microseconds is within its bounds.
pub(super) fn is_duration_us(us: u64) -> bool {
    us <= DURATION_MAX_US
}

/// Returns the error message for a longer duration.
pub(super) fn too_long() -> String {
    format!("a time here is at most an hour, {DURATION_MAX_US} microseconds")
}

//! Why vCPUs cannot be limited.

use std::io;

use unspin_model::class::{Class, Classified};

use super::cpusets::CpusetError;
use crate::sense::SenseError;

/// Why vCPUs cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Spins or off intervals cannot be seen.
    #[error(transparent)]
    Sense(#[from] SenseError),
    /// Tasks cannot be limited.
    #[error(transparent)]
    Cpuset(#[from] CpusetError),
    /// There is nobody to decide.
    #[error("start a thread: {0}")]
    Thread(io::Error),
}

impl ConfineError {
    /// Whether a scheduler in place of the kernel's can do the same here.
    pub fn has_another_way(&self) -> bool {
        match self {
            // Neither sees a vCPU that is off.
            ConfineError::Sense(SenseError::Ticks(_)) => false,
            ConfineError::Sense(error) => error.class() == Class::Unavailable,
            ConfineError::Cpuset(error) => {
                matches!(error, CpusetError::NoController(_) | CpusetError::Isolated(_))
            }
            ConfineError::Thread(_) => false,
        }
    }
}

impl Classified for ConfineError {
    fn class(&self) -> Class {
        match self {
            ConfineError::Sense(error) => error.class(),
            ConfineError::Cpuset(error) => error.class(),
            ConfineError::Thread(_) => Class::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_show_nothing_show_a_scheduler_nothing_either() {
        let without_ticks = SenseError::Ticks("hyperv clockevent".into());
        assert!(!ConfineError::from(without_ticks).has_another_way());
        assert!(ConfineError::from(SenseError::NoTimers).has_another_way());
    }
}

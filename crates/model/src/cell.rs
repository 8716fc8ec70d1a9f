//! A cell: one point of an experiment's matrix.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Coordinates of a cell, which is run n times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the topology, such as `2:1`.
    pub topology: String,
    /// Name of the kernel in the experiment, such as `debian-cloud`.
    pub kernel: String,
    /// Boot parameters added to the subject's command line; often empty.
    pub boot_params: String,
    /// The guest scheduler: `stock`, `hold:K` or a command's name.
    pub scheduler: String,
    /// Name of the workload.
    pub workload: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.workload, self.topology, self.scheduler, self.kernel)?;
        if !self.boot_params.is_empty() {
            write!(f, " [{}]", self.boot_params)?;
        }
        Ok(())
    }
}

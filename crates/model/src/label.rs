//! The origin of a figure. Every result carries its label, so that a figure from software emulation
//! or simulation can never pass for a hardware one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Producer of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Real virtual machines.
    Lab,
    /// The simulator.
    Sim,
}

/// Way of executing a virtual machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Hardware virtualization.
    Kvm,
    /// QEMU's software emulation, one host thread per vCPU: works everywhere.
    #[default]
    Tcg,
    /// QEMU's software emulation in virtual time: the host is simulated, and the same cell with the
    /// same seed gives the same bytes on every machine.
    Vt,
}

impl Accel {
    /// All accelerators.
    pub const ALL: [Accel; 3] = [Accel::Kvm, Accel::Tcg, Accel::Vt];

    /// Returns the accelerator of this name.
    pub fn parse(name: &str) -> Option<Accel> {
        Accel::ALL.into_iter().find(|accel| accel.as_str() == name)
    }

    /// Returns whether the same seed gives the same run on every machine.
    pub fn is_deterministic(self) -> bool {
        self == Accel::Vt
    }

    /// Returns the name in files, options and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
            Accel::Vt => "vt",
        }
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Origin of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Lab or simulator.
    pub source: Source,
    /// Accelerator of the outermost virtual machine; `None` in the simulator.
    pub accel: Option<Accel>,
    /// Whether the subject ran under a real KVM inside an emulated host.
    pub nested: bool,
    /// Kernel release of the subject (`uname -r`).
    pub kernel: String,
    /// The host: CPU model and kernel release.
    pub host: String,
    /// Name of the price table, which sets the costs of exits in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// Kind of confidential VM that the subject detects, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cvm: Option<String>,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Source::Sim => f.write_str("sim")?,
            Source::Lab => f.write_str("lab")?,
        }
        match (self.accel, self.nested) {
            (Some(accel), true) => write!(f, "/kvm nested in {accel}")?,
            (Some(accel), false) => write!(f, "/{accel}")?,
            (None, _) => {}
        }
        write!(f, ", kernel {}", self.kernel)?;
        if let Some(cvm) = &self.cvm {
            write!(f, ", {cvm}")?;
        }
        match &self.prices {
            Some(prices) => write!(f, ", prices {prices}"),
            None => Ok(()),
        }
    }
}

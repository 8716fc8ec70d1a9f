//! Where a figure comes from. Every result carries its label, so that a figure
//! from software emulation or simulation can never pass for a hardware one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What produced a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Real virtual machines.
    Lab,
    /// The simulator.
    Sim,
}

/// How a virtual machine's instructions were executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Hardware virtualization.
    Kvm,
    /// QEMU's software emulation, one host thread per vCPU: works everywhere.
    #[default]
    Tcg,
    /// QEMU's software emulation in virtual time: the host is simulated, and the same
    /// cell with the same seed gives the same bytes on every machine.
    Vt,
}

impl Accel {
    /// Every accelerator, by the name that files and options use.
    pub const ALL: [Accel; 3] = [Accel::Kvm, Accel::Tcg, Accel::Vt];

    /// The accelerator of this name.
    pub fn parse(name: &str) -> Option<Accel> {
        Accel::ALL.into_iter().find(|accel| accel.as_str() == name)
    }

    /// Whether the same seed gives the same run on every machine.
    pub fn is_deterministic(self) -> bool {
        self == Accel::Vt
    }

    /// Its name in files, options and labels.
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

/// The provenance of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Lab or simulator.
    pub source: Source,
    /// Accelerator of the outermost virtual machine; `None` in the simulator.
    pub accel: Option<Accel>,
    /// True when the subject ran under a real KVM inside an emulated host.
    pub nested: bool,
    /// The subject's kernel release (`uname -r`).
    pub kernel: String,
    /// The host: CPU model and kernel release.
    pub host: String,
    /// What exits cost, in virtual time: the price table's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// What kind of confidential VM the subject takes itself for, if it is one.
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

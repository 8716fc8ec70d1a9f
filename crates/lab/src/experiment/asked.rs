//! The accelerator that an experiment's file asks for.

use serde::Deserialize;
use unspin_model::Accel;

/// A value of the key `accel`.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Asked {
    Kvm,
    Tcg,
    Vt,
    /// KVM if it works, else tcg.
    Real,
}

impl Asked {
    /// Returns the accelerator, or `None` for the best one that works.
    pub(super) fn accel(self) -> Option<Accel> {
        match self {
            Asked::Kvm => Some(Accel::Kvm),
            Asked::Tcg => Some(Accel::Tcg),
            Asked::Vt => Some(Accel::Vt),
            Asked::Real => None,
        }
    }
}

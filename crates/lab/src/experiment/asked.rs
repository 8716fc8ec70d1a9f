//! The accelerator that a file asks for.

use serde::Deserialize;
use unspin_model::Accel;

/// What a file asks to be run by.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Asked {
    Kvm,
    Tcg,
    Vt,
    /// KVM where it works, else tcg.
    Real,
}

impl Asked {
    /// None is for what works.
    pub(super) fn accel(self) -> Option<Accel> {
        match self {
            Asked::Kvm => Some(Accel::Kvm),
            Asked::Tcg => Some(Accel::Tcg),
            Asked::Vt => Some(Accel::Vt),
            Asked::Real => None,
        }
    }
}

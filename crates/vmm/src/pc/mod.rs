//! The parts of a PC that are not in KVM: a serial port, a reset port, power management.

pub mod power;
pub mod serial;

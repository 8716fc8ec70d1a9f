//! The parts of a PC that KVM does not emulate: a serial port, a reset port, power management, a
//! clock.

pub mod clock;
pub mod power;
pub mod serial;

//! Tests of the VMM that need no KVM.

mod access;
mod block;
mod bounds;
mod cli;
mod conversions;
mod driver;
mod enforcement;
mod hostile;
mod igvm;
mod offered;
mod revocation;
mod sandbox;
mod serial;
mod transport;

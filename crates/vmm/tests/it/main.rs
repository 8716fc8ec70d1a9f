//! Tests of the VMM that need no KVM.

mod block;
mod bounds;
mod cli;
mod driver;
mod hostile;
mod igvm;
mod offered;
mod sandbox;
mod serial;
mod transport;

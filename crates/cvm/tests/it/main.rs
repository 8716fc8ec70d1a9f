//! The tests of this crate from outside, in one program.

mod build;
mod check;
mod common;
mod digests;
mod hostile;

//! Integration tests of this crate, in one program.

mod build;
mod check;
mod common;
mod digests;
mod hostile;

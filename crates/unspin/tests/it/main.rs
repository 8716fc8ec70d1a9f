//! Integration tests of this crate, in one program.

mod claims;
mod docs;
mod igvm;
mod inputs;
#[path = "../../../cvm/tests/it/common/kernel.rs"]
mod kernel;
mod man;
mod micro;
mod output;
mod prose;
mod record;
mod scripts;
mod tidy;

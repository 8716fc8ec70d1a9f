//! The kernels and QEMUs of the lab: fetched, verified, patched, built and cached.
//!
//! Each customer has a module: [`kernel`] and [`qemu`]. A result is a folder in the cache
//! that is named by its content and appears complete or not at all: work happens in a
//! staging folder beside it, which is renamed at the end. It stays as long as someone has the
//! right to use it ([`InUse`]).

mod apt;
mod cache;
mod command;
mod deb;
mod error;
pub mod kernel;
mod key;
mod overlay;
mod patch;
mod progress;
pub mod qemu;
mod shipped;
mod space;

pub use cache::{InUse, cache_dir};
pub use error::SourcesError;
pub use progress::Progress;

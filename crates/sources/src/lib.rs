//! The kernels and QEMUs of the lab: fetched, verified, patched, built and cached.
//!
//! [`kernel`] and [`qemu`] have a module each. A result is a folder in the cache, named by its
//! content. It appears there complete or not at all, because the work happens in a staging folder
//! that is renamed at the end. It stays as long as a process has the right to use it ([`InUse`]).

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

//! What the lab boots: fetched, verified, patched, built and cached.
//!
//! Each customer has a module: [`kernel`] and [`qemu`]. A result is a folder in the cache
//! that is named by its content and appears complete or not at all: work happens in a
//! staging folder beside it, which is renamed at the end.

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

pub use cache::cache_dir;
pub use error::SourcesError;
pub use progress::Progress;

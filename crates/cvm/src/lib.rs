//! IGVM files: what a loader puts into a confidential VM before its first instruction.
//!
//! [`image::Image`] is a file that was read. [`build`] makes one that starts Linux at the kernel's
//! 64-bit entry; [`measure`] computes what the hardware would measure while a loader loads it;
//! [`show`], [`diff`] and [`check`] look at files. Nothing here does I/O: bytes in, bytes out.
//!
//! The format is that of the crates `igvm` and `igvm_defs` 0.5, by Microsoft.

pub mod acpi;
pub mod boot_params;
pub mod build;
pub mod check;
pub mod cpu;
pub mod diff;
mod guard;
pub mod image;
pub mod kernel;
pub mod layout;
pub mod measure;
mod memory;
pub mod page_tables;
pub mod platform;
pub mod sev;
pub mod show;
pub mod snp;
pub mod tdx;
pub mod vcpu;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// An address or a mask in JSON: `"0x100000"`, because not all readers of JSON keep 64 bits.
fn as_hex<S: serde::Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:#x}"))
}

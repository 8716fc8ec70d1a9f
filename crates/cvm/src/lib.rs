//! IGVM files: the data that a loader puts into a confidential VM before its first instruction.
//!
//! [`image::Image`] is a parsed file. [`build`] makes a file that starts Linux at the kernel's
//! 64-bit entry. [`measure`] computes the digest that the hardware would measure while a loader
//! loads a file. [`show`], [`diff`] and [`check`] inspect files. Nothing here does I/O: bytes in,
//! bytes out.
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

/// Writes an address or a mask to JSON as `"0x100000"`, because not all readers of JSON keep 64
/// bits.
fn as_hex<S: serde::Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:#x}"))
}

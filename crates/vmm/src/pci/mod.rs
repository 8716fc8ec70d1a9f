//! A PCI bus with virtio devices, configured by ports 0xcf8 and 0xcfc, with interrupts by MSI-X.
//!
//! The DSDT of `unspin_cvm::acpi` describes that bus, so an IGVM file's guest finds it, too. The
//! ports reach 256 bytes of each function, which is enough for virtio, so MCFG is left out.

pub mod config;
pub mod host;
pub mod msix;
pub mod routes;
pub mod virtio;

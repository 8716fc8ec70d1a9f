//! A PCI bus with virtio devices, by configuration ports 0xcf8 and 0xcfc and by MSI-X.
//!
//! The DSDT of `unspin_cvm::acpi` describes that bus, so an IGVM file's guest finds it, too. There
//! is no MCFG: virtio needs only the 256 bytes that ports reach.

pub mod config;
pub mod host;
pub mod msix;
pub mod routes;
pub mod virtio;

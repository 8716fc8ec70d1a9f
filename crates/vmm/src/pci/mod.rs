//! A PCI bus with virtio devices, by configuration ports 0xcf8 and 0xcfc and by MSI-X.
//!
//! The DSDT of `unspin_cvm::acpi` describes that bus, so an IGVM file's guest finds it, too. The
//! ports reach 256 bytes of each function, which virtio needs, so MCFG is left out.

pub mod config;
pub mod host;
pub mod msix;
pub mod routes;
pub mod virtio;

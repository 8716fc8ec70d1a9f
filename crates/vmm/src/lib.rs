//! A small virtual machine monitor on Linux's KVM, for x86-64.
//!
//! It starts a kernel (bzImage) or a `native` IGVM file without firmware, and gives the guest a
//! serial port, ACPI's power-management registers and virtio devices on a PCI bus. [`vm::run`] is
//! all of it. The device models in [`virtio`] know memory and queues, and nothing about KVM.
//!
//! Everything that a guest writes is hostile: device models refuse it or ignore it, and neither
//! panic nor allocate by its sizes.

pub mod access;
pub mod cli;
pub mod config;
pub mod error;
pub mod es_emu;
pub mod ghcb;
pub mod load;
pub mod machine;
pub mod memory;
pub mod pc;
pub mod pci;
pub mod sandbox;
pub mod terminal;
pub mod vcpu;
pub mod virtio;
pub mod vm;

//! A small virtual machine monitor on Linux's KVM, for x86-64.
//!
//! This crate starts a kernel (bzImage) or a `native` IGVM file without firmware. The guest gets a
//! serial port, ACPI's power-management registers and virtio devices on a PCI bus. [`vm::run`] runs
//! a whole VM. The device models in [`virtio`] depend on memory and queues, and not on KVM.
//!
//! Everything that a guest writes is hostile. Device models refuse or ignore bad input. They
//! neither panic nor allocate memory by sizes that the guest chose.

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

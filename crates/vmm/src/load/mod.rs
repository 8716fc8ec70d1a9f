//! The loader, which takes files and fills the guest's memory and its vCPUs' registers.

pub mod igvm;

use std::fs;
use std::path::Path;

use ::igvm::snp_defs::SevVmsa;
use igvm_defs::IgvmNativeVpContextX64;
use unspin_cvm::acpi::Acpi;
use unspin_cvm::build::{self, Options};
use unspin_cvm::platform::Platform;
use unspin_cvm::vcpu;

use crate::config::{Config, Source};
use crate::error::VmmError;
use crate::memory::{self, Memory};

/// The initial registers of vCPUs.
#[derive(Debug)]
pub enum Registers {
    /// The first vCPU's registers. The other vCPUs start by INIT and SIPI.
    Native(Box<IgvmNativeVpContextX64>),
    /// The registers of all vCPUs.
    SevEs(Vec<Box<SevVmsa>>),
}

/// Fills the memory, and returns the registers.
pub fn load(config: &Config, memory: &Memory) -> Result<Registers, VmmError> {
    match &config.source {
        Source::Linux { kernel, initramfs, append } => {
            let kernel = read(kernel)?;
            let initramfs = initramfs.as_deref().map(read).transpose()?;
            let contents = build::contents(&Options {
                platform: Platform::Native,
                kernel: &kernel,
                initramfs: initramfs.as_deref(),
                append,
                memory_bytes: config.memory_bytes,
                vcpus: config.vcpus.into(),
                c_bit: None,
                acpi: Acpi::Pc,
            })?;
            for (gpa, bytes) in &contents.parts {
                memory::write(memory, *gpa, bytes)?;
            }
            Ok(Registers::Native(vcpu::native(contents.start)))
        }
        Source::Igvm(path) => igvm::load(path, &read(path)?, config, memory),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, VmmError> {
    fs::read(path).map_err(|source| VmmError::File { what: "read", path: path.into(), source })
}

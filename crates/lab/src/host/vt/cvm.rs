//! The IGVM file from which a confidential guest starts.

use std::fs;
use std::path::Path;

use unspin_cvm::acpi::Acpi;
use unspin_cvm::build::{Options, build};
use unspin_cvm::platform::Platform;
use unspin_model::class::chain;
use unspin_model::{FailureKind, Identity};
use unspin_wire::{Failure, VmSpec};

use super::args::{CVM_C_BIT, IGVM_FILE, kernel_params};

/// Writes the IGVM file to the run's folder, with the kernel, the initramfs and the command line.
pub fn write(vm: &VmSpec, folder: &Path) -> Result<(), Failure> {
    let file = file(vm, Some(&read(&vm.initramfs)?))?;
    let path = folder.join(IGVM_FILE);
    fs::write(&path, file).map_err(|error| unavailable(format!("{}: {error}", path.display())))
}

/// Returns the identity of the IGVM file without its initramfs: ACPI tables, page tables,
/// registers.
pub fn without_initramfs(vm: &VmSpec) -> Result<Identity, Failure> {
    Ok(Identity::of_bytes(&file(vm, None)?))
}

fn file(vm: &VmSpec, initramfs: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
    let options = Options {
        platform: Platform::SevEs,
        kernel: &read(&vm.kernel)?,
        initramfs,
        append: &kernel_params(vm),
        memory_bytes: vm.memory_mib << 20,
        vcpus: vm.vcpus,
        c_bit: Some(CVM_C_BIT),
        acpi: Acpi::Pc,
    };
    build(&options).map_err(|error| unavailable(chain(&error)))
}

fn read(path: &str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| unavailable(format!("{path}: {error}")))
}

fn unavailable(detail: impl ToString) -> Failure {
    Failure::new(FailureKind::Unavailable, detail.to_string())
}

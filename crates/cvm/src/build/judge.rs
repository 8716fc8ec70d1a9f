//! Checks whether a guest can be built, and places the initramfs.

use super::{BuildError, Options, VCPUS_MAX};
use crate::PAGE_BYTES;
use crate::kernel::Kernel;
use crate::layout::{self, LOW_MEMORY_END, MEMORY_BYTES_MAX};
use crate::platform::Platform;

/// The C-bit's possible positions: those of processors so far, and the ones between. They are above
/// all memory, and below the bits that page tables use for other purposes.
const C_BITS: std::ops::RangeInclusive<u8> = 47..=51;
/// The alignment of the initramfs.
const INITRAMFS_ALIGNMENT: u64 = 1 << 21;

/// Checks that the guest can be built. Returns the address of the initramfs, if there is one.
pub fn judge(options: &Options, kernel: &Kernel) -> Result<Option<u64>, BuildError> {
    judge_platform(options.platform, options.c_bit)?;
    if !(1..=VCPUS_MAX).contains(&options.vcpus) {
        return Err(BuildError::Vcpus(options.vcpus));
    }
    if options.append.contains('\0') {
        return Err(BuildError::Nul);
    }
    let bytes = options.append.len() as u64;
    let max = kernel.command_line_max.min(layout::COMMAND_LINE_BYTES_MAX - 1);
    if bytes > max {
        return Err(BuildError::CommandLine { bytes, max });
    }
    let odd = options.memory_bytes % INITRAMFS_ALIGNMENT != 0;
    if odd || options.memory_bytes > MEMORY_BYTES_MAX {
        return Err(BuildError::MemorySize);
    }
    place(options, kernel)
}

fn judge_platform(platform: Platform, c_bit: Option<u8>) -> Result<(), BuildError> {
    let refuse = |why| Err(BuildError::Platform { platform, why });
    match platform {
        Platform::Native | Platform::Sev | Platform::SevEs | Platform::Snp => {}
        Platform::Tdx => {
            return refuse(
                "a TDX guest starts at the reset vector and takes no other registers, so its \
                 file needs firmware; build for sev-es, snp, sev or native",
            );
        }
        Platform::Vsm => return refuse("unspin does not write Hyper-V's registers"),
        Platform::Cca => return refuse("it is a platform of Arm, and the kernel one of x86-64"),
    }
    match c_bit {
        None if platform.has_c_bit() => Err(BuildError::CBitNeeded(platform)),
        Some(_) if !platform.has_c_bit() => Err(BuildError::NoCBit(platform)),
        Some(bit) if !C_BITS.contains(&bit) => Err(BuildError::CBit(bit)),
        _ => Ok(()),
    }
}

/// Returns the address of the initramfs, after the memory that the kernel uses at first.
fn place(options: &Options, kernel: &Kernel) -> Result<Option<u64>, BuildError> {
    let address = kernel.address;
    let aligned = address % PAGE_BYTES == 0;
    if !aligned || !(layout::ACPI_END..LOW_MEMORY_END).contains(&address) {
        return Err(BuildError::KernelAddress { address });
    }
    let kernel_end = address + kernel.init_bytes.max(kernel.code.len() as u64);
    let initramfs = kernel_end.next_multiple_of(INITRAMFS_ALIGNMENT);
    let bytes = options.initramfs.map_or(0, |data| data.len() as u64);
    let end = if bytes == 0 { kernel_end } else { initramfs + bytes };
    let low_end = options.memory_bytes.min(LOW_MEMORY_END);
    if end > low_end {
        let (given, needed) = (low_end >> 20, end.div_ceil(1 << 20));
        return Err(BuildError::Memory { given, needed });
    }
    if bytes > 0 && end - 1 > kernel.initramfs_max {
        return Err(BuildError::Initramfs { end, max: kernel.initramfs_max });
    }
    Ok((bytes > 0).then_some(initramfs))
}

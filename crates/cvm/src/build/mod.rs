//! Builds a file that starts Linux at its 64-bit entry, without firmware.
//!
//! The guest finds boot_params, page tables, command line, ACPI tables, kernel and initramfs at the
//! addresses of [`crate::layout`]. All normal pages have data in the file, in the order of their
//! addresses, and the registers come last. So every loader measures the same, and the same inputs
//! make the same bytes.

mod guest;
mod judge;

use std::borrow::Cow;

use igvm::{
    Arch, IgvmDirectiveHeader, IgvmFile, IgvmInitializationHeader, IgvmPlatformHeader, IgvmRevision,
};
use igvm_defs::{IGVM_VHS_SUPPORTED_PLATFORM, SnpPolicy};
use unspin_model::class::{Class, Classified};

use crate::acpi::{self, Acpi};
use crate::boot_params::{self, Found};
use crate::guard::DATA_BYTES_MAX;
use crate::kernel::{ENTRY_64, Kernel, KernelError};
use crate::platform::Platform;
use crate::vcpu::Start;
use crate::{PAGE_BYTES, layout, page_tables, vcpu};

/// The compatibility mask of the file's only platform.
const MASK: u32 = 1;
/// The most vCPUs. Their local APICs fit into the area of ACPI tables.
pub const VCPUS_MAX: u32 = 4096;
/// The address of the `setup_data` list, which follows SNP's blob and points to it.
const SETUP_DATA: u64 = layout::SNP_BLOB + 0x100;

/// The inputs of a build.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The platform to build for.
    pub platform: Platform,
    /// A bzImage.
    pub kernel: &'a [u8],
    /// The initramfs, if there is one.
    pub initramfs: Option<&'a [u8]>,
    /// The kernel's command line.
    pub append: &'a str,
    /// Bytes of the guest's memory, a multiple of 2 MiB.
    pub memory_bytes: u64,
    /// Number of vCPUs in the ACPI tables.
    pub vcpus: u32,
    /// The bit of page table entries that marks a page as encrypted.
    pub c_bit: Option<u8>,
    /// The kind of ACPI tables.
    pub acpi: Acpi,
}

/// A reason why a file cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The platform cannot start such a guest.
    #[error("cannot build for {platform}: {why}")]
    Platform {
        /// The platform.
        platform: Platform,
        /// The reason.
        why: &'static str,
    },
    /// The kernel is not suitable.
    #[error("the kernel {0}")]
    Kernel(#[from] KernelError),
    /// The kernel's preferred address is below 1 MiB, or not below 3 GiB.
    #[error("the kernel's address {address:#x} is not between 1 MiB and 3 GiB")]
    KernelAddress {
        /// The address.
        address: u64,
    },
    /// The command line is too long.
    #[error("the command line has {bytes} bytes, more than the {max} that the kernel reads")]
    CommandLine {
        /// The command line's length in bytes.
        bytes: u64,
        /// The longest length that the kernel and the layout allow.
        max: u64,
    },
    /// The command line has a NUL, which would end it.
    #[error("the command line has a NUL in it")]
    Nul,
    /// The memory is too small.
    #[error("kernel and initramfs need {needed} MiB of memory below 3 GiB, and {given} are there")]
    Memory {
        /// The memory below 3 GiB, in MiB.
        given: u64,
        /// The memory that is needed below 3 GiB, in MiB.
        needed: u64,
    },
    /// The memory's size is not a multiple of 2 MiB, or too large.
    #[error("the memory is to be a multiple of 2 MiB, of at most 1 TiB")]
    MemorySize,
    /// The initramfs ends at an address that the kernel cannot read.
    #[error("the initramfs would end at {end:#x}, and this kernel reads to {max:#x} at most")]
    Initramfs {
        /// The end of the initramfs.
        end: u64,
        /// The last address that the kernel reads.
        max: u64,
    },
    /// The file would be too large for unspin to read again.
    #[error("the file would have more than 1 GiB of data")]
    Large,
    /// The number of vCPUs is 0 or too large.
    #[error("{0} vCPUs are not between 1 and {VCPUS_MAX}")]
    Vcpus(u32),
    /// No processor has its C-bit there.
    #[error("the C-bit {0} is not between 47 and 51; EPYC has 51 from Milan on, and 47 before")]
    CBit(u8),
    /// The options name a C-bit for a platform that encrypts nothing.
    #[error("{0} has no C-bit: leave --cbit out")]
    NoCBit(Platform),
    /// The options lack a C-bit.
    #[error("{0} needs a C-bit: name it with --cbit")]
    CBitNeeded(Platform),
    /// The igvm crate refuses the built file.
    #[error("the igvm crate refuses the file")]
    Igvm(#[from] igvm::Error),
}

impl Classified for BuildError {
    fn class(&self) -> Class {
        match self {
            BuildError::Kernel(_) | BuildError::Igvm(_) => Class::Failed,
            _ => Class::Usage,
        }
    }
}

/// A guest's memory contents when Linux starts, and its first vCPU's registers.
#[derive(Debug)]
pub struct Contents<'a> {
    /// Addresses with their bytes, in the order of addresses. The rest of the memory is zero.
    pub parts: Vec<(u64, Cow<'a, [u8]>)>,
    /// The first vCPU's registers, for [`vcpu::native`] and [`vcpu::vmsa`].
    pub start: Start,
}

/// Builds an IGVM file.
pub fn build(options: &Options) -> Result<Vec<u8>, BuildError> {
    let Contents { parts, start } = contents(options)?;
    let pages = parts.iter().map(|(_, bytes)| (bytes.len() as u64).div_ceil(PAGE_BYTES));
    // Each vCPU may have registers, and SNP has three pages of its own.
    let pages = pages.sum::<u64>() + u64::from(options.vcpus) + 3;
    if pages * PAGE_BYTES > DATA_BYTES_MAX {
        return Err(BuildError::Large);
    }
    let mut guest = guest::Guest::default();
    guest.require_memory(options.memory_bytes);
    let mut snp_pages = options.platform == Platform::Snp;
    for (gpa, bytes) in parts {
        if snp_pages && gpa > layout::SNP_BLOB {
            guest.add_snp_pages();
            snp_pages = false;
        }
        guest.add(gpa, &bytes);
    }
    guest.add_vcpu(options.platform, start);
    if has_further_start(options) {
        guest.add_further_vcpus(options.vcpus);
    }
    serialize(options.platform, guest.directives)
}

/// Prepares a guest's memory. The loader adds SNP's special pages, so they are not among the parts.
pub fn contents<'a>(options: &Options<'a>) -> Result<Contents<'a>, BuildError> {
    let kernel = Kernel::read(options.kernel)?;
    let initramfs = judge::judge(options, &kernel)?;
    let rsdp = (options.acpi != Acpi::None).then_some(layout::ACPI);
    let found = Found {
        memory_bytes: options.memory_bytes,
        rsdp,
        initramfs: initramfs.zip(options.initramfs).map(|(at, data)| (at, data.len() as u64)),
        setup_data: (options.platform == Platform::Snp).then_some(SETUP_DATA),
    };
    let own = Cow::<[u8]>::Owned;
    let mut parts = vec![
        (layout::GDT, own(vcpu::gdt())),
        (layout::BOOT_PARAMS, own(boot_params::page(&kernel, found))),
        (layout::PAGE_TABLES, own(page_tables::identity(layout::PAGE_TABLES, options.c_bit))),
        (layout::COMMAND_LINE, own([options.append.as_bytes(), &[0]].concat())),
    ];
    if has_further_start(options) {
        parts.push((layout::AP_START, own(vcpu::ap_page(layout::AP_START))));
    }
    if let Some(at) = rsdp {
        parts.push((at, own(acpi::tables(at, options.vcpus, options.acpi))));
    }
    parts.push((kernel.address, Cow::Borrowed(kernel.code)));
    if let (Some(at), Some(data)) = (initramfs, options.initramfs) {
        parts.push((at, Cow::Borrowed(data)));
    }
    let start = Start {
        rip: kernel.address + ENTRY_64,
        boot_params: layout::BOOT_PARAMS,
        cr3: layout::PAGE_TABLES | options.c_bit.map_or(0, |bit| 1 << bit),
        gdt: layout::GDT,
    };
    Ok(Contents { parts, start })
}

/// Returns whether the further vCPUs start by a jump table.
fn has_further_start(options: &Options) -> bool {
    options.platform == Platform::SevEs && options.vcpus > 1
}

fn serialize(
    platform: Platform,
    directives: Vec<IgvmDirectiveHeader>,
) -> Result<Vec<u8>, BuildError> {
    let supported = IgvmPlatformHeader::SupportedPlatform(IGVM_VHS_SUPPORTED_PLATFORM {
        compatibility_mask: MASK,
        highest_vtl: 0,
        platform_type: platform.kind(),
        platform_version: 1,
        shared_gpa_boundary: 0,
    });
    // Hyperthreads are allowed; migration and debugging are not.
    let policy = SnpPolicy::new().with_reserved_must_be_one(1).with_smt(1);
    let policy =
        IgvmInitializationHeader::GuestPolicy { policy: policy.into(), compatibility_mask: MASK };
    let policy = (platform == Platform::Snp).then_some(policy);
    // Version 2 of the format introduced registers for platforms that do not measure them.
    let revision = match platform {
        Platform::Native | Platform::Sev => {
            IgvmRevision::V2 { arch: Arch::X64, page_size: PAGE_BYTES as u32 }
        }
        _ => IgvmRevision::V1,
    };
    let policies = policy.into_iter().collect();
    let file = IgvmFile::new(revision, vec![supported], policies, directives)?;
    let mut bytes = Vec::new();
    file.serialize(&mut bytes)?;
    Ok(bytes)
}

//! IGVM files for the platform `native`, as `unspin igvm build --platform native` writes them.
//!
//! Parameters, which a loader would fill in, are refused. No file of `unspin igvm build` has any.

use std::collections::BTreeSet;
use std::path::Path;

use igvm::IgvmDirectiveHeader as Directive;
use igvm::snp_defs::SevVmsa;
use igvm_defs::{IgvmNativeVpContextX64, IgvmPageDataType};
use unspin_cvm::PAGE_BYTES;
use unspin_cvm::image::Image;
use unspin_cvm::layout::{HIGH_MEMORY, LOW_MEMORY_END};
use unspin_cvm::platform::Platform;

use super::Registers;
use crate::config::Config;
use crate::error::VmmError;
use crate::memory::{self, Memory};

/// A reason why this VM cannot start a file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IgvmError {
    /// The file is for confidential VMs only.
    #[error("is for {those}: unspin-vmm loads files for native; build one with --platform native")]
    NotNative {
        /// The file's platforms.
        those: String,
    },
    /// The file is not for SEV-ES.
    #[error("is not for sev-es: build one with --platform sev-es --cbit 47")]
    NotSevEs,
    /// The registers are not in the order of vCPUs.
    #[error("has registers of vCPU {found} where those of vCPU {next} come")]
    Order {
        /// The vCPU's number in the file.
        found: u16,
        /// The number that must come next.
        next: usize,
    },
    /// The file has registers for another number of vCPUs.
    #[error("has registers of {found} vCPUs, and --vcpus is {vcpus}")]
    Vcpus {
        /// The number of vCPUs in the file.
        found: usize,
        /// The number of vCPUs in the VM.
        vcpus: u8,
    },
    /// The file fills memory that the VM lacks.
    #[error("needs memory from {gpa:#x} to {end:#x}: give the VM more by --memory")]
    BeyondMemory {
        /// The first address.
        gpa: u64,
        /// The address after the last.
        end: u64,
    },
    /// The file fills addresses that are not memory, as a file with firmware does.
    #[error(
        "fills {gpa:#x} to {end:#x}, where a PC has its devices and firmware: unspin-vmm runs \
         kernels without firmware"
    )]
    AmongDevices {
        /// The first address.
        gpa: u64,
        /// The address after the last.
        end: u64,
    },
    /// The file fills a page twice.
    #[error("fills the page at {gpa:#x} twice")]
    Overlap {
        /// The page's address.
        gpa: u64,
    },
    /// A page of an odd size, or one that only firmware of a confidential VM can fill.
    #[error("has a page at {gpa:#x} that is not plain data of whole pages of 4 KiB")]
    Page {
        /// The page's address.
        gpa: u64,
    },
    /// The file has registers of a further vCPU.
    #[error("has registers of vCPU {0}: further vCPUs start by INIT and SIPI here")]
    FurtherVcpu(u16),
    /// The file has the first vCPU's registers twice.
    #[error("has the registers of its first vCPU twice")]
    RegistersTwice,
    /// The file has no registers, so the VM would need firmware at the reset vector.
    #[error("has no registers for its first vCPU")]
    NoRegisters,
    /// The file has a directive that this VMM does not support.
    #[error("has the directive {0}, which unspin-vmm does not support")]
    Directive(&'static str),
}

/// Loads a file into memory, and returns the registers.
pub fn load(
    path: &Path,
    bytes: &[u8],
    config: &Config,
    memory: &Memory,
) -> Result<Registers, VmmError> {
    let image =
        Image::read(bytes).map_err(|source| VmmError::Image { path: path.to_owned(), source })?;
    let refused = |source| VmmError::Igvm { path: path.to_owned(), source };
    let (pages, registers) = if config.es_emu {
        let plan = plan_sev_es(&image, config.memory_bytes, config.vcpus).map_err(refused)?;
        (plan.pages, Registers::SevEs(plan.registers))
    } else {
        let plan = plan(&image, config.memory_bytes).map_err(refused)?;
        (plan.pages, Registers::Native(plan.registers))
    };
    for (gpa, data) in pages {
        memory::write(memory, gpa, data)?;
    }
    Ok(registers)
}

/// The effect of a file on a VM.
#[derive(Debug)]
pub struct Plan<'a, R = Box<IgvmNativeVpContextX64>> {
    /// Addresses and the bytes to write there. Empty pages stay zero and are not listed.
    pub pages: Vec<(u64, &'a [u8])>,
    /// The registers of the first vCPU, or of all vCPUs of a file for SEV-ES.
    pub registers: R,
}

/// Checks every directive of a file before the VMM touches memory.
pub fn plan(image: &Image, memory_bytes: u64) -> Result<Plan<'_>, IgvmError> {
    let those = || image.platforms().map(|(platform, _)| platform.name()).collect::<Vec<_>>();
    let mask = image.mask(Platform::Native);
    let mask = mask.ok_or_else(|| IgvmError::NotNative { those: those().join(", ") })?;
    let mut registers = None;
    let pages = pages(image, mask, memory_bytes, |directive| {
        let Directive::X64NativeVpContext { vp_index, context, .. } = directive else {
            return Err(IgvmError::Directive(name(directive)));
        };
        match vp_index {
            0 if registers.replace(context.clone()).is_some() => Err(IgvmError::RegistersTwice),
            0 => Ok(()),
            _ => Err(IgvmError::FurtherVcpu(*vp_index)),
        }
    })?;
    Ok(Plan { pages, registers: registers.ok_or(IgvmError::NoRegisters)? })
}

/// Does the same for emulated SEV-ES, for which the file has registers of each vCPU.
pub fn plan_sev_es(
    image: &Image,
    memory_bytes: u64,
    vcpus: u8,
) -> Result<Plan<'_, Vec<Box<SevVmsa>>>, IgvmError> {
    let mask = image.mask(Platform::SevEs).ok_or(IgvmError::NotSevEs)?;
    let mut registers = Vec::new();
    let pages = pages(image, mask, memory_bytes, |directive| match directive {
        Directive::SnpVpContext { vp_index, vmsa, .. } => {
            let next = registers.len();
            registers.push(vmsa.clone());
            let found = *vp_index;
            let in_order = usize::from(found) == next;
            in_order.then_some(()).ok_or(IgvmError::Order { found, next })
        }
        other => Err(IgvmError::Directive(name(other))),
    })?;
    let found = registers.len();
    if found != usize::from(vcpus) {
        return Err(IgvmError::Vcpus { found, vcpus });
    }
    Ok(Plan { pages, registers })
}

/// Returns the pages of a file for `memory_bytes` of memory, and passes other directives to
/// `other`.
fn pages(
    image: &Image,
    mask: u32,
    memory_bytes: u64,
    mut other: impl FnMut(&Directive) -> Result<(), IgvmError>,
) -> Result<Vec<(u64, &[u8])>, IgvmError> {
    let (mut pages, mut filled) = (Vec::new(), BTreeSet::new());
    for (_, directive) in image.directives_of(mask) {
        match directive {
            Directive::RequiredMemory { gpa, number_of_bytes, .. } => {
                inside(*gpa, (*number_of_bytes).into(), memory_bytes)?;
            }
            Directive::PageData { gpa, flags, data_type, data, .. } => {
                let whole = data.len() as u64 % PAGE_BYTES == 0 && gpa % PAGE_BYTES == 0;
                if *data_type != IgvmPageDataType::NORMAL || !whole || flags.is_2mb_page() {
                    return Err(IgvmError::Page { gpa: *gpa });
                }
                let bytes = (data.len() as u64).max(PAGE_BYTES);
                inside(*gpa, bytes, memory_bytes)?;
                for page in (*gpa..gpa + bytes).step_by(PAGE_BYTES as usize) {
                    if !filled.insert(page) {
                        return Err(IgvmError::Overlap { gpa: page });
                    }
                }
                if !data.is_empty() {
                    pages.push((*gpa, &data[..]));
                }
            }
            directive => other(directive)?,
        }
    }
    Ok(pages)
}

/// Checks that a range is memory.
fn inside(gpa: u64, bytes: u64, memory_bytes: u64) -> Result<(), IgvmError> {
    let end = gpa.saturating_add(bytes);
    let low = end <= memory_bytes.min(LOW_MEMORY_END);
    let high_end = HIGH_MEMORY + memory_bytes.saturating_sub(LOW_MEMORY_END);
    let high = gpa >= HIGH_MEMORY && end <= high_end;
    match low || high {
        true => Ok(()),
        false if gpa < HIGH_MEMORY && end > LOW_MEMORY_END => {
            Err(IgvmError::AmongDevices { gpa, end })
        }
        false => Err(IgvmError::BeyondMemory { gpa, end }),
    }
}

/// Returns a directive's name in the specification.
fn name(directive: &Directive) -> &'static str {
    match directive {
        Directive::ParameterArea { .. } => "PARAMETER_AREA",
        Directive::ParameterInsert(_) => "PARAMETER_INSERT",
        Directive::VpCount(_) => "VP_COUNT_PARAMETER",
        Directive::MemoryMap(_) => "MEMORY_MAP",
        Directive::CommandLine(_) => "COMMAND_LINE",
        Directive::Madt(_) => "MADT",
        Directive::SnpVpContext { .. } => "VP_CONTEXT of SNP",
        Directive::X64VbsVpContext { .. } => "VP_CONTEXT of VBS",
        Directive::ErrorRange { .. } => "ERROR_RANGE",
        _ => "of another kind",
    }
}

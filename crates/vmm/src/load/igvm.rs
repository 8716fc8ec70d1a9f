//! IGVM files for the platform `native`, as `unspin igvm build --platform native` makes them.
//!
//! Parameters, which a loader fills in, are refused: no file of `unspin igvm build` has any.

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

/// A file that this VM cannot start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IgvmError {
    /// For confidential VMs only.
    #[error("is for {those}: unspin-vmm loads files for native; build one with --platform native")]
    NotNative {
        /// The file's platforms.
        those: String,
    },
    /// Not for SEV-ES.
    #[error("is not for sev-es: build one with --platform sev-es --cbit 47")]
    NotSevEs,
    /// Registers that are not in the order of vCPUs.
    #[error("has registers of vCPU {found} where those of vCPU {next} come")]
    Order {
        /// The vCPU's number in the file.
        found: u16,
        /// The number that comes next.
        next: usize,
    },
    /// Registers of another number of vCPUs.
    #[error("has registers of {found} vCPUs, and --vcpus is {vcpus}")]
    Vcpus {
        /// In the file.
        found: usize,
        /// In the VM.
        vcpus: u8,
    },
    /// The file fills memory that the VM lacks.
    #[error("needs memory from {gpa:#x} to {end:#x}: give the VM more by --memory")]
    BeyondMemory {
        /// First address.
        gpa: u64,
        /// The address behind the last.
        end: u64,
    },
    /// The file fills addresses that are not memory, as one with firmware does.
    #[error(
        "fills {gpa:#x} to {end:#x}, where a PC has its devices and firmware: unspin-vmm runs \
         kernels without firmware"
    )]
    AmongDevices {
        /// First address.
        gpa: u64,
        /// The address behind the last.
        end: u64,
    },
    /// The page is to be filled twice.
    #[error("fills the page at {gpa:#x} twice")]
    Overlap {
        /// Its address.
        gpa: u64,
    },
    /// A page that only firmware of a confidential VM can fill, or of an odd size.
    #[error("has a page at {gpa:#x} that is not plain data of whole pages of 4 KiB")]
    Page {
        /// Its address.
        gpa: u64,
    },
    /// The registers of a further vCPU.
    #[error("has registers of vCPU {0}: further vCPUs start by INIT and SIPI here")]
    FurtherVcpu(u16),
    /// Two sets of registers.
    #[error("has the registers of its first vCPU twice")]
    RegistersTwice,
    /// No registers: the VM would need firmware at the reset vector.
    #[error("has no registers for its first vCPU")]
    NoRegisters,
    /// Another directive.
    #[error("has the directive {0}, which unspin-vmm does not support")]
    Directive(&'static str),
}

/// Loads a file into memory, and returns registers.
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

/// What a file does to a VM.
#[derive(Debug)]
pub struct Plan<'a, R = Box<IgvmNativeVpContextX64>> {
    /// Addresses and their bytes. An empty page stays zero and is not here.
    pub pages: Vec<(u64, &'a [u8])>,
    /// Of the first vCPU, or of all that the file names.
    pub registers: R,
}

/// Looks at every directive before memory is touched.
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

/// The same for emulated SEV-ES, where each vCPU has registers in the file.
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

/// The pages of a file for memory of so many bytes; other directives go to `other`.
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

/// Whether a range is memory.
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

/// A directive as the specification names it.
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

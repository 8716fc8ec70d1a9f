//! IGVM files for the platform `native`, as `unspin igvm build --platform native` makes them.
//!
//! Parameters, which a loader fills in, are refused: no file of `unspin igvm build` has any.

use std::collections::BTreeSet;
use std::path::Path;

use igvm::IgvmDirectiveHeader as Directive;
use igvm_defs::{IgvmNativeVpContextX64, IgvmPageDataType};
use unspin_cvm::PAGE_BYTES;
use unspin_cvm::image::Image;
use unspin_cvm::layout::{HIGH_MEMORY, LOW_MEMORY_END};
use unspin_cvm::platform::Platform;

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
    /// The file fills memory that the VM lacks.
    #[error("needs memory from {gpa:#x} to {end:#x}: give the VM more by --memory")]
    BeyondMemory {
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

/// Loads a file into memory of so many bytes, and returns the first vCPU's registers.
pub fn load(
    path: &Path,
    bytes: &[u8],
    memory_bytes: u64,
    memory: &Memory,
) -> Result<Box<IgvmNativeVpContextX64>, VmmError> {
    let image =
        Image::read(bytes).map_err(|source| VmmError::Image { path: path.to_owned(), source })?;
    let refused = |source| VmmError::Igvm { path: path.to_owned(), source };
    let plan = plan(&image, memory_bytes).map_err(refused)?;
    for (gpa, data) in plan.pages {
        memory::write(memory, gpa, data)?;
    }
    Ok(plan.registers)
}

/// What a file does to a VM.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Addresses and their bytes. An empty page stays zero and is not here.
    pub pages: Vec<(u64, &'a [u8])>,
    /// Of the first vCPU.
    pub registers: Box<IgvmNativeVpContextX64>,
}

/// Looks at every directive before memory is touched.
pub fn plan(image: &Image, memory_bytes: u64) -> Result<Plan<'_>, IgvmError> {
    let Some(mask) = image.mask(Platform::Native) else {
        let those: Vec<_> = image.platforms().map(|(platform, _)| platform.name()).collect();
        return Err(IgvmError::NotNative { those: those.join(", ") });
    };
    let (mut pages, mut filled, mut registers) = (Vec::new(), BTreeSet::new(), None);
    for (_, directive) in image.directives_of(mask) {
        match directive {
            Directive::RequiredMemory { gpa, number_of_bytes, .. } => {
                inside(*gpa, (*number_of_bytes).into(), memory_bytes)?;
            }
            Directive::PageData { gpa, data_type, data, .. } => {
                let whole = data.len() as u64 % PAGE_BYTES == 0 && gpa % PAGE_BYTES == 0;
                if *data_type != IgvmPageDataType::NORMAL || !whole {
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
            Directive::X64NativeVpContext { vp_index: 0, context, .. } => {
                if registers.replace(context.clone()).is_some() {
                    return Err(IgvmError::RegistersTwice);
                }
            }
            Directive::X64NativeVpContext { vp_index, .. } => {
                return Err(IgvmError::FurtherVcpu(*vp_index));
            }
            other => return Err(IgvmError::Directive(name(other))),
        }
    }
    Ok(Plan { pages, registers: registers.ok_or(IgvmError::NoRegisters)? })
}

/// Whether a range is memory.
fn inside(gpa: u64, bytes: u64, memory_bytes: u64) -> Result<(), IgvmError> {
    let end = gpa.saturating_add(bytes);
    let low = end <= memory_bytes.min(LOW_MEMORY_END);
    let high_end = HIGH_MEMORY + memory_bytes.saturating_sub(LOW_MEMORY_END);
    let high = gpa >= HIGH_MEMORY && end <= high_end;
    if low || high { Ok(()) } else { Err(IgvmError::BeyondMemory { gpa, end }) }
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

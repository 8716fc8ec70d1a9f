//! The directives that fill a guest's memory and its registers.

use igvm::IgvmDirectiveHeader;
use igvm_defs::{IgvmPageDataFlags, IgvmPageDataType};

use super::{MASK, SETUP_DATA};
use crate::PAGE_BYTES;
use crate::layout;
use crate::measure::KVM_VMSA_GPA;
use crate::platform::Platform;
use crate::vcpu::{self, Start};

/// The most memory of one directive, because a loader must find it in one piece.
const REQUIRED_BYTES_MAX: u64 = 1 << 30;

/// The steps by which a loader prepares the guest.
#[derive(Default)]
pub struct Guest {
    /// The directives, in the order of execution.
    pub directives: Vec<IgvmDirectiveHeader>,
}

impl Guest {
    /// Requires the memory of the map.
    pub fn require_memory(&mut self, bytes: u64) {
        for range in layout::e820(bytes).iter().filter(|range| range.kind == layout::RAM) {
            for gpa in (range.start..range.end).step_by(REQUIRED_BYTES_MAX as usize) {
                self.directives.push(IgvmDirectiveHeader::RequiredMemory {
                    gpa,
                    compatibility_mask: MASK,
                    number_of_bytes: (range.end - gpa).min(REQUIRED_BYTES_MAX) as u32,
                    vtl2_protectable: false,
                });
            }
        }
    }

    /// Adds measured pages, and pads the last one with zeros.
    pub fn add(&mut self, gpa: u64, data: &[u8]) {
        let pages = data.chunks(PAGE_BYTES as usize).zip((gpa..).step_by(PAGE_BYTES as usize));
        for (chunk, gpa) in pages {
            let mut page = chunk.to_vec();
            page.resize(PAGE_BYTES as usize, 0);
            self.push(gpa, IgvmPageDataType::NORMAL, page);
        }
    }

    fn push(&mut self, gpa: u64, data_type: IgvmPageDataType, data: Vec<u8>) {
        self.directives.push(IgvmDirectiveHeader::PageData {
            gpa,
            compatibility_mask: MASK,
            flags: IgvmPageDataFlags::new(),
            data_type,
            data,
        });
    }

    /// Adds the pages of secrets and of CPUID, and the data by which Linux finds them. These data
    /// are `struct cc_blob_sev_info` (arch/x86/include/asm/sev.h), to which an entry of type
    /// SETUP_CC_BLOB in the list of `setup_data` points.
    pub fn add_snp_pages(&mut self) {
        let blob = [
            &b"AMDE\x01\0\0\0"[..],
            &layout::SNP_SECRETS.to_le_bytes(),
            &PAGE_BYTES.to_le_bytes(),
            &layout::SNP_CPUID.to_le_bytes(),
            &PAGE_BYTES.to_le_bytes(),
        ]
        .concat();
        // The next entry is 0 (none); type, bytes and value of this entry follow.
        let entry = [0u32, 0, 7, 4, layout::SNP_BLOB as u32].map(u32::to_le_bytes).concat();
        let mut page = blob;
        page.resize((SETUP_DATA - layout::SNP_BLOB) as usize, 0);
        page.extend(entry);
        self.add(layout::SNP_BLOB, &page);
        self.push(layout::SNP_SECRETS, IgvmPageDataType::SECRETS, vec![]);
        self.push(layout::SNP_CPUID, IgvmPageDataType::CPUID_DATA, vec![]);
    }

    /// Adds the registers of the first vCPU.
    pub fn add_vcpu(&mut self, platform: Platform, start: Start) {
        self.directives.push(match platform {
            Platform::Snp | Platform::SevEs => IgvmDirectiveHeader::SnpVpContext {
                gpa: KVM_VMSA_GPA,
                compatibility_mask: MASK,
                vp_index: 0,
                vmsa: vcpu::vmsa(start, platform == Platform::Snp),
            },
            _ => IgvmDirectiveHeader::X64NativeVpContext {
                compatibility_mask: MASK,
                vp_index: 0,
                context: vcpu::native(start),
            },
        });
    }

    /// Adds the registers of the further vCPUs of an SEV-ES guest, which nobody can set later.
    pub fn add_further_vcpus(&mut self, vcpus: u32) {
        let further = (1..vcpus as u16).map(|vp_index| IgvmDirectiveHeader::SnpVpContext {
            gpa: KVM_VMSA_GPA - u64::from(vp_index) * PAGE_BYTES,
            compatibility_mask: MASK,
            vp_index,
            vmsa: vcpu::ap_vmsa(layout::AP_START),
        });
        self.directives.extend(further);
    }
}

//! Files for tests.
#![allow(dead_code, reason = "not every test needs everything")]

pub mod kernel;

use igvm::snp_defs::SevVmsa;
use igvm::{
    IgvmDirectiveHeader as Directive, IgvmFile, IgvmInitializationHeader, IgvmPlatformHeader,
    IgvmRevision,
};
use igvm_defs::{
    IGVM_VHS_PARAMETER_INSERT, IGVM_VHS_SUPPORTED_PLATFORM, IgvmPageDataFlags, IgvmPageDataType,
    IgvmPlatformType,
};
use proptest::prelude::*;
use unspin_cvm::acpi::Acpi;
use unspin_cvm::build::{Options, build};
use unspin_cvm::platform::Platform;
use zerocopy::FromBytes;

/// The bits of SNP and TDX in the files of [`file`].
pub const SNP: u32 = 1;
pub const TDX: u32 = 2;

/// Returns a file for SNP and TDX with these directives.
pub fn file(directives: Vec<Directive>) -> IgvmFile {
    let platform = |compatibility_mask, platform_type| {
        IgvmPlatformHeader::SupportedPlatform(IGVM_VHS_SUPPORTED_PLATFORM {
            compatibility_mask,
            highest_vtl: 0,
            platform_type,
            platform_version: 1,
            shared_gpa_boundary: 0,
        })
    };
    let platforms =
        vec![platform(SNP, IgvmPlatformType::SEV_SNP), platform(TDX, IgvmPlatformType::TDX)];
    let policy =
        IgvmInitializationHeader::GuestPolicy { policy: 0x3_0000, compatibility_mask: SNP };
    IgvmFile::new(IgvmRevision::V1, platforms, vec![policy], directives).expect("valid headers")
}

pub fn serialized(file: &IgvmFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.serialize(&mut bytes).expect("valid headers");
    bytes
}

pub fn page(page: u64, masks: u32, kind: IgvmPageDataType, flags: u32, data: Vec<u8>) -> Directive {
    Directive::PageData {
        gpa: page * 4096,
        compatibility_mask: masks,
        flags: IgvmPageDataFlags::from_bits(flags),
        data_type: kind,
        data,
    }
}

pub fn vmsa(gpa: u64, fill: u8) -> Directive {
    let vmsa = SevVmsa::read_from_bytes(&[fill; 4096]).expect("any bytes are a VMSA");
    Directive::SnpVpContext { gpa, compatibility_mask: SNP, vp_index: 0, vmsa: Box::new(vmsa) }
}

/// Returns the end of each file: data, without which the igvm crate reads nothing.
pub fn last() -> Directive {
    page(0xf_0000, SNP | TDX, IgvmPageDataType::NORMAL, 0, vec![1; 4096])
}

/// Generates pages of all kinds, parameters and VMSAs.
pub fn directives() -> impl Strategy<Value = Vec<Directive>> {
    let masks = prop_oneof![Just(SNP), Just(TDX), Just(SNP | TDX)];
    let data = prop_oneof![
        Just(vec![]),
        any::<u8>().prop_map(|fill| vec![fill; 4096]),
        prop::collection::vec(any::<u8>(), 1..4096),
    ];
    let kind = prop_oneof![
        5 => Just(IgvmPageDataType::NORMAL),
        1 => Just(IgvmPageDataType::SECRETS),
        1 => Just(IgvmPageDataType::CPUID_DATA),
        1 => Just(IgvmPageDataType::CPUID_XF),
    ];
    // No flag, unmeasured, shared, or both.
    let flags = prop_oneof![4 => Just(0u32), 1 => Just(2), 1 => Just(4), 1 => Just(6)];
    let pages = (0u64..1 << 24, masks.clone(), kind, flags, data)
        .prop_map(|(at, masks, kind, flags, data)| vec![page(at, masks, kind, flags, data)]);
    let parameters = (0u64..1 << 24, masks, 0u64..4).prop_map(|(at, masks, pages)| {
        let (parameter_area_index, number_of_bytes) = (0, pages * 4096);
        let insert = IGVM_VHS_PARAMETER_INSERT {
            gpa: at * 4096,
            compatibility_mask: masks,
            parameter_area_index,
        };
        let area = Directive::ParameterArea {
            number_of_bytes,
            parameter_area_index,
            initial_data: vec![],
        };
        vec![area, Directive::ParameterInsert(insert)]
    });
    let vmsas = (0u64..1 << 24, any::<u8>()).prop_map(|(at, fill)| vec![vmsa(at * 4096, fill)]);
    let any = prop_oneof![8 => pages, 1 => parameters, 1 => vmsas];
    prop::collection::vec(any, 0..24).prop_map(|lists| {
        let mut all = lists.concat();
        number_areas(&mut all);
        all.push(last());
        all
    })
}

/// Numbers the parameter areas, because each needs a number of its own.
fn number_areas(directives: &mut [Directive]) {
    let mut next = 0;
    for directive in directives {
        match directive {
            Directive::ParameterArea { parameter_area_index, .. } => *parameter_area_index = next,
            Directive::ParameterInsert(insert) => {
                insert.parameter_area_index = next;
                next += 1;
            }
            _ => {}
        }
    }
}

pub const INITRAMFS: &[u8] = &[0x5a; 5000];

pub fn options(kernel: &[u8], platform: Platform) -> Options<'_> {
    Options {
        platform,
        kernel,
        initramfs: Some(INITRAMFS),
        append: "console=ttyS0 panic=-1",
        memory_bytes: 256 << 20,
        vcpus: 4,
        c_bit: platform.has_c_bit().then_some(51),
        acpi: Acpi::Reduced,
    }
}

/// Returns a file that starts the synthetic kernel.
pub fn built(platform: Platform) -> Vec<u8> {
    build(&options(&kernel::synthetic(), platform)).expect("it can be built")
}

/// Platforms that files can be built for.
pub const BUILT: [Platform; 4] = [Platform::Native, Platform::Sev, Platform::SevEs, Platform::Snp];

/// Corrects the checksum of the headers, so that a reader looks at changed headers.
pub fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let word = |bytes: &[u8], at: usize| -> Option<usize> {
        bytes.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().unwrap()) as usize)
    };
    let fixed = if word(&bytes, 4) == Some(2) { 32 } else { 24 };
    let (Some(start), Some(size)) = (word(&bytes, 8), word(&bytes, 12)) else { return bytes };
    if bytes.len() < fixed || bytes.get(start..start.saturating_add(size)).is_none() {
        return bytes;
    }
    bytes[20..24].fill(0);
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bytes[..fixed]);
    checksum.update(&bytes[start..start + size]);
    bytes[20..24].copy_from_slice(&checksum.finalize().to_le_bytes());
    bytes
}

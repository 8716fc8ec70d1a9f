//! Which IGVM files the loader accepts, and why it refuses others.

use igvm::{Arch, IgvmDirectiveHeader as Directive, IgvmFile, IgvmPlatformHeader, IgvmRevision};
use igvm_defs::{
    IGVM_VHS_SUPPORTED_PLATFORM, IgvmPageDataFlags, IgvmPageDataType, IgvmPlatformType,
};
use unspin_cvm::image::Image;
use unspin_cvm::vcpu::{Start, ap_vmsa, native, vmsa};
use unspin_vmm::load::igvm::{IgvmError, plan, plan_sev_es};

const MEMORY_BYTES: u64 = 16 << 20;

fn image(platform: IgvmPlatformType, directives: Vec<Directive>) -> Image {
    let supported = IgvmPlatformHeader::SupportedPlatform(IGVM_VHS_SUPPORTED_PLATFORM {
        compatibility_mask: 1,
        highest_vtl: 0,
        platform_type: platform,
        platform_version: 1,
        shared_gpa_boundary: 0,
    });
    let revision = IgvmRevision::V2 { arch: Arch::X64, page_size: 4096 };
    let file = IgvmFile::new(revision, vec![supported], vec![], directives).unwrap();
    let mut bytes = Vec::new();
    file.serialize(&mut bytes).unwrap();
    Image::read(&bytes).unwrap()
}

fn page(gpa: u64, data_type: IgvmPageDataType, data: &[u8]) -> Directive {
    let flags = IgvmPageDataFlags::new();
    Directive::PageData { gpa, compatibility_mask: 1, flags, data_type, data: data.to_vec() }
}

fn normal(gpa: u64) -> Directive {
    page(gpa, IgvmPageDataType::NORMAL, &[1; 4096])
}

fn registers(vp_index: u16) -> Directive {
    Directive::X64NativeVpContext { compatibility_mask: 1, vp_index, context: native(START) }
}

fn required(gpa: u64, number_of_bytes: u32) -> Directive {
    Directive::RequiredMemory {
        gpa,
        compatibility_mask: 1,
        number_of_bytes,
        vtl2_protectable: false,
    }
}

fn refused(directives: Vec<Directive>) -> IgvmError {
    plan(&image(IgvmPlatformType::NATIVE, directives), MEMORY_BYTES).unwrap_err()
}

const START: Start = Start { rip: 0x10_0000, boot_params: 0x7000, cr3: 0x9000, gdt: 0x6000 };

/// Returns the registers that SEV-ES saves.
fn saved(vp_index: u16) -> Directive {
    let vmsa = if vp_index == 0 { vmsa(START, false) } else { ap_vmsa(0x8_3000) };
    Directive::SnpVpContext { gpa: 0xffff_ffff_f000, compatibility_mask: 1, vp_index, vmsa }
}

#[test]
fn each_vcpu_of_a_file_for_sev_es_has_registers() {
    let image = |directives| image(IgvmPlatformType::SEV_ES, directives);
    let two = image(vec![normal(0x1000), saved(0), saved(1)]);
    let plan = plan_sev_es(&two, MEMORY_BYTES, 2).unwrap();
    assert_eq!(
        (plan.pages.len(), plan.registers[0].rip, plan.registers[1].rip),
        (1, START.rip, 16)
    );
    let refused = |image, vcpus| plan_sev_es(image, MEMORY_BYTES, vcpus).unwrap_err();
    assert_eq!(refused(&two, 3), IgvmError::Vcpus { found: 2, vcpus: 3 });
    let disordered = image(vec![saved(1), saved(0), normal(0x1000)]);
    assert!(matches!(refused(&disordered, 2), IgvmError::Order { found: 1, next: 0 }));
}

#[test]
fn memory_and_registers_are_loaded() {
    let empty = page(0x2000, IgvmPageDataType::NORMAL, &[]);
    let all = vec![required(0, 16 << 20), normal(0x1000), empty, registers(0)];
    let image = image(IgvmPlatformType::NATIVE, all);
    let plan = plan(&image, MEMORY_BYTES).unwrap();
    assert_eq!(plan.registers.rip, 0x10_0000);
    assert_eq!(plan.pages.first().map(|(gpa, bytes)| (*gpa, bytes.len())), Some((0x1000, 4096)));
}

#[test]
fn what_cannot_be_loaded_is_refused_with_the_reason() {
    let end = MEMORY_BYTES;
    assert_eq!(
        refused(vec![normal(end), registers(0)]),
        IgvmError::BeyondMemory { gpa: end, end: end + 4096 }
    );
    let more = refused(vec![required(0, 32 << 20), registers(0)]);
    assert_eq!(more, IgvmError::BeyondMemory { gpa: 0, end: 32 << 20 });
    let firmware = 0xffc0_0000;
    assert_eq!(
        refused(vec![normal(firmware), registers(0)]),
        IgvmError::AmongDevices { gpa: firmware, end: firmware + 4096 }
    );
    assert_eq!(refused(vec![normal(0)]), IgvmError::NoRegisters);
    let twice = vec![normal(0x3000), normal(0x3000), registers(0)];
    assert_eq!(refused(twice), IgvmError::Overlap { gpa: 0x3000 });
    let area = Directive::ParameterArea {
        number_of_bytes: 4096,
        parameter_area_index: 0,
        initial_data: vec![],
    };
    let parameters = vec![area, normal(0), registers(0)];
    assert_eq!(refused(parameters), IgvmError::Directive("PARAMETER_AREA"));
    assert_eq!(refused(vec![normal(0), registers(1)]), IgvmError::FurtherVcpu(1));
    let vsm = image(IgvmPlatformType::VSM_ISOLATION, vec![normal(0)]);
    let error = plan(&vsm, MEMORY_BYTES).unwrap_err();
    assert_eq!(error, IgvmError::NotNative { those: "vsm".into() });
}

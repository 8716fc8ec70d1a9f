//! Built files can be read by other programs, have no findings, and depend on inputs alone.

use crate::common::kernel::synthetic;
use crate::common::{BUILT, INITRAMFS, built, options};
use igvm::IgvmFile;
use unspin_cvm::acpi::Acpi;
use unspin_cvm::build::{BuildError, Options, build, contents};
use unspin_cvm::check::check;
use unspin_cvm::diff::differences;
use unspin_cvm::image::Image;
use unspin_cvm::layout;
use unspin_cvm::measure::{KVM_VMSA_GPA, Loader, measure};
use unspin_cvm::platform::Platform;
use unspin_cvm::show::summary;

#[test]
fn the_igvm_crate_reads_them_and_the_check_finds_nothing() {
    for platform in BUILT {
        let bytes = built(platform);
        IgvmFile::new_from_binary(&bytes, None).unwrap();
        let report = check(&Image::read(&bytes).unwrap());
        // QEMU on KVM takes the registers of the first vCPU only.
        let notes = usize::from(platform == Platform::SevEs);
        assert_eq!((report.errors, report.notes), (0, notes), "{platform}: {report:#?}");
    }
}

#[test]
fn the_same_inputs_make_the_same_bytes_and_all_loaders_the_same_digest() {
    for platform in BUILT {
        assert_eq!(built(platform), built(platform));
    }
    let image = Image::read(&built(Platform::Snp)).unwrap();
    let digest = |loader| measure(&image, Platform::Snp, loader).unwrap().digest;
    assert_eq!(digest(Loader::Kvm), digest(Loader::IgvmCrate));
}

#[test]
fn they_have_what_was_asked_for() {
    let kernel = synthetic();
    let image = Image::read(&build(&options(&kernel, Platform::SevEs)).unwrap()).unwrap();
    let summary = summary(&image);
    let [vcpu, further @ ..] = &summary.vcpus[..] else { panic!("{summary:?}") };
    assert_eq!((further.len(), further[0].get("cs_base")), (3, layout::AP_START));
    assert_eq!((vcpu.mode, vcpu.get("rip")), ("64-bit", 0x100_0200));
    assert_eq!(
        (vcpu.get("rsi"), vcpu.get("cr3")),
        (layout::BOOT_PARAMS, 1 << 51 | layout::PAGE_TABLES)
    );
    let initramfs = summary.ranges.iter().find(|range| range.start == 0x140_0000).unwrap();
    assert_eq!(initramfs.bytes, (INITRAMFS.len() as u64).next_multiple_of(4096));
    let required: u64 = summary
        .ranges
        .iter()
        .filter(|range| range.kind == "required")
        .map(|range| range.bytes)
        .sum();
    assert_eq!(required, (256 << 20) - 0x8_0000);
}

#[test]
fn each_option_changes_the_file_where_it_must() {
    let kernel = synthetic();
    let base = options(&kernel, Platform::SevEs);
    let image = |options: &Options| Image::read(&build(options).unwrap()).unwrap();
    let changed = |options: Options| {
        let found = differences(&image(&base), &image(&options));
        assert!(!found.same && !found.digests.is_empty());
        found.ranges.into_iter().map(|range| range.start).collect::<Vec<_>>()
    };
    assert_eq!(changed(Options { append: "x", ..base }), [layout::COMMAND_LINE]);
    // The fifth VMSA is below the others.
    let vmsas = KVM_VMSA_GPA - 4 * 4096;
    assert_eq!(changed(Options { vcpus: 5, ..base }), [layout::ACPI, vmsas]);
    assert_eq!(changed(Options { acpi: Acpi::Pc, ..base }), [layout::ACPI]);
    assert_eq!(changed(Options { memory_bytes: 1 << 30, ..base }), [layout::BOOT_PARAMS]);
    let fewer = changed(Options { initramfs: None, ..base });
    assert_eq!(fewer, [layout::BOOT_PARAMS, 0x140_0000]);
    assert_eq!(changed(Options { acpi: Acpi::None, ..base }), [layout::BOOT_PARAMS, layout::ACPI]);
    let bits = changed(Options { c_bit: Some(47), ..base });
    assert!(bits.contains(&layout::PAGE_TABLES), "{bits:x?}");
}

#[test]
fn what_cannot_be_built_is_refused_with_the_reason() {
    let kernel = synthetic();
    let base = options(&kernel, Platform::SevEs);
    let long = "x".repeat(2048);
    let refused = |options: Options| build(&options).unwrap_err();
    for (options, why) in [
        (Options { platform: Platform::Tdx, ..base }, "needs firmware"),
        (Options { platform: Platform::Vsm, ..base }, "Hyper-V"),
        (Options { platform: Platform::Native, ..base }, "leave --cbit out"),
        (Options { c_bit: None, ..base }, "name it with --cbit"),
        (Options { c_bit: Some(63), ..base }, "between 47 and 51"),
        (Options { append: &long, ..base }, "2048 bytes, more than the 2047"),
        (Options { append: "a\0b", ..base }, "NUL"),
        (Options { vcpus: 0, ..base }, "between 1 and"),
        (Options { memory_bytes: 16 << 20, ..base }, "need 21 MiB of memory below 3 GiB, and 16"),
        (Options { memory_bytes: (16 << 20) + 1, ..base }, "multiple of 2 MiB"),
        (Options { kernel: b"\x7fELF", ..base }, "is not a bzImage"),
    ] {
        let error = refused(options);
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut low = kernel.clone();
    low[0x258..0x260].copy_from_slice(&0x1000u64.to_le_bytes());
    let error = refused(Options { kernel: &low, ..base });
    assert!(matches!(error, BuildError::KernelAddress { address: 0x1000 }), "{error}");
    let mut near = kernel.clone();
    near[0x22c..0x230].copy_from_slice(&0x100_0000u32.to_le_bytes());
    let error = refused(Options { kernel: &near, ..base });
    assert!(matches!(error, BuildError::Initramfs { .. }), "{error}");
}

/// A file has a size limit. A guest that is loaded without a file does not.
#[test]
fn a_file_has_at_most_1_gib_and_a_guest_more() {
    let (kernel, initramfs) = (synthetic(), vec![0u8; 1 << 30]);
    let base = options(&kernel, Platform::SevEs);
    let large = Options { initramfs: Some(&initramfs), memory_bytes: 2 << 30, ..base };
    assert!(contents(&large).is_ok());
    assert!(matches!(build(&large), Err(BuildError::Large)));
    // The registers of so many vCPUs exceed the limit.
    let most = (1 << 30) - (8 << 20);
    let many = Options { initramfs: Some(&initramfs[..most]), vcpus: 4096, ..large };
    assert!(matches!(build(&many), Err(BuildError::Large)));
}

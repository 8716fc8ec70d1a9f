//! Digests agree with a second implementation, the igvm crate's, and cover all that they must.

use crate::common::{SNP, TDX, built, directives, file, page, serialized, vmsa};
use igvm::IgvmDirectiveHeader as Directive;
use igvm::measurement::{generate_snp_measurement, generate_tdx_measurement};
use igvm_defs::{IGVM_VHS_PARAMETER_INSERT, IgvmPageDataType};
use proptest::prelude::*;
use unspin_cvm::image::Image;
use unspin_cvm::measure::{Loader, MeasureError, measure};
use unspin_cvm::platform::Platform;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(bytes: &[u8], platform: Platform, loader: Loader) -> String {
    let image = Image::read(bytes).expect("a valid file");
    measure(&image, platform, loader).expect("a digest").digest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn two_implementations_agree(directives in directives()) {
        let file = file(directives);
        let bytes = serialized(&file);
        let theirs =
            generate_snp_measurement(file.initializations(), file.directives(), SNP).unwrap();
        prop_assert_eq!(digest(&bytes, Platform::Snp, Loader::IgvmCrate), hex(&theirs));
        let theirs = generate_tdx_measurement(file.directives(), TDX).unwrap();
        prop_assert_eq!(digest(&bytes, Platform::Tdx, Loader::Kvm), hex(&theirs));
    }
}

/// Checks each byte that a digest covers, in a file with one page of each kind.
#[test]
fn each_flipped_byte_that_is_measured_changes_the_digest() {
    let pages = |at: usize, value: u8| {
        let mut contents = vec![7; 4096];
        contents[at] ^= value;
        let normal = page(1, SNP | TDX, IgvmPageDataType::NORMAL, 0, contents.clone());
        let mut state = vmsa(0xffff_ffff_f000, 0);
        let Directive::SnpVpContext { vmsa, .. } = &mut state else { unreachable!() };
        zerocopy::IntoBytes::as_mut_bytes(vmsa.as_mut())[at] ^= value;
        let unmeasured = page(2, SNP | TDX, IgvmPageDataType::NORMAL, 2, contents);
        (normal, state, unmeasured)
    };
    let (normal, state, unmeasured) = pages(0, 0);
    let whole = |directives: Vec<Directive>| serialized(&file(directives));
    let base = whole(vec![normal.clone(), unmeasured.clone(), state.clone()]);
    let all = [
        (Platform::Snp, Loader::IgvmCrate),
        (Platform::Snp, Loader::Kvm),
        (Platform::Tdx, Loader::Kvm),
    ];
    let before = all.map(|(platform, loader)| digest(&base, platform, loader));
    for at in 0..4096 {
        let (other, other_state, other_unmeasured) = pages(at, 1 << (at % 8));
        let of_page = whole(vec![other, unmeasured.clone(), state.clone()]);
        let of_state = whole(vec![normal.clone(), unmeasured.clone(), other_state]);
        let of_unmeasured = whole(vec![normal.clone(), other_unmeasured, state.clone()]);
        for ((platform, loader), before) in all.iter().zip(&before) {
            assert_ne!(&digest(&of_page, *platform, *loader), before, "{at}");
            assert_eq!(&digest(&of_unmeasured, *platform, *loader), before, "{at}");
            let differs = &digest(&of_state, *platform, *loader) != before;
            assert_eq!(differs, *platform == Platform::Snp, "TDX measures no registers");
        }
    }
}

/// Checks the same for a built file, over the data in the file.
#[test]
fn each_page_of_a_built_file_is_measured() {
    for platform in [Platform::Snp, Platform::SevEs] {
        let bytes = built(platform);
        let before = digest(&bytes, platform, Loader::Kvm);
        let data = u32::from_le_bytes(bytes[8..12].try_into().unwrap())
            + u32::from_le_bytes(bytes[12..16].try_into().unwrap());
        for at in (data as usize..bytes.len()).step_by(509) {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert_ne!(digest(&other, platform, Loader::Kvm), before, "{platform} {at:#x}");
        }
    }
}

#[test]
fn addresses_kinds_and_order_are_measured() {
    let normal = |at| page(at, SNP | TDX, IgvmPageDataType::NORMAL, 0, vec![1; 4096]);
    let whole = |directives: Vec<Directive>| serialized(&file(directives));
    let (one, two) = (whole(vec![normal(1), normal(2)]), whole(vec![normal(2), normal(1)]));
    let three =
        whole(vec![normal(1), page(2, SNP | TDX, IgvmPageDataType::NORMAL, 2, vec![1; 4096])]);
    for (platform, loader) in [
        (Platform::Snp, Loader::Kvm),
        (Platform::Snp, Loader::IgvmCrate),
        (Platform::Tdx, Loader::Kvm),
    ] {
        let digests = [&one, &two, &three].map(|bytes| digest(bytes, platform, loader));
        assert!(digests[0] != digests[1] && digests[0] != digests[2], "{digests:?}");
    }
}

#[test]
fn loaders_differ_over_empty_pages_and_vmsas() {
    let normal = page(1, SNP, IgvmPageDataType::NORMAL, 0, vec![1; 4096]);
    let empty = page(2, SNP, IgvmPageDataType::NORMAL, 0, vec![]);
    let zeros = page(2, SNP, IgvmPageDataType::NORMAL, 0, vec![0; 4096]);
    let both = |directives: Vec<Directive>| {
        let bytes = serialized(&file(directives));
        Loader::ALL.map(|loader| digest(&bytes, Platform::Snp, loader))
    };
    let at_end = vmsa(0xffff_ffff_f000, 3);
    let [of_crate, on_kvm] = both(vec![normal.clone(), zeros, at_end.clone()]);
    assert_eq!(of_crate, on_kvm);
    let [of_empty, on_kvm_of_empty] = both(vec![normal.clone(), empty, at_end.clone()]);
    assert_eq!(of_empty, of_crate);
    assert_ne!(on_kvm_of_empty, on_kvm);
    let early = both(vec![at_end, normal.clone()]);
    assert_ne!(early[0], early[1]);
    let elsewhere = both(vec![normal, vmsa(0x5000, 3)]);
    assert_eq!(elsewhere[1], early[1]);
}

/// QEMU adds parameters at once, but a run of pages only when a page ends it.
#[test]
fn parameters_come_before_the_run_in_front_of_them_on_kvm() {
    let at = |at, fill| page(at, SNP, IgvmPageDataType::NORMAL, 0, vec![fill; 4096]);
    let area = || Directive::ParameterArea {
        number_of_bytes: 4096,
        parameter_area_index: 0,
        initial_data: vec![],
    };
    let insert = || {
        Directive::ParameterInsert(IGVM_VHS_PARAMETER_INSERT {
            gpa: 0x9000,
            compatibility_mask: SNP,
            parameter_area_index: 0,
        })
    };
    let both = |directives: Vec<Directive>| {
        let bytes = serialized(&file(directives));
        Loader::ALL.map(|loader| digest(&bytes, Platform::Snp, loader))
    };
    let vmsa = || vmsa(0xffff_ffff_f000, 3);
    let first = both(vec![area(), at(3, 1), insert(), at(4, 2), at(5, 3), vmsa()]);
    let before = both(vec![area(), insert(), at(3, 1), at(4, 2), at(5, 3), vmsa()]);
    assert_eq!(first[1], before[1], "an insert in front of the pages");
    assert_ne!(first[0], first[1], "in the file's order");
    // A gap ends the run of two, so only the last page waits.
    let behind = both(vec![area(), at(3, 1), at(4, 2), at(6, 3), insert(), vmsa()]);
    let between = both(vec![area(), at(3, 1), at(4, 2), insert(), at(6, 3), vmsa()]);
    assert_eq!(behind[1], between[0]);
    assert_ne!(behind[1], between[1], "there the run of two waits");
}

/// No page continues the page at the last address.
#[test]
fn addresses_end_at_64_bits() {
    let normal = |at| page(at, SNP, IgvmPageDataType::NORMAL, 0, vec![1; 4096]);
    let bytes = serialized(&file(vec![normal(u64::MAX >> 12), normal(0)]));
    let [of_crate, on_kvm] = Loader::ALL.map(|loader| digest(&bytes, Platform::Snp, loader));
    assert_eq!(of_crate, on_kvm);
}

#[test]
fn what_cannot_be_measured_is_said() {
    let image = Image::read(&built(Platform::Native)).unwrap();
    let error = measure(&image, Platform::Snp, Loader::Kvm).unwrap_err();
    assert!(matches!(&error, MeasureError::NotFor { those, .. } if those == &[Platform::Native]));
    let error = measure(&image, Platform::Native, Loader::Kvm).unwrap_err();
    assert!(matches!(error, MeasureError::Unmeasured(Platform::Native)), "{error}");
    let large = page(0x200, SNP, IgvmPageDataType::NORMAL, 1, vec![1; 4096]);
    let bytes = serialized(&file(vec![large, vmsa(0x5000, 1)]));
    let error = measure(&Image::read(&bytes).unwrap(), Platform::Snp, Loader::Kvm).unwrap_err();
    assert!(matches!(error, MeasureError::Large { directive: 0 }), "{error}");
}

//! The text about IGVM files.

#[path = "../../../cvm/tests/it/common/kernel.rs"]
mod kernel;

use unspin_cvm::acpi::Acpi;
use unspin_cvm::build::{Options, build};
use unspin_cvm::check::check;
use unspin_cvm::diff::differences;
use unspin_cvm::image::Image;
use unspin_cvm::platform::Platform;
use unspin_cvm::show::summary;
use unspin_report::igvm;

fn image(platform: Platform, append: &str) -> Image {
    let options = Options {
        platform,
        kernel: &kernel::synthetic(),
        initramfs: Some(&[7; 9000]),
        append,
        memory_bytes: 4 << 30,
        vcpus: 2,
        c_bit: Some(47),
        acpi: Acpi::Pc,
    };
    Image::read(&build(&options).expect("it can be built")).expect("it can be read")
}

#[test]
fn a_file_is_shown() {
    insta::assert_snapshot!(igvm::show(&summary(&image(Platform::Snp, "quiet"))));
}

#[test]
fn differences_are_shown() {
    let (es, snp) = (image(Platform::SevEs, "quiet"), image(Platform::Snp, "quiet"));
    assert_eq!(igvm::diff(&differences(&es, &es)), "The files make the same guest.\n");
    insta::assert_snapshot!("other_platform", igvm::diff(&differences(&es, &snp)));
    let debug = image(Platform::SevEs, "debug");
    insta::assert_snapshot!("other_command_line", igvm::diff(&differences(&es, &debug)));
}

/// A file of one page that many headers name, with nothing to start.
#[test]
fn findings_are_shown() {
    assert_eq!(igvm::check(&check(&image(Platform::Snp, ""))), "0 errors, 0 notes\n");
    let report = check(&Image::read(&repeated(102)).expect("it can be read"));
    let text = igvm::check(&report);
    let lines: Vec<&str> = text.lines().collect();
    insta::assert_snapshot!([&lines[..2], &lines[99..]].concat().join(
        "
"
    ));
}

/// Returns a file for SEV-ES with `count` headers of the page at 0x1000.
fn repeated(count: u32) -> Vec<u8> {
    let platform = [1u32, 16, 1, 0x1_0500, 0, 0].map(u32::to_le_bytes).concat();
    let start = 24 + platform.len() as u32 + 32 * count;
    let page = [0x302u32, 24, 0x1000, 0, 1, start, 0, 0].map(u32::to_le_bytes).concat();
    let headers = [platform, page.repeat(count as usize)].concat();
    let fixed = |checksum: u32| {
        let words = [1, 24, headers.len() as u32, start + 4096, checksum].map(u32::to_le_bytes);
        [&b"IGVM"[..], &words.concat()].concat()
    };
    let checksum = crc32fast::hash(&[fixed(0), headers.clone()].concat());
    [fixed(checksum), headers.clone(), vec![1; 4096]].concat()
}

//! Each rule of the check finds the mistake that it is for.

use crate::common::{SNP, TDX, built, file, last, page, serialized, vmsa};
use igvm::IgvmDirectiveHeader as Directive;
use igvm_defs::{IGVM_VHS_PARAMETER, IGVM_VHS_PARAMETER_INSERT, IgvmPageDataType};
use unspin_cvm::check::{Report, Severity, check};
use unspin_cvm::image::Image;
use unspin_cvm::platform::Platform;
use unspin_cvm::{PAGE_BYTES, layout};

fn report(bytes: &[u8]) -> Report {
    check(&Image::read(bytes).expect("a file that can be read"))
}

fn found(report: &Report, severity: Severity, what: &str) {
    let is_it = |finding: &&unspin_cvm::check::Finding| {
        finding.severity == severity && finding.what.contains(what)
    };
    assert!(report.findings.iter().any(|finding| is_it(&finding)), "{what}: {report:#?}");
}

fn normal(at: u64) -> Directive {
    page(at, SNP, IgvmPageDataType::NORMAL, 0, vec![1; 4096])
}

#[test]
fn pages_and_parameters() {
    let report = report(&serialized(&file(vec![
        normal(1),
        normal(1),
        normal(1 << 40),
        Directive::ParameterArea {
            number_of_bytes: 2 * PAGE_BYTES,
            parameter_area_index: 3,
            initial_data: vec![],
        },
        Directive::VpCount(IGVM_VHS_PARAMETER { parameter_area_index: 3, byte_offset: 8190 }),
        Directive::ParameterInsert(IGVM_VHS_PARAMETER_INSERT {
            gpa: 0,
            compatibility_mask: SNP,
            parameter_area_index: 3,
        }),
        page(0x200, SNP, IgvmPageDataType::NORMAL, 0, vec![]),
        last(),
    ])));
    found(&report, Severity::Error, "0x1000 to 0x2000 overlaps what directive 0 puts at 0x1000");
    found(&report, Severity::Error, "0x0 to 0x2000 overlaps");
    found(&report, Severity::Error, "beyond the 52 bits");
    found(&report, Severity::Error, "parameter of at least 4 bytes at 0x1ffe does not fit");
    found(&report, Severity::Error, "no registers (VP context), and no page at the reset vector");
    found(&report, Severity::Note, "depends on the loader");
}

#[test]
fn registers() {
    let state = |gpa| vmsa(gpa, 0);
    let report_of = |directives| report(&serialized(&file(directives)));
    let twice = report_of(vec![state(0x5000), state(0x6000), last()]);
    found(&twice, Severity::Error, "has its registers from directive 0 already");
    found(&twice, Severity::Error, "SVME is clear");
    found(&twice, Severity::Note, "KVM measures the VMSA at 0xfffffffff000, not at 0x5000");
    found(&twice, Severity::Note, "added after a VMSA");
    found(&twice, Severity::Note, "KVM sets CR4.MCE in a VMSA");
    // The vCPU starts in real mode at address 0.
    found(&twice, Severity::Error, "the page of the entry point, 0x0, is not in the file");
    let unmeasured = page(0, SNP, IgvmPageDataType::NORMAL, 2, vec![1; 4096]);
    let open = report_of(vec![unmeasured, last(), state(0xffff_ffff_f000)]);
    found(&open, Severity::Error, "is not measured: anybody can replace the code");
    let firmware =
        |flags| page(0xf_ffff, SNP | TDX, IgvmPageDataType::NORMAL, flags, vec![1; 4096]);
    assert_eq!(report_of(vec![firmware(0)]).errors, 0);
    found(&report_of(vec![firmware(2)]), Severity::Error, "reset vector is not measured");
    let nothing = report_of(vec![page(1, TDX, IgvmPageDataType::NORMAL, 2, vec![1; 4096])]);
    found(&nothing, Severity::Error, "nothing is measured");
    let large = report_of(vec![page(0x200, SNP, IgvmPageDataType::NORMAL, 1, vec![1; 4096])]);
    found(&large, Severity::Error, "a page of 2 MiB");
}

/// Returns the report of a built file with other bytes at an address.
fn changed(address: u64, bytes: &[u8]) -> Report {
    let whole = built(Platform::SevEs);
    let file = igvm::IgvmFile::new_from_binary(&whole, None).expect("valid");
    let mut directives = file.directives().to_vec();
    for directive in &mut directives {
        let Directive::PageData { gpa, data, .. } = directive else { continue };
        if *gpa == address & !(PAGE_BYTES - 1) {
            let at = (address % PAGE_BYTES) as usize;
            data[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
    let platforms = file.platforms().to_vec();
    let revision = igvm::IgvmRevision::V1;
    let file = igvm::IgvmFile::new(revision, platforms, vec![], directives).expect("valid");
    report(&serialized(&file))
}

#[test]
fn page_tables_and_linux() {
    for (address, bytes, what) in [
        (layout::PAGE_TABLES, &[0][..], "page table entry at 0x9000 is not present"),
        // The first entry points to a table that is not in the file, the second lacks the C-bit.
        (layout::PAGE_TABLES, &[3, 0, 0x70], "the page table at 0x700000 is not in the file"),
        (layout::PAGE_TABLES + 6, &[0], "without a C-bit"),
        (layout::BOOT_PARAMS + 0x236, &[0], "XLF_KERNEL_64 is not set"),
        (layout::COMMAND_LINE, &[b'x'; 4096], "longer than the 2047 bytes"),
        (layout::BOOT_PARAMS + 0x228, &[0, 0, 0xff], "command line at 0xff0000 is not in the file"),
        (layout::BOOT_PARAMS + 0x218, &[0, 0x10], "initramfs at 0x1401000 is not in the file from"),
        (layout::BOOT_PARAMS + 0x1e8, &[0], "has 0 entries"),
        (layout::BOOT_PARAMS + 0x2d0 + 60, &[0, 0, 0, 2], "holds the kernel's"),
        (layout::ACPI + 8, &[0xff], "no valid RSDP is there"),
    ] {
        found(&changed(address, bytes), Severity::Error, what);
    }
    assert_eq!(changed(0, &[]).errors, 0);
}

#[test]
fn a_hundred_findings_are_enough() {
    let pages = (0..300).map(|_| normal(1)).chain([last()]).collect();
    let report = report(&serialized(&file(pages)));
    assert!(report.errors >= 299 && report.findings.len() == 100, "{}", report.errors);
}

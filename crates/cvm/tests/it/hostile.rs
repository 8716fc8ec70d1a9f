//! No file makes this crate panic.

use crate::common::{BUILT, built, directives, file, page, serialized, vmsa, with_checksum};
use igvm_defs::IgvmPageDataType;
use proptest::prelude::*;
use proptest::sample::Index;
use unspin_cvm::check::{Report, check};
use unspin_cvm::diff::differences;
use unspin_cvm::image::{Image, ReadError};
use unspin_cvm::show::summary;

/// Applies every function to a file. The igvm crate must not panic either: [`Image::read`] would
/// catch the panic, but a guard would be missing.
fn survives(bytes: &[u8]) -> bool {
    match Image::read(bytes) {
        Ok(image) => {
            let _ = (summary(&image), check(&image));
            assert!(differences(&image, &image).same);
            true
        }
        Err(ReadError::Panicked) => panic!("the igvm crate panicked"),
        Err(error) => {
            assert!(Report::unreadable(&error).errors == 1 && !error.to_string().is_empty());
            false
        }
    }
}

/// A change to a file.
#[derive(Debug, Clone)]
enum Change {
    /// Flips a bit.
    Flip(Index, u8),
    /// Writes a number that often causes errors.
    Word(Index, u32),
    /// Cuts off the end.
    Cut(Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let telling = prop_oneof![
        Just(0u32),
        Just(1),
        Just(u32::MAX),
        Just(1 << 31),
        Just(0x7fff_ffff),
        0x100u32..0x110,
        0x301u32..0x315,
        any::<u32>(),
    ];
    let change = prop_oneof![
        4 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        8 => (any::<Index>(), telling).prop_map(|(at, word)| Change::Word(at, word)),
        1 => any::<Index>().prop_map(Change::Cut),
    ];
    prop::collection::vec(change, 1..6)
}

/// Applies changes to the headers, where most of them matter, or to the whole file.
fn changed(mut bytes: Vec<u8>, changes: &[Change], headers: usize) -> Vec<u8> {
    for change in changes {
        let end = headers.min(bytes.len());
        match change {
            _ if end < 4 => {}
            Change::Flip(at, bit) => bytes[at.index(end)] ^= 1 << bit,
            Change::Word(at, word) => {
                let at = at.index(end / 4) * 4;
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            Change::Cut(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
    bytes
}

/// Corrects the stated size, so that the reader continues after it.
fn with_size(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 20 {
        let size = bytes.len() as u32;
        bytes[16..20].copy_from_slice(&size.to_le_bytes());
    }
    bytes
}

// `PROPTEST_CASES=20000 cargo test -p unspin-cvm hostile::` searches longer.
proptest! {
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        survives(&bytes);
        let with_magic = [b"IGVM\x01\0\0\0\x18\0\0\0", &bytes[..]].concat();
        survives(&with_checksum(with_size(with_magic)));
    }

    #[test]
    fn changed_files(directives in directives(), changes in changes(), fix in any::<bool>()) {
        let whole = serialized(&file(directives));
        let bytes = changed(whole, &changes, 400);
        survives(&bytes);
        survives(&with_checksum(if fix { with_size(bytes) } else { bytes }));
    }

    #[test]
    fn changed_built_files(platform in 0usize..4, changes in changes(), headers in any::<bool>()) {
        let whole = built(BUILT[platform]);
        let end = if headers { 2000 } else { whole.len() };
        survives(&with_checksum(with_size(changed(whole, &changes, end))));
    }
}

#[test]
fn every_truncation() {
    let whole = serialized(&file(vec![
        page(1, 3, IgvmPageDataType::NORMAL, 0, vec![1; 4096]),
        vmsa(0x2000, 1),
    ]));
    assert!(survives(&whole));
    for bytes in 0..whole.len() {
        assert!(!survives(&whole[..bytes]));
        survives(&with_checksum(with_size(whole[..bytes].to_vec())));
    }
}

/// Returns a file of raw headers, with a page of data after them.
fn raw(headers: &[(u32, &[u8])]) -> Vec<u8> {
    let mut section = Vec::new();
    for (kind, body) in headers {
        section.extend(kind.to_le_bytes());
        section.extend((body.len() as u32).to_le_bytes());
        section.extend(*body);
        section.resize(section.len().next_multiple_of(8), 0);
    }
    let total = 24 + section.len() + 4096;
    let fixed = [1u32, 24, section.len() as u32, total as u32, 0].map(u32::to_le_bytes).concat();
    with_checksum([&b"IGVM"[..], &fixed, &section, &[0; 4096]].concat())
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns a platform header with mask 1 and this type.
fn platform(kind: u8) -> Vec<u8> {
    vec![1, 0, 0, 0, 0, kind, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn refused(bytes: &[u8], why: &str) {
    match Image::read(bytes) {
        Err(ReadError::Panicked) => panic!("the igvm crate panicked"),
        Err(error) => assert!(error.to_string().contains(why), "{error}"),
        Ok(_) => panic!("it was read, in spite of: {why}"),
    }
}

/// These files make igvm 0.5.0 panic, read without end, or need all memory.
#[test]
fn what_the_igvm_crate_does_not_survive_is_refused() {
    let snp = platform(2);
    // Mask, VP, VTL, flags; alignment, address, bytes, lowest and highest address.
    let region = |alignment, bytes| words(&[1, alignment, 0, bytes, 0, 0]);
    refused(&raw(&[(1, &snp), (0x102, &region(0, 4096))]), "alignment is 0");
    refused(&raw(&[(1, &snp), (0x102, &region(4096, 0))]), "empty");
    refused(&raw(&[(1, &snp), (0x103, &words(&[1, !4095, 8192, 0]))]), "beyond all memory");
    // The offset is none, points into the headers, and then points beyond the end.
    let context = |offset: u64| [words(&[0, 1 | offset << 32]), vec![0; 4]].concat();
    for offset in [0, 8, 0xffff_ffff] {
        refused(&raw(&[(1, &snp), (0x304, &context(offset))]), "not in the file's data");
    }
    refused(&raw(&[(1, &snp), (0x302, &words(&[0, 1 | 8 << 32, 0]))]), "not in the file's data");
    let area = |bytes: u64| words(&[bytes, 0]);
    refused(&raw(&[(1, &snp), (0x301, &area(!4095))]), "more than 1 GiB");
    let two = [area(1 << 29), words(&[(1 << 29) + 4096, 1])];
    refused(&raw(&[(1, &snp), (0x301, &two[0]), (0x301, &two[1])]), "more than 1 GiB");
    // The igvm crate prints types that it does not know.
    refused(&raw(&[(1, &snp), (0x777, &[])]), "does not know this type");
    refused(&raw(&[(1, &snp), (0x302, &[0; 8])]), "too short");
    refused(&raw(&[(1, &snp), (0x302, &[0; 64])]), "too long");
}

/// Registers of two VTLs, or of another VP than 0, violate assertions in igvm 0.5.0.
#[test]
fn registers_of_vbs_are_those_of_one_vtl() {
    let vsm = platform(1);
    let file = |vp: u32, vtl: u8| {
        let data = 24 + 24 + 32;
        let context = [words(&[0, 1 | data << 32]), vp.to_le_bytes().to_vec()].concat();
        let mut bytes = raw(&[(1, &vsm), (0x304, &context)]);
        let at = data as usize;
        bytes[at] = 2;
        // The registers are RIP and RSP.
        bytes[at + 4..at + 9].copy_from_slice(&[0, 0x10, 0, 2, 0]);
        bytes[at + 36..at + 41].copy_from_slice(&[vtl, 0x04, 0, 2, 0]);
        bytes
    };
    assert!(survives(&file(0, 0)));
    refused(&file(0, 2), "one VTL");
    refused(&file(1, 0), "VP 0");
}

/// Each of these contexts has no registers for one platform, and is a page for the other one.
#[test]
fn platforms_of_one_mask_do_not_hide_what_contexts_need() {
    let (vsm, snp, contexts) = (platform(1), platform(2), (1u64 << 30) / 4096 + 1);
    let data = 24 + 2 * 24 + 32 * contexts;
    let context = [words(&[0, 1 | data << 32]), vec![0; 4]].concat();
    let mut headers: Vec<(u32, &[u8])> = vec![(1, &vsm), (1, &snp)];
    headers.extend((0..contexts).map(|_| (0x304, &context[..])));
    refused(&raw(&headers), "more than 1 GiB");
}

/// Future headers and the version string do not prevent reading a file.
#[test]
fn headers_that_may_be_passed_over_are() {
    let page = words(&[0x1000, 1, 0]);
    let plain = raw(&[(1, &platform(2)), (0x101, &words(&[0x3_0000, 1])), (0x302, &page)]);
    let more = raw(&[
        (1, &platform(2)),
        (0x101, &words(&[0x3_0000, 1])),
        (0x107, b"version 1"),
        (0x8000_0999, &[1, 2, 3]),
        (0x302, &page),
    ]);
    let (plain, more) = (Image::read(&plain).unwrap(), Image::read(&more).unwrap());
    assert_eq!(plain.directives(), more.directives());
    assert_eq!(more.skipped().map(|(_, kind)| kind).collect::<Vec<_>>(), [0x107, 0x8000_0999]);
    assert_eq!(more.offset(0), plain.offset(0).map(|offset| offset + 24 + 16));
    let mut damaged = raw(&[(1, &platform(2)), (0x8000_0999, &[1, 2, 3])]);
    damaged[24] ^= 2;
    refused(&damaged, "checksum");
}

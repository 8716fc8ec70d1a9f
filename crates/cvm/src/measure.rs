//! The digest that the hardware measures while a loader loads a file.
//!
//! **One file has several correct SNP digests.** Loaders differ in how they add pages, and the
//! firmware hashes how each page is added. So a digest always names its [`Loader`]:
//!
//! | | `igvm-crate` | `kvm` |
//! |---|---|---|
//! | who | the igvm crate's `measurement` module | QEMU on KVM |
//! | an empty page | a normal page of zeros | a zero page, whose contents are not hashed |
//! | a VMSA | in the file's order, at its address there | after all pages, at 0xfffffffff000 |
//! | parameters | in the file's order | before the run of pages in front of them |
//! | a shared page | not added | added like any other |
//!
//! cloud-hypervisor on KVM differs from `igvm-crate` in the first two rows; we do not know whether
//! it differs in the others. On MSHV, it sorts pages by address, which no profile here does. A file
//! has a single digest if it has no empty pages, parameters or shared pages, and ends with its only
//! VMSA at 0xfffffffff000. [`crate::build`] makes such files.

use igvm::IgvmDirectiveHeader as Directive;
use igvm_defs::{IgvmPageDataFlags, IgvmPageDataType};
use serde::Serialize;
use zerocopy::IntoBytes;

use crate::image::Image;
use crate::platform::Platform;
use crate::snp::PageType;
use crate::{PAGE_BYTES, sev, snp, tdx};

/// The address at which KVM places VMSAs, whatever the file says: all ones, cut to 48 bits and a
/// page (`snp_launch_update_vmsa` in arch/x86/kvm/svm/sev.c, since Linux 6.11).
pub const KVM_VMSA_GPA: u64 = 0xffff_ffff_f000;

/// The program that loads the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loader {
    /// The igvm crate, as its `measurement` module computes digests.
    IgvmCrate,
    /// QEMU on KVM.
    Kvm,
}

impl Loader {
    /// All loaders.
    pub const ALL: [Loader; 2] = [Loader::IgvmCrate, Loader::Kvm];

    /// Returns the name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Loader::IgvmCrate => "igvm-crate",
            Loader::Kvm => "kvm",
        }
    }
}

/// A reason why a digest cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The file is for other platforms.
    #[error("the file is not for {platform}, but for {}: choose with --platform", list(.those))]
    NotFor {
        /// The requested platform.
        platform: Platform,
        /// The file's platforms.
        those: Vec<Platform>,
    },
    /// This crate does not know how the platform's digest is computed.
    #[error("unspin computes no digest of {0}: only of snp, tdx, sev and sev-es")]
    Unmeasured(Platform),
    /// The file has large pages.
    #[error("directive {directive} is a page of 2 MiB: unspin measures files of 4 KiB pages only")]
    Large {
        /// The directive's index.
        directive: usize,
    },
}

/// Lists names, separated by commas.
fn list(platforms: &[Platform]) -> String {
    platforms.iter().map(|platform| platform.name()).collect::<Vec<_>>().join(", ")
}

/// A digest, as `unspin igvm measure --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Measurement {
    /// The platform.
    pub platform: Platform,
    /// The loader of the file; `null` if all loaders measure the same.
    pub loader: Option<Loader>,
    /// The digest's name: `SNP launch digest`, `MRTD`, `SEV launch digest` or `SEV-ES launch
    /// digest`.
    pub what: &'static str,
    /// The digest in hexadecimal digits.
    pub digest: String,
    /// Pages whose contents the digest covers, including VMSAs.
    pub measured_pages: u64,
    /// Pages of which the digest covers at most the address.
    pub unmeasured_pages: u64,
}

/// A page as a loader adds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    pub gpa: u64,
    pub kind: PageType,
    /// Whether the file says that the page's contents are measured. Special pages say so, too.
    pub measured: bool,
    /// Whether the guest shares the page with the host.
    shared: bool,
    /// For a page with a directive of its own: the directive's index, and its mask, flags and type.
    own: Option<(usize, [u32; 3])>,
    /// The page's data, or `None` if the file has none.
    data: Option<&'a [u8]>,
}

impl Page<'_> {
    /// The page that parameters are inserted into.
    const EMPTY: Page<'static> = Page {
        gpa: 0,
        kind: PageType::Unmeasured,
        measured: false,
        shared: false,
        own: None,
        data: None,
    };

    /// Returns whether the file has data for the page.
    pub fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Returns whether the guest shares the page with the host.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns whether QEMU adds the page in one piece with the page before it
    /// (`qigvm_process_mem_page` in its backends/igvm.c).
    fn continues(&self, before: &Page) -> bool {
        let (Some((index, own)), Some((index_before, own_before))) = (self.own, before.own) else {
            return false;
        };
        index == index_before + 1
            && own == own_before
            && before.gpa.checked_add(PAGE_BYTES) == Some(self.gpa)
            && self.has_data() == before.has_data()
    }

    /// Returns the 4096 bytes of the page.
    pub fn contents(&self) -> &[u8] {
        self.data.unwrap_or(&ZEROS)
    }
}

static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// Computes the digest of a file. `loader` matters for SNP only.
pub fn measure(
    image: &Image,
    platform: Platform,
    loader: Loader,
) -> Result<Measurement, MeasureError> {
    let takes_shared = platform == Platform::Snp && loader == Loader::Kvm;
    let mut pages = pages(image, platform)?;
    pages.retain(|page| takes_shared || !page.shared);
    let is_measured = |page: &&Page| matches!(page.kind, PageType::Normal | PageType::Vmsa);
    let measured_pages = pages.iter().filter(is_measured).count() as u64;
    let (what, digest) = match platform {
        Platform::Snp => ("SNP launch digest", hex(&snp_digest(&pages, loader))),
        Platform::Tdx => ("MRTD", hex(&mrtd(&pages))),
        Platform::Sev => ("SEV launch digest", hex(&sev_digest(&pages))),
        Platform::SevEs => ("SEV-ES launch digest", hex(&sev_digest(&pages))),
        _ => return Err(MeasureError::Unmeasured(platform)),
    };
    Ok(Measurement {
        platform,
        loader: (platform == Platform::Snp).then_some(loader),
        what,
        digest,
        measured_pages,
        unmeasured_pages: pages.len() as u64 - measured_pages,
    })
}

/// Returns the pages for a platform, in the file's order.
pub(crate) fn pages(image: &Image, platform: Platform) -> Result<Vec<Page<'_>>, MeasureError> {
    let those = || image.platforms().map(|(platform, _)| platform).collect();
    let mask =
        image.mask(platform).ok_or_else(|| MeasureError::NotFor { platform, those: those() })?;
    let mut areas = std::collections::HashMap::new();
    let mut pages = Vec::new();
    for (index, directive) in image.directives_of(mask) {
        match directive {
            Directive::PageData { flags, .. } if flags.is_2mb_page() => {
                return Err(MeasureError::Large { directive: index });
            }
            Directive::PageData { gpa, compatibility_mask, flags, data_type, data } => {
                let (kind, measured) = (page_type(*flags, *data_type), !flags.unmeasured());
                let data = Some(data.as_slice()).filter(|data| !data.is_empty());
                let own = [*compatibility_mask, (*flags).into(), data_type.0.into()];
                let (shared, own) = (flags.shared(), Some((index, own)));
                pages.push(Page { gpa: *gpa, kind, measured, shared, own, data });
            }
            Directive::ParameterArea { number_of_bytes, parameter_area_index, .. } => {
                areas.insert(*parameter_area_index, *number_of_bytes);
            }
            Directive::ParameterInsert(insert) => {
                let bytes = areas.get(&insert.parameter_area_index).copied().unwrap_or(0);
                let gpas = (insert.gpa..insert.gpa + bytes).step_by(PAGE_BYTES as usize);
                let of = |gpa| Page { gpa, ..Page::EMPTY };
                pages.extend(gpas.map(of));
            }
            Directive::SnpVpContext { gpa, vmsa, .. } => {
                let (kind, data) = (PageType::Vmsa, Some(vmsa.as_bytes()));
                pages.push(Page { gpa: *gpa, kind, measured: true, data, ..Page::EMPTY });
            }
            _ => {}
        }
    }
    Ok(pages)
}

fn page_type(flags: IgvmPageDataFlags, kind: IgvmPageDataType) -> PageType {
    match kind {
        IgvmPageDataType::SECRETS => PageType::Secrets,
        IgvmPageDataType::CPUID_DATA | IgvmPageDataType::CPUID_XF => PageType::Cpuid,
        _ if flags.unmeasured() => PageType::Unmeasured,
        _ => PageType::Normal,
    }
}

fn snp_digest(pages: &[Page], loader: Loader) -> [u8; snp::DIGEST_BYTES] {
    let mut digest = snp::LaunchDigest::default();
    let is_vmsa = |page: &&Page| page.kind == PageType::Vmsa;
    match loader {
        Loader::IgvmCrate => {
            pages.iter().for_each(|page| digest.add(page.kind, page.gpa, page.contents()));
        }
        Loader::Kvm => {
            let mut add = |page: &Page| digest.add(kind_on_kvm(page), page.gpa, page.contents());
            // QEMU holds a run back until a page ends it, but adds parameters at once.
            let mut run: Vec<&Page> = Vec::new();
            for page in pages.iter().filter(|page| !is_vmsa(page)) {
                if page.own.is_none() {
                    add(page);
                    continue;
                }
                if run.last().is_some_and(|last| !page.continues(last)) {
                    run.drain(..).for_each(&mut add);
                }
                run.push(page);
            }
            run.into_iter().for_each(add);
            for vmsa in pages.iter().filter(is_vmsa) {
                digest.add(vmsa.kind, KVM_VMSA_GPA, vmsa.contents());
            }
        }
    }
    digest.value()
}

/// Returns the page's type on KVM. Zeros in the file are a normal page; the firmware clears a page
/// without data.
fn kind_on_kvm(page: &Page) -> PageType {
    match page.kind {
        PageType::Normal if page.data.is_none() => PageType::Zero,
        kind => kind,
    }
}

/// Computes the MRTD. All pages are added; the contents of unmeasured pages do not extend it.
fn mrtd(pages: &[Page]) -> [u8; tdx::DIGEST_BYTES] {
    let mut mrtd = tdx::Mrtd::default();
    for page in pages.iter().filter(|page| page.kind != PageType::Vmsa) {
        mrtd.add(page.gpa);
        if page.measured {
            mrtd.extend(page.gpa, page.contents());
        }
    }
    mrtd.value()
}

/// Computes the digest of SEV and SEV-ES. It covers the encrypted pages. Unmeasured pages stay
/// unencrypted, so they are omitted. The firmware takes VMSAs after all memory.
fn sev_digest(pages: &[Page]) -> [u8; sev::DIGEST_BYTES] {
    let mut digest = sev::LaunchDigest::default();
    for kind in [PageType::Normal, PageType::Vmsa] {
        pages.iter().filter(|page| page.kind == kind).for_each(|page| digest.add(page.contents()));
    }
    digest.value()
}

/// Returns hexadecimal digits, two for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

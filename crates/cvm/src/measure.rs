//! What the hardware measures while a loader loads a file.
//!
//! **One file has several correct SNP digests**, because loaders differ in how they add pages, and
//! the firmware hashes how a page is added. So the [`Loader`] is always named:
//!
//! | | `igvm-crate` | `kvm` |
//! |---|---|---|
//! | who | the igvm crate's `measurement` module | QEMU on KVM |
//! | an empty page | a normal page of zeros | a zero page, whose contents are not hashed |
//! | a VMSA | in the file's order, at its address there | after all pages, at 0xfffffffff000 |
//! | parameters | in the file's order | before the run of pages in front of them |
//! | a shared page | not added | added like any other |
//!
//! cloud-hypervisor on KVM differs from `igvm-crate` by the first two; whether by the others, we do
//! not know. On MSHV it sorts pages by address, which no profile here does. A file without empty
//! pages, parameters and shared pages that ends with its one VMSA at 0xfffffffff000, as
//! [`crate::build`] makes them, has one digest.

use igvm::IgvmDirectiveHeader as Directive;
use igvm_defs::{IgvmPageDataFlags, IgvmPageDataType};
use serde::Serialize;
use zerocopy::IntoBytes;

use crate::image::Image;
use crate::platform::Platform;
use crate::snp::PageType;
use crate::{PAGE_BYTES, sev, snp, tdx};

/// Where KVM says that VMSAs are, whatever the file says: all ones, cut to 48 bits and a page
/// (`snp_launch_update_vmsa` in arch/x86/kvm/svm/sev.c, since Linux 6.11).
pub const KVM_VMSA_GPA: u64 = 0xffff_ffff_f000;

/// Who loads the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loader {
    /// As the igvm crate measures.
    IgvmCrate,
    /// As QEMU loads on KVM.
    Kvm,
}

impl Loader {
    /// All of them.
    pub const ALL: [Loader; 2] = [Loader::IgvmCrate, Loader::Kvm];

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Loader::IgvmCrate => "igvm-crate",
            Loader::Kvm => "kvm",
        }
    }
}

/// A digest that cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The file is for other platforms.
    #[error("the file is not for {platform}, but for {}: choose with --platform", list(.those))]
    NotFor {
        /// The one that was asked for.
        platform: Platform,
        /// Those in the file.
        those: Vec<Platform>,
    },
    /// The platform's digest is not known here.
    #[error("unspin computes no digest of {0}: only of snp, tdx, sev and sev-es")]
    Unmeasured(Platform),
    /// The file has large pages.
    #[error("directive {directive} is a page of 2 MiB: unspin measures files of 4 KiB pages only")]
    Large {
        /// Its index.
        directive: usize,
    },
}

/// Names with commas.
fn list(platforms: &[Platform]) -> String {
    platforms.iter().map(|platform| platform.name()).collect::<Vec<_>>().join(", ")
}

/// A digest, as `unspin igvm measure --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Measurement {
    /// For which platform.
    pub platform: Platform,
    /// Who loads the file; `null` where all loaders measure the same.
    pub loader: Option<Loader>,
    /// What it is: `SNP launch digest`, `MRTD`, `SEV launch digest` or `SEV-ES launch digest`.
    pub what: &'static str,
    /// The digest in hexadecimal digits.
    pub digest: String,
    /// Pages whose contents it covers, VMSAs among them.
    pub measured_pages: u64,
    /// Pages of which it covers at most the address.
    pub unmeasured_pages: u64,
}

/// A page as a loader adds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    pub gpa: u64,
    pub kind: PageType,
    /// Whether a file says that its contents are measured. Special pages say so, too.
    pub measured: bool,
    /// Whether the guest shares it with the host.
    shared: bool,
    /// Of a page with a directive of its own: the directive's index, and its mask, flags and type.
    own: Option<(usize, [u32; 3])>,
    /// `None`: the file has no data for it.
    data: Option<&'a [u8]>,
}

impl Page<'_> {
    /// What parameters are inserted into.
    const EMPTY: Page<'static> = Page {
        gpa: 0,
        kind: PageType::Unmeasured,
        measured: false,
        shared: false,
        own: None,
        data: None,
    };

    /// Whether the file has data for it.
    pub fn has_data(&self) -> bool {
        self.data.is_some()
    }

    /// Whether the guest shares it with the host.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether QEMU adds it in one piece with the page before it (`qigvm_process_mem_page` in its
    /// backends/igvm.c).
    fn continues(&self, before: &Page) -> bool {
        let (Some((index, own)), Some((index_before, own_before))) = (self.own, before.own) else {
            return false;
        };
        index == index_before + 1
            && own == own_before
            && before.gpa.checked_add(PAGE_BYTES) == Some(self.gpa)
            && self.has_data() == before.has_data()
    }

    /// Its 4096 bytes.
    pub fn contents(&self) -> &[u8] {
        self.data.unwrap_or(&ZEROS)
    }
}

static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// The digest of a file. `loader` matters for SNP only.
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

/// The pages for a platform, in the file's order.
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
            // A run waits for the page that ends it; parameters do not.
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

/// Zeros that are in the file are a normal page; a page without data is the firmware's to clear.
fn kind_on_kvm(page: &Page) -> PageType {
    match page.kind {
        PageType::Normal if page.data.is_none() => PageType::Zero,
        kind => kind,
    }
}

/// All pages are added; the contents of those that are not measured are not extended.
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

/// What is encrypted is measured. Pages that are not measured stay unencrypted, so they are left
/// out. The firmware takes VMSAs after all memory.
fn sev_digest(pages: &[Page]) -> [u8; sev::DIGEST_BYTES] {
    let mut digest = sev::LaunchDigest::default();
    for kind in [PageType::Normal, PageType::Vmsa] {
        pages.iter().filter(|page| page.kind == kind).for_each(|page| digest.add(page.contents()));
    }
    digest.value()
}

/// Hexadecimal digits, two a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

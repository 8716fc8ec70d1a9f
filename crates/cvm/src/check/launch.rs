//! Policies, digests that a file promises, and differences on KVM.

use igvm::{IgvmDirectiveHeader as Directive, IgvmInitializationHeader as Initialization};

use super::{Found, Subject};
use crate::measure::{KVM_VMSA_GPA, Loader, hex, measure};
use crate::platform::Platform;
use crate::vcpu::{CR0_NO_CACHES, CR4_MCE};

/// Checks the requirements of a launch besides memory.
pub fn check(subject: &Subject, found: &mut Found) {
    if subject.platform == Platform::Snp {
        policy(subject, found);
        digests(subject, found);
    }
    if matches!(subject.platform, Platform::Snp | Platform::SevEs) {
        on_kvm(subject, found);
    }
}

fn policy(subject: &Subject, found: &mut Found) {
    let is_ours = |header: &&Initialization| {
        matches!(header, Initialization::GuestPolicy { compatibility_mask, .. }
            if compatibility_mask & subject.mask != 0)
    };
    if !subject.image.initializations().iter().any(|header| is_ours(&header)) {
        found.error(None, "has no guest policy, which SNP_LAUNCH_START needs".into());
    }
}

/// Checks the digest in an ID block, and whether loaders agree on the digest.
fn digests(subject: &Subject, found: &mut Found) {
    let digest = |loader| measure(subject.image, subject.platform, loader).map(|it| it.digest);
    let digests: Vec<String> = Loader::ALL.into_iter().filter_map(|l| digest(l).ok()).collect();
    if digests.windows(2).any(|two| two[0] != two[1]) {
        let what = "the digest depends on the loader: give `unspin igvm measure` the right one";
        found.note(None, what.into());
    }
    for (index, directive) in subject.directives() {
        let Directive::SnpIdBlock { ld, .. } = directive else { continue };
        let promised = hex(ld);
        if !digests.contains(&promised) {
            let what = format!(
                "the ID block promises the digest {promised}, which no loader known to unspin \
                 measures: the firmware refuses the launch if its loader does not either"
            );
            found.error(Some(index), what);
        }
    }
}

/// Notes where KVM differs: it builds VMSAs itself and measures them last.
fn on_kvm(subject: &Subject, found: &mut Found) {
    let mut vmsas = 0;
    for (index, directive) in subject.directives() {
        match directive {
            Directive::SnpVpContext { gpa, vmsa, .. } => {
                vmsas += 1;
                if vmsa.cr4 & CR4_MCE == 0 || vmsa.cr0 & CR0_NO_CACHES != 0 {
                    let what = "KVM sets CR4.MCE in a VMSA, and clears CR0.CD and CR0.NW: it \
                                measures other registers than these";
                    found.note(Some(index), what.into());
                }
                // The digest of SEV-ES has no addresses.
                if *gpa != KVM_VMSA_GPA && subject.platform == Platform::Snp {
                    let what =
                        format!("KVM measures the VMSA at {KVM_VMSA_GPA:#x}, not at {gpa:#x}");
                    found.note(Some(index), what);
                }
                if vmsas == 2 {
                    let what = "QEMU on KVM takes registers for the first vCPU only";
                    found.note(Some(index), what.into());
                }
            }
            Directive::PageData { .. } | Directive::ParameterInsert(_) if vmsas > 0 => {
                let what = "is added after a VMSA, and KVM measures VMSAs last";
                return found.note(Some(index), what.into());
            }
            _ => {}
        }
    }
}

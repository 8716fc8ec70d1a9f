//! What a loader, the processor or Linux would refuse.
//!
//! One file a subject. A finding is an error if the guest does not load or start anywhere, and a
//! note if that depends on who loads it.

mod entry;
mod launch;
mod linux;
mod pages;

use igvm::IgvmDirectiveHeader as Directive;
use serde::Serialize;

use crate::cpu::CpuState;
use crate::image::Image;
use crate::measure::{self, Page};
use crate::memory::Memory;
use crate::platform::Platform;
use crate::show;

/// More findings of one file are counted, not listed.
pub const FINDINGS_MAX: usize = 100;

/// Registers of more vCPUs are not followed: a hostile file could have a hundred thousand.
const VCPUS_MAX: usize = 16;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The guest does not load or start.
    Error,
    /// It depends on the loader.
    Note,
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The platform that it is about; `null`: the file.
    pub platform: Option<Platform>,
    /// The directive that it is about, if it is one.
    pub directive: Option<usize>,
    /// What is wrong, and why that matters.
    pub what: String,
}

/// What was found, as `unspin igvm check --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Report {
    /// Number of errors.
    pub errors: usize,
    /// Number of notes.
    pub notes: usize,
    /// The first [`FINDINGS_MAX`] of them.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The report of a file that cannot even be read.
    pub fn unreadable(error: &crate::image::ReadError) -> Report {
        let mut report = Report::default();
        report.add(Severity::Error, None, None, format!("the file {error}"));
        report
    }

    fn add(
        &mut self,
        severity: Severity,
        platform: Option<Platform>,
        directive: Option<usize>,
        what: String,
    ) {
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Note => self.notes += 1,
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { severity, platform, directive, what });
        }
    }
}

/// Looks for everything that is wrong with a file.
pub fn check(image: &Image) -> Report {
    let mut report = Report::default();
    pages::parameters(image, &mut report);
    for (platform, header) in image.platforms() {
        let subject = Subject { image, platform, mask: header.compatibility_mask };
        let mut found = Found { report: &mut report, platform };
        match measure::pages(image, platform) {
            Ok(mut pages) => {
                pages.retain(|page| !page.is_shared());
                subject.check(&pages, &mut found);
            }
            Err(error) => found.error(None, error.to_string()),
        }
    }
    report
}

/// A platform of a file.
#[derive(Clone, Copy)]
struct Subject<'a> {
    image: &'a Image,
    platform: Platform,
    mask: u32,
}

impl<'a> Subject<'a> {
    fn check(&self, pages: &[Page], found: &mut Found) {
        let memory = Memory::of(pages);
        pages::overlaps(self, found);
        pages::addresses(self, found);
        if !pages.iter().any(|page| page.measured) {
            found.error(None, "nothing is measured: anybody can replace all of it".into());
        }
        launch::check(self, found);
        let vcpus = entry::vcpus(self, found);
        if vcpus.is_empty() {
            entry::check_reset(self, &memory, found);
        }
        if vcpus.len() > VCPUS_MAX {
            found.note(None, format!("only the first {VCPUS_MAX} vCPUs were checked"));
        }
        for vcpu in vcpus.iter().take(VCPUS_MAX) {
            entry::check(self, &memory, vcpu, found);
            linux::check(&memory, vcpu, found);
        }
    }

    fn directives(&self) -> impl Iterator<Item = (usize, &'a Directive)> {
        self.image.directives_of(self.mask)
    }

    fn vcpus(&self) -> Vec<CpuState> {
        let state = |(index, header): (usize, &Directive)| {
            let platforms = show::platforms(self.image, header.compatibility_mask());
            CpuState::of(index, header, platforms)
        };
        self.directives().filter_map(state).collect()
    }
}

/// Takes what is found about a platform.
struct Found<'a> {
    report: &'a mut Report,
    platform: Platform,
}

impl Found<'_> {
    fn error(&mut self, directive: Option<usize>, what: String) {
        self.report.add(Severity::Error, Some(self.platform), directive, what);
    }

    fn note(&mut self, directive: Option<usize>, what: String) {
        self.report.add(Severity::Note, Some(self.platform), directive, what);
    }
}

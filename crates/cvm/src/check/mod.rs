//! Finds the mistakes for which a loader, the processor or Linux would refuse a file.
//!
//! Each subject has one file. A finding is an error if the guest does not load or start anywhere,
//! and a note if the effect depends on the loader.

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

/// The most findings that a report lists. It only counts further ones.
pub const FINDINGS_MAX: usize = 100;

/// The most vCPUs whose registers are followed. A hostile file could have a hundred thousand.
const VCPUS_MAX: usize = 16;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The guest does not load or start.
    Error,
    /// The effect depends on the loader.
    Note,
}

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The platform that it concerns; `null` for the whole file.
    pub platform: Option<Platform>,
    /// The directive that it concerns, if it concerns one.
    pub directive: Option<usize>,
    /// The mistake, and its consequence.
    pub what: String,
}

/// The findings, as `unspin igvm check --json` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Report {
    /// Number of errors.
    pub errors: usize,
    /// Number of notes.
    pub notes: usize,
    /// The first [`FINDINGS_MAX`] findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the report of a file that cannot be read.
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

/// Searches a file for mistakes.
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

/// A file, and one of its platforms.
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

/// A collector of the findings about a platform.
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

//! The light sensor: loads `bpf/watch.bpf.c`, which only keeps sums.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder};

use super::load::{attach, configure, leave_out_missing};
use super::page::{Page, Shared};
use super::{Aligned, SenseError, Settings, hush_libbpf};
use crate::machine::Trial;
use crate::spinning;

static PROGRAMS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/watch.bpf.o")));

/// A running light sensor. Dropping this removes it from the kernel.
pub struct LightSensor {
    /// The tracepoints that this kernel lacks.
    pub missing: Vec<String>,
    page: Page,
    records: MapHandle,
    _links: Vec<Link>,
    _object: Object,
}

impl LightSensor {
    /// Loads the light sensor into this kernel. It uses only the limits of the settings.
    pub fn start(settings: &Settings) -> Result<LightSensor, SenseError> {
        let vcpus = libbpf_rs::num_possible_cpus()?;
        let (object, links, missing) = attached(settings, vcpus)?;
        let map = object.maps().find(|map| map.name() == "vcpus").expect("a map of ours");
        let page = Page::new(Shared::map(map.as_fd(), vcpus).map_err(SenseError::Map)?);
        let records = MapHandle::try_from(&map)?;
        Ok(LightSensor { missing, page, records, _links: links, _object: object })
    }

    /// Tries whether the light sensor could start: attaches the same programs until this process
    /// ends.
    pub(crate) fn trial() -> Trial {
        let attempt = || {
            let vcpus = libbpf_rs::num_possible_cpus()?;
            let (object, links, missing) = attached(&Settings::UNMEASURED, vcpus)?;
            super::let_go(object, links);
            Ok::<_, SenseError>(Trial { missing, ..Trial::default() })
        };
        attempt().unwrap_or_else(Trial::failed)
    }

    /// Returns the map of the records, for programs that read them.
    pub(crate) fn records(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    /// Also shows the vCPUs that have come online since.
    pub(crate) fn show_added(&mut self) {
        self.page.show_added();
    }

    /// Returns the records of all vCPUs.
    pub fn page(&self) -> &Page {
        &self.page
    }
}

/// Attaches the programs, and returns the hooks that this kernel lacks.
fn attached(
    settings: &Settings,
    vcpus: usize,
) -> Result<(Object, Vec<Link>, Vec<String>), SenseError> {
    hush_libbpf();
    if !spinning::kernel().tells_timers {
        return Err(SenseError::NoTimers);
    }
    let mut open = ObjectBuilder::default().open_memory(&PROGRAMS.0)?;
    let missing = leave_out_missing(&mut open, false)?;
    configure(&mut open, settings, vcpus)?;
    let object = open.load()?;
    let links = attach(&object)?;
    Ok((object, links, missing))
}

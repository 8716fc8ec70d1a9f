//! The light sensor: loads `bpf/watch.bpf.c`, which keeps sums and reports nothing else.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder};

use super::load::{attach, configure, leave_out_missing};
use super::page::{Page, Shared};
use super::{Aligned, SenseError, Settings, hush_libbpf};
use crate::machine::Trial;
use crate::spinning;

static PROGRAMS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/watch.bpf.o")));

/// The light sensor at work; it is gone from the kernel when this is dropped.
pub struct LightSensor {
    /// Tracepoints that this kernel does not have.
    pub missing: Vec<String>,
    page: Page,
    records: MapHandle,
    _links: Vec<Link>,
    _object: Object,
}

impl LightSensor {
    /// Loads it into this kernel. Of the settings, the limits count.
    pub fn start(settings: &Settings) -> Result<LightSensor, SenseError> {
        let vcpus = libbpf_rs::num_possible_cpus()?;
        let (object, links, missing) = attached(settings, vcpus)?;
        let map = object.maps().find(|map| map.name() == "vcpus").expect("a map of ours");
        let page = Page::new(Shared::map(map.as_fd(), vcpus).map_err(SenseError::Map)?);
        let records = MapHandle::try_from(&map)?;
        Ok(LightSensor { missing, page, records, _links: links, _object: object })
    }

    /// Whether there could be one: attaches what it attaches, until this process ends.
    pub(crate) fn trial() -> Trial {
        let attempt = || {
            let vcpus = libbpf_rs::num_possible_cpus()?;
            let (object, links, missing) = attached(&Settings::UNMEASURED, vcpus)?;
            super::let_go(object, links);
            Ok::<_, SenseError>(Trial { missing, ..Trial::default() })
        };
        attempt().unwrap_or_else(Trial::failed)
    }

    /// The map of the records, for programs that look at them.
    pub(crate) fn records(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    /// Shows also the vCPUs that have come online since.
    pub(crate) fn show_added(&mut self) {
        self.page.show_added();
    }

    /// The records of all vCPUs.
    pub fn page(&self) -> &Page {
        &self.page
    }
}

/// The programs at work, and the hooks that this kernel does not have.
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

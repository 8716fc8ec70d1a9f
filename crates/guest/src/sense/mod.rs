//! The live sensor: loads `bpf/sense.bpf.c` and reports what it finds.
//!
//! What a vCPU's signs of life say is judged by `policy/activity.h`, in the kernel. Here
//! the off intervals are fetched, and the records of all vCPUs can be read at any time,
//! without a system call, from a page that the kernel shares.

mod error;
mod event;
mod heartbeat;
mod hooks;
mod light;
mod load;
mod page;
mod ring;
mod sites;

use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use nix::time::{ClockId, clock_gettime};
use unspin_model::episode::Spin;
use unspin_model::session::FoundOff;
pub use unspin_policy::activity::{Limits, State};

use crate::machine::Trial;
use crate::{lateness, spinning};

pub use error::SenseError;
use error::with_fallback;
pub(crate) use error::{may_be_locked_down, only_for_root};
use event::Event;
pub use heartbeat::{Beat, Heartbeat};
pub use hooks::{BUSY, hidden, remedies};
pub use light::LightSensor;
pub(crate) use load::check_ticks;
use load::{attach, configure, leave_out_missing};
pub use page::{Page, Vcpu};
pub(crate) use page::{Plain, Shared};
use ring::Rings;
use sites::Sites;

/// An ELF file is read where it lies, so it must lie as a file in memory would.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

static PROGRAMS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sense.bpf.o")));
/// For a kernel that does not tell where its timers are.
static PROGRAMS_OWN_TIMERS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sense-own-timers.bpf.o")));

/// How the sensor works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How late is too late.
    pub limits: Limits,
    /// How often a vCPU that is not idle shows that it is on.
    pub beat: Beat,
    /// Spins from this length on are reported.
    pub spin_ns: u64,
}

impl Settings {
    /// Where only attaching is tried.
    pub(crate) const UNMEASURED: Settings = Settings {
        limits: Limits { timer_ns: 1_000_000, wake_ns: 1_000_000 },
        beat: Beat::Every(0),
        spin_ns: 50_000,
    };

    /// What fits this machine; how late its timers are is measured.
    pub fn of_this_machine() -> Settings {
        let late_ns = lateness::limit_ns();
        Settings {
            limits: Limits { timer_ns: late_ns, wake_ns: late_ns },
            beat: Beat::Within(0.01),
            spin_ns: 50_000,
        }
    }
}

/// The least lateness, nanoseconds, that can show on this machine that a vCPU was off. It is
/// measured, which takes some 30 ms.
pub fn least_late_ns() -> u64 {
    lateness::least_ns()
}

/// What was found since it was last asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Off intervals, in order of their ends on each vCPU.
    pub offs: Vec<FoundOff>,
    /// Spins, in order of their ends on each vCPU.
    pub spins: Vec<Spin>,
    /// How many were overwritten before they were fetched.
    pub lost: u64,
}

/// What libbpf prints is for those who write programs, and errors name what is missing. Who sets
/// libbpf's own variable `LIBBPF_LOG_LEVEL` gets it all the same.
pub(crate) fn hush_libbpf() {
    if std::env::var_os("LIBBPF_LOG_LEVEL").is_none() {
        libbpf_rs::set_print(None);
    }
}

/// The sensor at work; it is gone from the kernel when this is dropped.
pub struct Sensor {
    /// Tracepoints that this kernel does not have.
    pub missing: Vec<String>,
    /// The heartbeats that were chosen.
    pub heartbeat: Heartbeat,
    rings: Rings,
    sites: Sites,
    page: Page,
    _links: Vec<Link>,
    _object: Object,
}

impl Sensor {
    /// Loads it into this kernel.
    pub fn start(settings: &Settings) -> Result<Sensor, SenseError> {
        hush_libbpf();
        let vcpus = libbpf_rs::num_possible_cpus()?;
        let sites = Sites::new();
        let Attached { object, links, mut missing, .. } = attached(settings, vcpus)?;
        let map = |name: &str| object.maps().find(|map| map.name() == name).expect("a map of ours");
        let page = Page::new(Shared::map(map("vcpus").as_fd(), vcpus).map_err(SenseError::Map)?);
        let rings = Rings::new(Shared::map(map("rings").as_fd(), vcpus).map_err(SenseError::Map)?);
        let beat = map(".data.beat");
        let set = |period_ns: u64| beat.update(&[0; 4], &period_ns.to_ne_bytes(), MapFlags::ANY);
        set(0)?;
        let heartbeat = heartbeat::choose(settings.beat, &page, |period_ns| {
            // It has just worked, with the same sizes.
            let _ = set(period_ns);
        });
        if heartbeat.period_ns == 0 && !spinning::kernel().tells_timers {
            missing.push(heartbeat::MISSING.to_owned());
        }
        Ok(Sensor { missing, heartbeat, rings, sites, page, _links: links, _object: object })
    }

    /// What was found since the last call. What vCPUs found that were added since the start, and
    /// are not shown, is counted as lost.
    pub fn take(&mut self) -> Findings {
        let Findings { mut offs, mut spins, .. } = Findings::default();
        let (sites, shown, mut added) = (&self.sites, self.page.vcpus(), 0);
        let lost = self.rings.take(|vcpu, raw| match Event::of(vcpu, raw) {
            Some(Event::Off(FoundOff { vcpu, .. }) | Event::Spin(Spin { vcpu, .. }, _))
                if usize::from(vcpu) >= shown =>
            {
                added += 1;
            }
            Some(Event::Off(off)) => offs.push(off),
            Some(Event::Spin(spin, frames)) => {
                spins.push(Spin { site: sites.name(spin.wait, &frames), ..spin });
            }
            None => {}
        });
        Findings { offs, spins, lost: lost + added }
    }

    /// How many nanoseconds each vCPU has spun in user space by such records; empty where this
    /// kernel does not tell what its ticks interrupt.
    pub fn user_spin_ns(&self, vcpus: &[Vcpu]) -> Vec<u64> {
        let looked = vcpus.iter().filter(|_| spinning::kernel().tells_timers);
        looked.map(|vcpu| vcpu.samples.user_spin_ns).collect()
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

/// Nanoseconds of CLOCK_MONOTONIC, the clock of all records.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

/// Whether there could be a [`Sensor`]: attaches what it attaches, until this process ends.
pub(crate) fn trial() -> Trial {
    hush_libbpf();
    let attempt = || {
        let vcpus = libbpf_rs::num_possible_cpus()?;
        let Attached { object, links, missing, refused } = attached(&Settings::UNMEASURED, vcpus)?;
        let_go(object, links);
        Ok::<_, SenseError>(Trial { failed: None, missing, refused })
    };
    attempt().unwrap_or_else(Trial::failed)
}

/// Leaves it to the kernel to detach programs when this process ends: waiting for each of
/// them, a grace period of RCU, takes a second in all.
pub(crate) fn let_go(object: Object, links: Vec<Link>) {
    std::mem::forget((object, links));
}

/// Programs at work.
struct Attached {
    object: Object,
    links: Vec<Link>,
    /// The hooks that this kernel does not have.
    missing: Vec<String>,
    /// Why those in functions are among them, where the kernel has the functions.
    refused: Option<String>,
}

fn attached(settings: &Settings, vcpus: usize) -> Result<Attached, SenseError> {
    let (found, refused) = with_fallback(|functions| {
        let (object, missing) = load(settings, vcpus, functions)?;
        let links = attach(&object)?;
        Ok(Attached { object, links, missing, refused: None })
    })?;
    Ok(Attached { refused, ..found })
}

/// Loads what this kernel can run, and says what it cannot.
fn load(
    settings: &Settings,
    vcpus: usize,
    functions: bool,
) -> Result<(Object, Vec<String>), SenseError> {
    let tells_timers = spinning::kernel().tells_timers;
    let programs = if tells_timers { PROGRAMS } else { PROGRAMS_OWN_TIMERS };
    let mut open = ObjectBuilder::default().open_memory(&programs.0)?;
    let mut missing = leave_out_missing(&mut open, functions)?;
    if !tells_timers {
        missing.push(spinning::TIMERS.to_owned());
    }
    configure(&mut open, settings, vcpus)?;
    Ok((open.load()?, missing))
}

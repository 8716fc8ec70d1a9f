//! The live sensor: loads `bpf/sense.bpf.c`, and reports off intervals and spins.
//!
//! `policy/activity.h` judges a vCPU's signs of life in the kernel. This module fetches the off
//! intervals. The records of all vCPUs can be read at any time, without a system call, from a page
//! that the kernel shares.

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

#[cfg(test)]
pub(crate) use error::PASSING;
pub use error::SenseError;
use error::with_fallback;
pub(crate) use error::{may_be_locked_down, may_pass, only_for_root, passes};
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

/// Aligns the bytes of an ELF file: libbpf reads the file in place, and needs it as aligned as a
/// file in memory.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

static PROGRAMS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sense.bpf.o")));
/// The same programs for a kernel whose timers cannot be found.
static PROGRAMS_OWN_TIMERS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sense-own-timers.bpf.o")));

/// The settings of a sensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The lateness from which on a vCPU counts as off.
    pub limits: Limits,
    /// How often a vCPU that is not idle shows that it is on.
    pub beat: Beat,
    /// The length, in nanoseconds, from which on spins are reported.
    pub spin_ns: u64,
}

impl Settings {
    /// The settings of a trial that only attaches programs.
    pub(crate) const UNMEASURED: Settings = Settings {
        limits: Limits { timer_ns: 1_000_000, wake_ns: 1_000_000 },
        beat: Beat::Every(0),
        spin_ns: 50_000,
    };

    /// Returns the settings for this machine. Measures how late its timers are.
    pub fn of_this_machine() -> Settings {
        let late_ns = lateness::limit_ns();
        Settings {
            limits: Limits { timer_ns: late_ns, wake_ns: late_ns },
            beat: Beat::Within(0.01),
            spin_ns: 50_000,
        }
    }
}

/// Returns the least lateness, in nanoseconds, that can show on this machine that a vCPU was off.
/// The measurement takes about 30 ms.
pub fn least_late_ns() -> u64 {
    lateness::least_ns()
}

/// The findings since the last call of [`Sensor::take`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The off intervals, in order of their ends on each vCPU.
    pub offs: Vec<FoundOff>,
    /// The spins, in order of their ends on each vCPU.
    pub spins: Vec<Spin>,
    /// The number of findings that were overwritten before they were fetched.
    pub lost: u64,
}

/// Silences libbpf, whose messages are for authors of BPF programs; unspin's own errors name what
/// is missing. A user who sets libbpf's own variable `LIBBPF_LOG_LEVEL` gets the messages all the
/// same.
pub(crate) fn hush_libbpf() {
    if std::env::var_os("LIBBPF_LOG_LEVEL").is_none() {
        libbpf_rs::set_print(None);
    }
}

/// A running sensor. Dropping this removes it from the kernel.
pub struct Sensor {
    /// The tracepoints that this kernel lacks.
    pub missing: Vec<String>,
    /// The chosen heartbeats.
    pub heartbeat: Heartbeat,
    rings: Rings,
    sites: Sites,
    page: Page,
    _links: Vec<Link>,
    _object: Object,
}

impl Sensor {
    /// Loads the sensor into this kernel.
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
            // The update cannot fail: it has just worked, with the same sizes.
            let _ = set(period_ns);
        });
        if heartbeat.period_ns == 0 && !spinning::kernel().tells_timers {
            missing.push(heartbeat::MISSING.to_owned());
        }
        Ok(Sensor { missing, heartbeat, rings, sites, page, _links: links, _object: object })
    }

    /// Returns the findings since the last call. Findings of vCPUs that were added since the start,
    /// and are not shown, count as lost.
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

    /// Returns the nanoseconds that each vCPU has spun in user space according to its record. Empty
    /// if this kernel does not reveal what its ticks interrupt.
    pub fn user_spin_ns(&self, vcpus: &[Vcpu]) -> Vec<u64> {
        let looked = vcpus.iter().filter(|_| spinning::kernel().tells_timers);
        looked.map(|vcpu| vcpu.samples.user_spin_ns).collect()
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

/// Returns the nanoseconds of CLOCK_MONOTONIC, the clock of all records.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

/// Tries whether a [`Sensor`] could start: attaches the same programs until this process ends.
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

/// Lets the kernel detach programs when this process ends: waiting for each of them, a grace period
/// of RCU, takes a second in all.
pub(crate) fn let_go<T>(object: Object, links: Vec<T>) {
    std::mem::forget((object, links));
}

/// Attached programs.
struct Attached {
    object: Object,
    links: Vec<Link>,
    /// The hooks that this kernel lacks.
    missing: Vec<String>,
    /// Why hooks in functions are among them though the kernel has the functions.
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

/// Loads the programs that this kernel can run, and returns the hooks that it lacks.
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

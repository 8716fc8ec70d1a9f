//! The live sensor: loads `bpf/sense.bpf.c`, tells what it finds.
//!
//! What a vCPU's signs of life say is judged by `policy/activity.h`, in the kernel. Here
//! the off intervals are fetched, and the records of all vCPUs can be read at any time,
//! without a system call, from a page that the kernel shares.

mod page;

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, OpenObject, RingBuffer, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};
pub use unspin_policy::activity::{Limits, State};

pub use page::{Page, Vcpu};

/// An ELF file is read where it lies, so it must lie as a file in memory would.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static PROGRAMS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sense.bpf.o")));

/// Without these there is nothing to tell.
const NEEDED: [&str; 2] = ["local_timer_entry", "sched_switch"];

/// How the sensor works.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How late is too late.
    pub limits: Limits,
    /// Nanoseconds between two heartbeats of a vCPU that is not idle; 0: none.
    pub beat_ns: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { limits: Limits { timer_ns: 200_000, wake_ns: 200_000 }, beat_ns: 500_000 }
    }
}

/// An off interval, as a record in the ring buffer. Times are nanoseconds of
/// CLOCK_MONOTONIC.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Off {
    /// The vCPU left its pCPU not before.
    pub earliest_ns: u64,
    /// The vCPU left its pCPU not after.
    pub latest_ns: u64,
    /// It was back.
    pub end_ns: u64,
    /// The vCPU.
    pub cpu: u32,
    /// 1 when it was idle and was asked to run.
    pub was_idle: u32,
}

/// Why there is no sensor.
#[derive(Debug, thiserror::Error)]
pub enum SenseError {
    /// The kernel cannot tell what is needed.
    #[error(
        "this kernel has no tracepoint {0} that BPF programs can use: Linux 5.19 or newer with BTF is needed"
    )]
    Tracepoint(String),
    /// Loading failed.
    #[error("the sensor's BPF programs cannot be loaded: {0} (is this run as root?)")]
    Load(#[from] libbpf_rs::Error),
    /// The shared page cannot be mapped.
    #[error("the sensor's records cannot be mapped: {0}")]
    Map(std::io::Error),
}

/// The sensor at work; it is gone from the kernel when this is dropped.
pub struct Sensor {
    /// Tracepoints that this kernel does not have.
    pub missing: Vec<String>,
    found: Rc<RefCell<Vec<Off>>>,
    events: RingBuffer<'static>,
    page: Page,
    _links: Vec<Link>,
    _object: Object,
}

impl Sensor {
    /// Loads it into this kernel.
    pub fn start(settings: &Settings) -> Result<Sensor, SenseError> {
        let vcpus = libbpf_rs::num_possible_cpus()?;
        let mut open = ObjectBuilder::default().open_memory(&PROGRAMS.0)?;
        let missing = leave_out_missing(&mut open)?;
        configure(&mut open, settings, vcpus)?;
        let object = open.load()?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if !missing.iter().any(|name| program.name() == name.as_str()) {
                links.push(program.attach()?);
            }
        }
        let map = |name: &str| object.maps().find(|map| map.name() == name).expect("a map of ours");
        let page = Page::map(map("vcpus").as_fd(), vcpus).map_err(SenseError::Map)?;
        let found = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        let ring = map("events");
        builder.add(&ring, move |bytes| {
            sink.borrow_mut().extend(Off::read(bytes));
            0
        })?;
        let events = builder.build()?;
        Ok(Sensor { missing, found, events, page, _links: links, _object: object })
    }

    /// The off intervals that were found since the last call, in the order of their ends
    /// on each vCPU.
    pub fn take(&self) -> Result<Vec<Off>, SenseError> {
        self.events.consume()?;
        Ok(std::mem::take(&mut *self.found.borrow_mut()))
    }

    /// The records of all vCPUs.
    pub fn page(&self) -> &Page {
        &self.page
    }
}

impl Off {
    fn read(bytes: &[u8]) -> Option<Off> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let half = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        Some(Off {
            earliest_ns: word(0)?,
            latest_ns: word(8)?,
            end_ns: word(16)?,
            cpu: half(24)?,
            was_idle: half(28)?,
        })
    }

    /// When it began, in the middle of its bounds.
    pub fn start_ns(&self) -> u64 {
        self.earliest_ns.midpoint(self.latest_ns)
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, the clock of all records.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

/// Programs whose tracepoint this kernel does not have are not loaded.
fn leave_out_missing(open: &mut OpenObject) -> Result<Vec<String>, SenseError> {
    let btf = Btf::from_vmlinux()?;
    let mut missing = Vec::new();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if btf
            .type_by_name::<libbpf_rs::btf::types::Typedef<'_>>(&format!("btf_trace_{name}"))
            .is_none()
        {
            if NEEDED.contains(&name.as_str()) {
                return Err(SenseError::Tracepoint(name));
            }
            program.set_autoload(false);
            missing.push(name);
        }
    }
    Ok(missing)
}

fn configure(open: &mut OpenObject, settings: &Settings, vcpus: usize) -> Result<(), SenseError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "vcpus" || name == "hearts" {
            map.set_max_entries(vcpus as u32)?;
        } else if name.ends_with(".rodata") {
            let bytes = map.initial_value_mut().expect("the settings have a value");
            let words = [settings.limits.timer_ns, settings.limits.wake_ns, settings.beat_ns];
            for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
        }
    }
    Ok(())
}

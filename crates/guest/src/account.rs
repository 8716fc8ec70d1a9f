//! Exact accounting of spins: loads `bpf/account.bpf.c`, and reads each vCPU's time.

mod counter;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, RingBuffer,
    RingBufferBuilder,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

use crate::machine::Trial;
use crate::sense::{Aligned, LightSensor, Plain, SenseError, Shared, hush_libbpf, let_go};
use crate::spinning;
use counter::Counter;

static PROGRAMS: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/account.bpf.o")));

/// The record of a vCPU, `struct account` of bpf/sense/account.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    spin_ns: u64,
    spins: u64,
    since_ns: u64,
    frame: u64,
    task: u64,
    lost: u64,
    window: [u64; 2],
    last: [u64; 2],
    off_end_ns: u64,
    spin_off_ns: u64,
    held_ns: u64,
    unused: [u64; 3],
}

// SAFETY: integers only.
unsafe impl Plain for Record {}

/// The spins of one vCPU since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spun {
    /// The nanoseconds spun, including a spin under way. They never decrease.
    pub ns: u64,
    /// The part of `ns` in which the vCPU was off.
    pub off_ns: u64,
    /// The nanoseconds that the sensor has counted as off too much. In a spin that delays the tick,
    /// a vCPU is off for an unknown part of the time; half of it is assumed.
    pub held_ns: u64,
    /// The number of spins that ended.
    pub count: u64,
    /// The number of spins whose end was not seen.
    pub lost: u64,
}

/// Wakes the resting agent when a vCPU has spun for a tenth of a window.
pub struct Alarm {
    /// The map in which the agent notes for the programs whether it rests.
    rests: MapHandle,
    ring: RingBuffer<'static>,
}

/// The reasons for the end of a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// A vCPU spins.
    Spins,
    /// The time is over, or the agent is asked to end.
    Over,
}

impl Alarm {
    /// Rests until a vCPU spins, for at most `time`, or until `end` can be read.
    pub fn rest(&self, time: Duration, end: BorrowedFd<'_>) -> io::Result<Woken> {
        self.tell(1)?;
        let mut fds = [
            // SAFETY: the descriptor belongs to the ring, which lives longer.
            PollFd::new(unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }, PollFlags::POLLIN),
            PollFd::new(end, PollFlags::POLLIN),
        ];
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let polled = poll(&mut fds, timeout);
        self.tell(0)?;
        let spins = fds[0].any().unwrap_or(false);
        // The record carries no data; its arrival is the message.
        self.ring.consume().map_err(io::Error::other)?;
        match polled {
            Ok(_) | Err(Errno::EINTR) if spins => Ok(Woken::Spins),
            Ok(_) | Err(Errno::EINTR) => Ok(Woken::Over),
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&self, rests: u32) -> io::Result<()> {
        let key = 0_u32.to_ne_bytes();
        self.rests.update(&key, &rests.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)
    }
}

/// A running accounting of spins. Dropping this removes its programs from the kernel.
pub struct Account {
    /// Functions that this kernel lacks, or does not let programs into, and that have no watched
    /// alternative. Spins in them are not counted.
    pub missing: Vec<String>,
    /// The CPU time, in nanoseconds, that attaching the programs took last.
    pub attached_ns: u64,
    records: Shared<Record>,
    counters: Vec<Counter>,
    /// The functions that the kernel lacks.
    lacking: BTreeSet<String>,
    /// The links of the attached programs, those for ends before those for beginnings. Empty while
    /// spins are not counted.
    links: Vec<Link>,
    object: Object,
}

impl Account {
    /// Loads and attaches the programs that count spins. `sensor` finds the off intervals.
    ///
    /// # Errors
    /// No programs can be loaded, or no function that spins can be watched at all.
    pub fn start(sensor: &LightSensor) -> Result<Account, SenseError> {
        Account::beside(Some(sensor.records()))
    }

    /// Tries whether spins can be counted: attaches the same programs until this process ends.
    pub(crate) fn trial() -> Trial {
        match Account::beside(None) {
            Ok(Account { missing, links, object, .. }) => {
                let_go(object, links);
                Trial { missing, ..Trial::default() }
            }
            Err(error) => Trial::failed(error),
        }
    }

    /// Starts with the records of a sensor or, in a trial, with records of its own.
    fn beside(records: Option<BorrowedFd<'_>>) -> Result<Account, SenseError> {
        hush_libbpf();
        let vcpus = libbpf_rs::num_possible_cpus()?;
        let mut open = ObjectBuilder::default().open_memory(&PROGRAMS.0)?;
        let lacking = leave_out_missing(&mut open)?;
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("accounts") => map.set_max_entries(vcpus as u32)?,
                Some("vcpus") => match records {
                    Some(records) => map.reuse_fd(records)?,
                    None => map.set_max_entries(vcpus as u32)?,
                },
                _ => {}
            }
        }
        let object = open.load()?;
        let map = object.maps().find(|map| map.name() == "accounts").expect("our map");
        let records = Shared::map(map.as_fd(), vcpus).map_err(SenseError::Map)?;
        let began_ns = cpu_ns();
        let (links, missing) = attach(&object, &lacking)?;
        let attached_ns = cpu_ns() - began_ns;
        let counters = vec![Counter::default(); vcpus];
        Ok(Account { missing, attached_ns, records, counters, lacking, links, object })
    }

    /// Returns whether spins are counted.
    pub fn is_counting(&self) -> bool {
        !self.links.is_empty()
    }

    /// Stops counting, so that contended waits cost only what they do without unspin.
    pub fn pause(&mut self) {
        // Detach the beginnings first, from the end of the list: a spin whose end is not seen would
        // seem to last.
        while self.links.pop().is_some() {}
    }

    /// Resumes counting.
    ///
    /// # Errors
    /// The kernel no longer takes programs at any of the functions.
    pub fn resume(&mut self) -> Result<(), SenseError> {
        let began_ns = cpu_ns();
        (self.links, self.missing) = attach(&self.object, &self.lacking)?;
        self.attached_ns = cpu_ns() - began_ns;
        Ok(())
    }

    /// Returns the alarm that wakes the resting agent.
    ///
    /// # Errors
    /// The kernel offers no ring.
    pub fn alarm(&self) -> Result<Alarm, SenseError> {
        let handle = |is_it: fn(&str) -> bool| {
            let mut maps = self.object.maps();
            let map = maps.find(|map| is_it(&map.name().to_string_lossy()));
            MapHandle::try_from(&map.expect("a map of ours"))
        };
        let rests = handle(|name| name.ends_with(".bss"))?;
        let ring = handle(|name| name == "alarms")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&ring, |_| 0)?;
        Ok(Alarm { rests, ring: builder.build()? })
    }

    /// Returns the spins of each vCPU until `now_ns` of `CLOCK_MONOTONIC`. A vCPU that is idle does
    /// not spin.
    pub fn spun(&mut self, now_ns: u64, is_idle: impl Fn(usize) -> bool) -> Vec<Spun> {
        let read = |(vcpu, counter): (usize, &mut Counter)| {
            counter.advance(&self.records.read(vcpu, 0), now_ns, is_idle(vcpu))
        };
        self.counters.iter_mut().enumerate().map(read).collect()
    }
}

/// Returns the CPU time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let time =
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every kernel has this clock");
    Duration::from(time).as_nanos() as u64
}

/// Alternative names of a function in several kernels, or functions one of which contains the
/// other.
const ALTERNATIVES: [[&str; 2]; 2] = [
    ["native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath"],
    ["rwsem_optimistic_spin", "rwsem_spin_on_owner"],
];

/// Returns the functions in which spins are not counted, given the missing ones.
fn unwatched(missing: &BTreeSet<String>) -> Vec<String> {
    let is_watched = |function: &String| {
        let mut alternatives = ALTERNATIVES.iter().filter(|all| all.contains(&function.as_str()));
        alternatives.any(|all| all.iter().any(|other| !missing.contains(*other)))
    };
    missing.iter().filter(|function| !is_watched(function)).cloned().collect()
}

/// Returns the function at whose beginning or end a program runs; `None` for a tracepoint.
fn watched(section: &str) -> Option<&str> {
    section.strip_prefix("fentry/").or_else(|| section.strip_prefix("fexit/"))
}

/// Disables the programs for functions that the kernel lacks, and returns their names.
fn leave_out_missing(open: &mut OpenObject) -> Result<BTreeSet<String>, SenseError> {
    let btf = Btf::from_vmlinux()?;
    let mut missing = BTreeSet::new();
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        let Some(function) = watched(&section) else { continue };
        let is_there =
            btf.type_by_name::<Func<'_>>(function).is_some() && !enables_preemption(function);
        program.set_autoload(is_there);
        if !is_there {
            missing.insert(function.to_owned());
        }
    }
    Ok(missing)
}

/// Returns whether a function enables preemption before it returns, so that its end could be seen
/// on another vCPU. `rwsem_optimistic_spin` does so before Linux 6.3 (commit 1d61659ced6b).
fn enables_preemption(function: &str) -> bool {
    function == "rwsem_optimistic_spin" && spinning::version().is_some_and(|it| it < (6, 3))
}

/// Attaches the programs, and returns the functions in which spins are not counted. A kernel may
/// refuse some, for example at functions that cannot be instrumented; `lacking` are the functions
/// that it lacks.
fn attach(
    object: &Object,
    lacking: &BTreeSet<String>,
) -> Result<(Vec<Link>, Vec<String>), SenseError> {
    let (mut links, mut counts, mut missing) = (Vec::new(), false, lacking.clone());
    let mut refused = None;
    let mut programs: Vec<_> = object.progs_mut().filter(|program| program.autoload()).collect();
    // Attach the programs for beginnings last. If only the beginning of a spin were seen, the spin
    // would seem to last; and the kernel itself waits for other vCPUs while it attaches a program.
    programs.sort_by_key(|program| program.section().to_string_lossy().starts_with("fentry/"));
    for program in programs {
        let section = program.section().to_string_lossy().into_owned();
        let is_missing = watched(&section).is_some_and(|function| missing.contains(function));
        if is_missing && section.starts_with("fentry/") {
            continue;
        }
        match program.attach() {
            Ok(link) => {
                counts |= watched(&section).is_some();
                links.push(link);
            }
            Err(error) => {
                missing.extend(watched(&section).map(str::to_owned));
                refused = Some(error);
            }
        }
    }
    Ok((of_use(links, counts, refused)?, unwatched(&missing)))
}

/// Returns the links if at least one program counts spins. The tick's program does not count: every
/// kernel takes it.
fn of_use<L>(
    links: Vec<L>,
    counts: bool,
    refused: Option<libbpf_rs::Error>,
) -> Result<Vec<L>, SenseError> {
    match refused {
        _ if counts => Ok(links),
        Some(error) => Err(error.into()),
        None => Err(SenseError::NoSlowPaths),
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::HasSize;
    use libbpf_rs::btf::types::Struct;

    use super::*;

    #[test]
    fn one_of_several_alternatives_is_enough() {
        let missing = |names: &[&str]| unwatched(&names.iter().map(|&name| name.into()).collect());
        assert!(missing(&["queued_spin_lock_slowpath", "rwsem_optimistic_spin"]).is_empty());
        let all = ["native_queued_spin_lock_slowpath", "osq_lock", "queued_spin_lock_slowpath"];
        assert_eq!(missing(&all), all);
    }

    #[test]
    fn the_tick_s_program_alone_counts_nothing() {
        let refused = || libbpf_rs::Error::from_raw_os_error(Errno::EBUSY as i32);
        let with = |counts, refused| of_use(vec!["tick"], counts, refused);
        assert!(matches!(with(false, Some(refused())), Err(SenseError::Load(_))));
        assert!(matches!(with(false, None), Err(SenseError::NoSlowPaths)));
        for some in [None, Some(refused())] {
            assert_eq!(with(true, some).ok(), Some(vec!["tick"]));
        }
    }

    #[test]
    fn the_record_is_the_program_s() {
        let btf = Btf::from_path(concat!(env!("OUT_DIR"), "/account.bpf.o")).expect("its types");
        let of_program = btf.type_by_name::<Struct<'_>>("account").expect("struct account");
        assert_eq!(of_program.size(), size_of::<Record>());
    }
}

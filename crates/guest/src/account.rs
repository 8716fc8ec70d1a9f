//! Exact accounting of spins: loads `bpf/account.bpf.c`, and reads each vCPU's time.

mod counter;
mod multi;
mod programs;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::btf::Btf;
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

use crate::machine::Trial;
use crate::sense::{Aligned, LightSensor, Plain, SenseError, Shared, hush_libbpf, let_go};
use counter::Counter;
use programs::{Attached, Functions, Multi, attach, choose};

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
    window: [u64; 3],
    last: [u64; 2],
    off_end_ns: u64,
    spin_off_ns: u64,
    held_ns: u64,
    unused: [u64; 2],
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

/// `agent_rests` of bpf/account.bpf.c.
const RESTS: u32 = 1;
const RESTS_LONG: u32 = 2;

/// Wakes the resting agent when a vCPU has spun for a tenth of a window. In a long rest, it also
/// does so when counting begins to cost much.
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
    /// Rests until a vCPU spins, for at most `time`, or until `end` can be read. If the rest is
    /// `long`, many short spins end it, too.
    pub fn rest(&self, time: Duration, long: bool, end: BorrowedFd<'_>) -> io::Result<Woken> {
        self.tell(if long { RESTS_LONG } else { RESTS })?;
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
    functions: Functions,
    /// The links of the attached programs, those for ends before those for beginnings. Empty while
    /// spins are not counted.
    links: Vec<Attached>,
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
        let btf = Btf::from_vmlinux()?;
        if multi::is_possible(&btf)
            && let Ok(account) = Account::with(Multi::Try, &btf, records)
        {
            return Ok(account);
        }
        Account::with(Multi::Leave, &btf, records)
    }

    fn with(
        multi: Multi,
        btf: &Btf<'_>,
        records: Option<BorrowedFd<'_>>,
    ) -> Result<Account, SenseError> {
        let vcpus = libbpf_rs::num_possible_cpus()?;
        let mut open = ObjectBuilder::default().open_memory(&PROGRAMS.0)?;
        let functions = choose(&mut open, btf, multi);
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
        let (links, missing) = attach(&object, &functions)?;
        let attached_ns = cpu_ns() - began_ns;
        let counters = vec![Counter::default(); vcpus];
        Ok(Account { missing, attached_ns, records, counters, functions, links, object })
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
        (self.links, self.missing) = attach(&self.object, &self.functions)?;
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

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::HasSize;
    use std::mem::offset_of;

    use libbpf_rs::btf::types::{MemberAttr, Struct};

    use super::*;

    #[test]
    fn the_record_is_the_program_s() {
        let btf = Btf::from_path(concat!(env!("OUT_DIR"), "/account.bpf.o")).expect("its types");
        let of_program = btf.type_by_name::<Struct<'_>>("account").expect("struct account");
        assert_eq!(of_program.size(), size_of::<Record>());
        let begins = |field: &str| {
            let member = of_program.iter().find(|member| member.name == Some(field.as_ref()));
            match member.expect("a field of the program").attr {
                MemberAttr::Normal { offset } => offset as usize / 8,
                MemberAttr::BitField { .. } => panic!("{field} is a bit field"),
            }
        };
        for (field, offset) in [
            ("spin_ns", offset_of!(Record, spin_ns)),
            ("lost", offset_of!(Record, lost)),
            ("window_ns", offset_of!(Record, window)),
            ("last_since_ns", offset_of!(Record, last)),
            ("off_end_ns", offset_of!(Record, off_end_ns)),
            ("spin_off_ns", offset_of!(Record, spin_off_ns)),
            ("held_ns", offset_of!(Record, held_ns)),
        ] {
            assert_eq!(begins(field), offset, "{field}");
        }
    }
}

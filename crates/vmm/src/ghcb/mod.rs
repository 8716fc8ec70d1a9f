//! Device requests of a guest under emulated SEV-ES, which this program answers.
//!
//! The guest writes a request into its GHCB, a page of shared memory. With [`Way::Mapped`], this
//! program reads the page in its own mapping of the guest's memory. With [`Way::Calls`], it asks
//! KVM for each part of the page, as a VMM must on a hypervisor that maps nothing.

pub mod answer;
pub mod page;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use kvm_ioctls::VmFd;

use crate::access::counters::{add, read};
use crate::error::VmmError;
use crate::es_emu;
use crate::machine::Machine;
use crate::memory::Memory;
use page::{Calls, Mapped, Page};

/// Who reads the GHCB when the guest asks a device of this program, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// KVM, which gives this program an exit for a port or for device memory.
    #[default]
    Kernel,
    /// This program, in the guest's shared memory.
    Mapped,
    /// This program, by a call into KVM for each part of up to 16 bytes.
    Calls,
}

impl Way {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Way::Kernel => "kernel",
            Way::Mapped => "mapped",
            Way::Calls => "calls",
        }
    }
}

/// Counters of all vCPUs together. They are exact once the vCPUs' threads have ended.
#[derive(Debug, Default)]
pub struct Counters {
    /// VMGEXITs that this program answered.
    pub exits: AtomicU64,
    /// Reads and writes of parts of GHCBs.
    pub accesses: AtomicU64,
    /// Calls into KVM that those accesses took.
    pub calls: AtomicU64,
    /// Nanoseconds from the exit to the end of the answer; 0 unless they are measured.
    pub ns: AtomicU64,
}

/// The state that a vCPU's thread needs to answer requests.
#[derive(Debug, Clone)]
pub struct Reader {
    way: Way,
    vm: Arc<VmFd>,
    shared: Memory,
    timed: bool,
    counters: Arc<Counters>,
}

impl Reader {
    /// Returns a reader of GHCBs in `shared`, and asks KVM for them. Returns `None` if KVM reads
    /// GHCBs itself. If `timed`, the reader measures how long its answers take.
    pub fn new(
        way: Way,
        vm: &Arc<VmFd>,
        shared: &Memory,
        timed: bool,
    ) -> Result<Option<Reader>, VmmError> {
        if way == Way::Kernel {
            return Ok(None);
        }
        es_emu::take_ghcbs(vm)?;
        let (vm, shared, counters) = (Arc::clone(vm), shared.clone(), Arc::default());
        Ok(Some(Reader { way, vm, shared, timed, counters }))
    }

    /// Answers the request in the GHCB of vCPU `vcpu`, whose address is `gpa`. Fails if KVM or the
    /// memory refuses an access because the guest moved its GHCB away.
    pub fn answer(&self, vcpu: u8, gpa: u64, machine: &Machine) -> io::Result<()> {
        let start = self.timed.then(Instant::now);
        let counters = &*self.counters;
        add(&counters.exits, 1);
        if self.way == Way::Calls {
            self.by(Calls::new(&self.vm, vcpu, &counters.calls), gpa, machine)?;
        } else {
            self.by(Mapped::new(&self.shared, gpa)?, gpa, machine)?;
        }
        let ns = start.map_or(0, |start| start.elapsed().as_nanos() as u64);
        add(&counters.ns, ns);
        Ok(())
    }

    fn by(&self, page: impl Page, gpa: u64, machine: &Machine) -> io::Result<()> {
        let mut page = page::Counted { page, accesses: 0 };
        let answered = answer::answer(&mut page, gpa, machine);
        add(&self.counters.accesses, page.accesses);
        answered
    }

    /// Returns the counters as a line of JSON.
    pub fn json(&self) -> String {
        let Counters { exits, accesses, calls, ns } = &*self.counters;
        let [exits, accesses, calls, ns] = [exits, accesses, calls, ns].map(read);
        let way = self.way.name();
        format!(
            "{{\"ghcb\":\"{way}\",\"exits\":{exits},\"accesses\":{accesses},\"calls\":{calls},\
             \"ns\":{ns}}}\n"
        )
    }
}

//! seccomp: the system calls that each kind of thread may make. Any other call kills the process.
//!
//! A thread installs its filter as soon as its resources are ready. All files are open by then. No
//! filter allows a thread to open, connect, execute or make memory executable.

use std::collections::BTreeMap;
use std::sync::Arc;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::virtio::tap::{TUNSETOFFLOAD, TUNSETQUEUE};

/// KVM's ioctl requests that a running VM needs (linux/kvm.h).
const KVM_RUN: u64 = 0xae80;
const KVM_GET_REGS: u64 = 0x8090_ae81;
const KVM_SET_GSI_ROUTING: u64 = 0x4008_ae6a;
const KVM_MEMORY_ENCRYPT_OP: u64 = 0xc008_aeba;
/// Requests that restore the terminal (asm-generic/ioctls.h); glibc 2.42 and later use the last
/// two.
const TCGETS: u64 = 0x5401;
const TCSETS: u64 = 0x5402;
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;

/// System calls for memory, locks, events and the end of a thread.
const COMMON: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];
/// System calls by which a device's thread waits for commands and queues.
const EVENTS: &[i64] = &[libc::SYS_epoll_ctl, libc::SYS_epoll_wait];

/// A kind of thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The main thread, which waits for signals, input and the VM's end.
    Main,
    /// A vCPU's thread.
    Vcpu,
    /// The thread of a vCPU whose GHCB this program reads.
    GhcbVcpu,
    /// A console's worker.
    Console,
    /// A disk's worker.
    Block,
    /// The worker of a pair of network queues.
    Net,
    /// The source of revocations.
    Revoker,
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Kind; 7] = [
        Kind::Main,
        Kind::Vcpu,
        Kind::GhcbVcpu,
        Kind::Console,
        Kind::Block,
        Kind::Net,
        Kind::Revoker,
    ];

    /// Returns the thread's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Main => "main",
            Kind::Vcpu => "vcpu",
            Kind::GhcbVcpu => "ghcb-vcpu",
            Kind::Console => "console",
            Kind::Block => "block",
            Kind::Net => "net",
            Kind::Revoker => "revoker",
        }
    }

    /// Returns the system calls that this kind may make with any arguments, [`COMMON`] included.
    fn calls(self) -> Vec<i64> {
        let own: &[i64] = match self {
            Kind::Main => &[libc::SYS_clock_nanosleep],
            // A vCPU may wait for the reader of standard output.
            Kind::Vcpu | Kind::GhcbVcpu => &[libc::SYS_poll],
            Kind::Revoker => &[],
            Kind::Console => &[libc::SYS_writev],
            Kind::Block => &[libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_fdatasync],
            Kind::Net => &[libc::SYS_readv, libc::SYS_writev],
        };
        let waits = !matches!(self, Kind::Vcpu | Kind::GhcbVcpu | Kind::Revoker);
        let events = if waits { EVENTS } else { &[] };
        [COMMON, events, own].concat()
    }

    /// Returns the ioctl requests that this kind may make.
    fn requests(self) -> &'static [u64] {
        match self {
            Kind::Main => &[TCGETS, TCSETS, TCGETS2, TCSETS2],
            Kind::Vcpu => &[KVM_RUN, KVM_GET_REGS, KVM_SET_GSI_ROUTING],
            Kind::GhcbVcpu => &[KVM_RUN, KVM_GET_REGS, KVM_SET_GSI_ROUTING, KVM_MEMORY_ENCRYPT_OP],
            Kind::Net => &[TUNSETOFFLOAD, TUNSETQUEUE],
            Kind::Console | Kind::Block | Kind::Revoker => &[],
        }
    }
}

/// The filters of all kinds, or none if threads are not confined.
#[derive(Debug, Clone, Default)]
pub struct Sandbox(Option<Arc<[BpfProgram; Kind::ALL.len()]>>);

impl Sandbox {
    /// Prepares the filters of all kinds.
    pub fn new() -> Result<Sandbox, seccompiler::Error> {
        let mut programs: [BpfProgram; Kind::ALL.len()] = Default::default();
        for (program, kind) in programs.iter_mut().zip(Kind::ALL) {
            *program = filter(kind)?;
        }
        Ok(Sandbox(Some(Arc::new(programs))))
    }

    /// Returns a sandbox that confines no thread.
    pub fn none() -> Sandbox {
        Sandbox(None)
    }

    /// Confines the calling thread until it ends.
    pub fn enter(&self, kind: Kind) -> Result<(), seccompiler::Error> {
        match &self.0 {
            Some(programs) => seccompiler::apply_filter(&programs[kind as usize]),
            None => Ok(()),
        }
    }
}

fn filter(kind: Kind) -> Result<BpfProgram, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        kind.calls().into_iter().map(|call| (call, vec![])).collect();
    let condition = |argument, length, operator, value| {
        let condition = SeccompCondition::new(argument, length, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let executable = libc::PROT_EXEC as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let rule = condition(2, Len::Dword, Op::MaskedEq(executable), 0)?;
        rules.insert(call, vec![rule]);
    }
    // The process may signal only its own threads: to stop a vCPU, and to abort.
    let is_own = condition(0, Len::Dword, Op::Eq, std::process::id().into())?;
    rules.insert(libc::SYS_tgkill, vec![is_own]);
    // In debug builds, Rust's library checks whether a file is open before it closes the file.
    let is_open = condition(1, Len::Dword, Op::Eq, libc::F_GETFD as u64)?;
    rules.insert(libc::SYS_fcntl, vec![is_open]);
    let requests = kind.requests().iter();
    let requests = requests.map(|request| condition(1, Len::Dword, Op::Eq, *request));
    let requests = requests.collect::<Result<Vec<_>, _>>()?;
    if !requests.is_empty() {
        rules.insert(libc::SYS_ioctl, requests);
    }
    let (otherwise, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, otherwise, allow, TargetArch::x86_64)?;
    Ok(filter.try_into()?)
}

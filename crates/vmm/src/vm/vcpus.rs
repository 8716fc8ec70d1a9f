//! The vCPUs' threads.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};
use vmm_sys_util::signal::{register_signal_handler, unblock_signal};

use crate::access::conversions::Conversions;
use crate::error::{Ended, Step, VmmError};
use crate::es_emu;
use crate::load::Registers;
use crate::machine::{Machine, PanicEnds};
use crate::sandbox::{Kind, Sandbox};
use crate::vcpu::{SevEs, cpuid, registers, run};

/// The signal that makes a vCPU leave KVM.
const KICK: libc::c_int = libc::SIGUSR1;
/// The interval of kicks. A kick is lost if it arrives between the vCPU's check for the end and its
/// entry into KVM, so kicks repeat.
const KICK_INTERVAL: Duration = Duration::from_millis(5);

/// Creates the vCPUs with these registers. If `converts`, offers to report conversions of pages.
pub fn create(
    kvm: &Kvm,
    vm: &VmFd,
    count: u8,
    registers: &Registers,
    converts: bool,
) -> Result<Vec<VcpuFd>, VmmError> {
    let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).step("read KVM's CPUID")?;
    let tsc_deadline = kvm.check_extension(Cap::TscDeadlineTimer);
    let mut vcpus = Vec::new();
    for id in 0..count {
        let vcpu = vm.create_vcpu(id.into()).step("create a vCPU")?;
        let mut entries = cpuid::of(&supported, id, count, tsc_deadline);
        if let Registers::SevEs(_) = registers {
            es_emu::add_leaf(&mut entries);
        }
        if converts {
            Conversions::offer(&mut entries);
        }
        let list = CpuId::from_entries(&entries)
            .map_err(|error| io::Error::other(format!("{error:?}")))
            .step("list CPUID")?;
        vcpu.set_cpuid2(&list).step("set a vCPU's CPUID")?;
        registers::set_firmware_state(&vcpu)?;
        match registers {
            Registers::Native(context) if id == 0 => registers::set(&vcpu, context)?,
            Registers::Native(_) => {}
            Registers::SevEs(vmsas) => es_emu::set(&vcpu, &vmsas[usize::from(id)])?,
        }
        vcpus.push(vcpu);
    }
    if let Registers::SevEs(_) = registers {
        es_emu::launch(vm, count)?;
    }
    Ok(vcpus)
}

/// Lets [`KICK`] interrupt system calls of threads that the calling thread starts. The process may
/// have inherited a mask that blocks the signal.
fn prepare() -> io::Result<()> {
    register_signal_handler(KICK, nothing)
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    unblock_signal(KICK).map_err(|error| io::Error::other(error.to_string()))
}

/// The vCPUs' threads, which run until the VM ends.
pub struct Threads(Vec<JoinHandle<()>>);

/// Starts a thread for each vCPU. If this fails, the VM has ended.
pub fn start(
    vcpus: Vec<VcpuFd>,
    machine: &Arc<Machine>,
    sev_es: &SevEs,
    sandbox: &Sandbox,
) -> Result<Threads, VmmError> {
    prepare().step("handle a signal")?;
    let mut threads = Threads(Vec::new());
    for (vcpu, id) in vcpus.into_iter().zip(0..) {
        let (own, sandbox, sev_es) = (Arc::clone(machine), sandbox.clone(), sev_es.clone());
        let kind = if sev_es.ghcb.is_some() { Kind::GhcbVcpu } else { Kind::Vcpu };
        let thread = Builder::new().name(format!("{}{id}", Kind::Vcpu.name())).spawn(move || {
            let _guard = PanicEnds(Arc::clone(&own.end));
            match sandbox.enter(kind) {
                Ok(()) => run(vcpu, id, &own, &sev_es),
                Err(error) => own.end.set(Ended::Failed(error.to_string())),
            }
        });
        match thread {
            Ok(thread) => threads.0.push(thread),
            Err(error) => {
                machine.end.set(Ended::Failed("a vCPU's thread did not start".into()));
                threads.stop();
                return Err(error).step("start a vCPU's thread");
            }
        }
    }
    Ok(threads)
}

impl Threads {
    /// Waits for the threads of a VM that has ended. Kicks all of them, because one may wait for a
    /// lock that another one holds in a system call.
    pub fn stop(self) {
        while self.kick() {
            thread::sleep(KICK_INTERVAL);
        }
        for thread in self.0 {
            // If the thread panicked, the VM has ended for that reason.
            let _ = thread.join();
        }
    }

    /// Kicks the threads that run. Returns `false` if none does.
    fn kick(&self) -> bool {
        let mut running = self.0.iter().filter(|thread| !thread.is_finished()).peekable();
        let any = running.peek().is_some();
        // SAFETY: the thread was not joined, so its ID is valid.
        running.for_each(|thread| unsafe {
            libc::pthread_kill(thread.as_pthread_t(), KICK);
        });
        any
    }
}

/// Does nothing. Its existence as a handler makes the signal interrupt system calls.
extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use vmm_sys_util::signal::block_signal;

    use super::*;
    use crate::machine::lock;

    /// Starts a thread that reads once, under the lock.
    fn reader(mut pipe: UnixStream, mutex: &Arc<Mutex<()>>) -> JoinHandle<()> {
        let mutex = Arc::clone(mutex);
        thread::spawn(move || {
            let _guard = lock(&mutex);
            let _ = pipe.read(&mut [0]);
        })
    }

    #[test]
    fn a_thread_that_waits_for_a_kicked_one_ends() {
        block_signal(KICK).unwrap();
        prepare().unwrap();
        let mutex = Arc::new(Mutex::new(()));
        let (input, _output) = UnixStream::pair().unwrap();
        let holder = reader(input.try_clone().unwrap(), &mutex);
        while mutex.try_lock().is_ok() {
            thread::yield_now();
        }
        let waiter = reader(input, &mutex);
        let (done, ended) = channel();
        thread::spawn(move || {
            Threads(vec![waiter, holder]).stop();
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(10)).expect("the threads hang");
    }
}

//! The vCPUs' threads.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use igvm_defs::IgvmNativeVpContextX64;
use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};
use vmm_sys_util::signal::register_signal_handler;

use crate::error::{Ended, Step, VmmError};
use crate::machine::{Machine, PanicEnds};
use crate::sandbox::{Kind, Sandbox};
use crate::vcpu::{cpuid, registers, run};

/// The signal that takes a vCPU out of KVM.
const KICK: libc::c_int = libc::SIGUSR1;
/// A kick between a vCPU's look at the end and its entry into KVM is lost: so often there is
/// another one.
const KICK_INTERVAL: Duration = Duration::from_millis(5);

/// Creates the vCPUs; the first one has these registers.
pub fn create(
    kvm: &Kvm,
    vm: &VmFd,
    count: u8,
    context: &IgvmNativeVpContextX64,
) -> Result<Vec<VcpuFd>, VmmError> {
    let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).step("read KVM's CPUID")?;
    let tsc_deadline = kvm.check_extension(Cap::TscDeadlineTimer);
    let mut vcpus = Vec::new();
    for id in 0..count {
        let vcpu = vm.create_vcpu(id.into()).step("create a vCPU")?;
        let entries = cpuid::of(&supported, id, count, tsc_deadline);
        let list = CpuId::from_entries(&entries)
            .map_err(|error| std::io::Error::other(format!("{error:?}")))
            .step("list CPUID")?;
        vcpu.set_cpuid2(&list).step("set a vCPU's CPUID")?;
        registers::set_firmware_state(&vcpu)?;
        if id == 0 {
            registers::set(&vcpu, context)?;
        }
        vcpus.push(vcpu);
    }
    Ok(vcpus)
}

/// Threads that run until the VM ends.
pub struct Threads(Vec<JoinHandle<()>>);

/// Starts a thread for each vCPU. If one fails, the VM has ended.
pub fn start(
    vcpus: Vec<VcpuFd>,
    machine: &Arc<Machine>,
    sandbox: &Sandbox,
) -> Result<Threads, VmmError> {
    register_signal_handler(KICK, nothing)
        .map_err(|error| std::io::Error::from_raw_os_error(error.errno()))
        .step("handle a signal")?;
    let mut threads = Threads(Vec::new());
    for (vcpu, id) in vcpus.into_iter().zip(0..) {
        let (own, sandbox) = (Arc::clone(machine), sandbox.clone());
        let thread = Builder::new().name(format!("{}{id}", Kind::Vcpu.name())).spawn(move || {
            let _guard = PanicEnds(Arc::clone(&own.end));
            match sandbox.enter(Kind::Vcpu) {
                Ok(()) => run(vcpu, id, &own),
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
    /// Waits for the threads of a VM that has ended.
    pub fn stop(self) {
        for thread in self.0 {
            while !thread.is_finished() {
                // SAFETY: the thread was not joined, so its number is valid.
                unsafe { libc::pthread_kill(thread.as_pthread_t(), KICK) };
                thread::sleep(KICK_INTERVAL);
            }
            // If it panicked, the VM has ended for that reason.
            let _ = thread.join();
        }
    }
}

/// Interrupts a system call by its existence.
extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

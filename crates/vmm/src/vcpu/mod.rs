//! vCPUs, each of which has a thread.

pub mod cpuid;
pub mod registers;

use kvm_bindings::{KVM_SYSTEM_EVENT_SEV_TERM, kvm_run};
use kvm_ioctls::{HypercallExit, ReadMsrExit, VcpuExit, VcpuFd, WriteMsrExit};

use crate::access::conversions::Conversions;
use crate::access::key::Key;
use crate::error::Ended;
use crate::es_emu;
use crate::ghcb::Reader;
use crate::machine::{End, Machine};

/// The state of a vCPU's thread for emulated SEV-ES; empty for other guests.
#[derive(Debug, Clone, Default)]
pub struct SevEs {
    /// The reader of the vCPU's GHCB, unless KVM reads it.
    pub ghcb: Option<Reader>,
    /// The protection key of private memory, if the processor has keys.
    pub private: Option<Key>,
}

/// Runs a vCPU until the VM ends. To stop the vCPU, end the VM and signal the vCPU's thread.
pub fn run(mut vcpu: VcpuFd, id: u8, machine: &Machine, sev_es: &SevEs) {
    while machine.end.get().is_none() {
        sev_es.private.iter().for_each(|key| key.allow());
        let exit = vcpu.run();
        sev_es.private.iter().for_each(|key| key.deny());
        let handled = match (exit, &sev_es.ghcb) {
            (Ok(VcpuExit::Unsupported(es_emu::EXIT_GHCB)), Some(ghcb)) => {
                let gpa = es_emu::ghcb_of(vcpu.get_kvm_run());
                let answered = ghcb.answer(id, gpa, machine);
                answered.map_err(|error| format!("its GHCB at {gpa:#x} is out of reach: {error}"))
            }
            (Ok(VcpuExit::IoIn(port, data)), _) => {
                let (at, bytes) = (data.as_mut_ptr(), data.len());
                let size = access_bytes(vcpu.get_kvm_run());
                // SAFETY: the bytes are behind struct kvm_run, and only this thread uses them.
                let data = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
                data.chunks_mut(size).for_each(|access| machine.port_read(port, access));
                Ok(())
            }
            (Ok(VcpuExit::IoOut(port, data)), _) => {
                let (at, bytes) = (data.as_ptr(), data.len());
                let size = access_bytes(vcpu.get_kvm_run());
                // SAFETY: as above.
                let data = unsafe { std::slice::from_raw_parts(at, bytes) };
                data.chunks(size).for_each(|access| machine.port_write(port, access));
                Ok(())
            }
            (Ok(VcpuExit::InternalError), _) => Err(internal_error(vcpu.get_kvm_run())),
            (Ok(exit), _) => handle(exit, machine),
            // A signal arrived, or the vCPU has not been started yet.
            (Err(error), _) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => Ok(()),
            (Err(error), _) => {
                fail(&machine.end, id, error);
                Ok(())
            }
        };
        if let Err(why) = handled {
            let rip = vcpu.get_regs().map(|registers| format!(" (RIP {:#x})", registers.rip));
            let text = format!("vCPU {id} cannot go on: {why}{}", rip.unwrap_or_default());
            machine.end.set(Ended::Crashed(text));
        }
    }
}

fn fail(end: &End, id: u8, error: kvm_ioctls::Error) {
    end.set(Ended::Failed(format!("cannot run vCPU {id}: {error}")));
}

/// Returns the bytes of each access of an I/O exit. A string instruction makes several accesses to
/// one port in one exit.
fn access_bytes(run: &kvm_run) -> usize {
    // SAFETY: KVM has written this part of the union, and any bytes are a number.
    usize::from(unsafe { run.__bindgen_anon_1.io.size }).max(1)
}

/// Returns the reason of KVM_EXIT_INTERNAL_ERROR (KVM_INTERNAL_ERROR_EMULATION is 1).
fn internal_error(run: &kvm_run) -> String {
    // SAFETY: KVM has written this part of the union, and any bytes are a number.
    match unsafe { run.__bindgen_anon_1.internal.suberror } {
        1 => "KVM cannot emulate an instruction".into(),
        other => format!("KVM has an internal error of kind {other}"),
    }
}

/// Returns the guest's conversions. KVM has these exits only if this program asked for them.
fn converted(machine: &Machine) -> Result<&Conversions, String> {
    machine.conversions.as_ref().ok_or_else(|| "KVM has an exit that was not asked for".into())
}

fn handle(exit: VcpuExit, machine: &Machine) -> Result<(), String> {
    match exit {
        VcpuExit::MmioRead(address, data) => machine.memory_read(address, data),
        VcpuExit::MmioWrite(address, data) => machine.memory_write(address, data),
        VcpuExit::Hypercall(HypercallExit { nr, args, ret, .. }) => {
            *ret = converted(machine)?.call(nr, &args);
        }
        VcpuExit::X86Rdmsr(ReadMsrExit { error, index, data, .. }) => {
            let value = converted(machine)?.read_msr(index);
            (*error, *data) = (u8::from(value.is_none()), value.unwrap_or_default());
        }
        VcpuExit::X86Wrmsr(WriteMsrExit { error, index, data, .. }) => {
            *error = u8::from(!converted(machine)?.write_msr(index, data));
        }
        VcpuExit::Hlt | VcpuExit::Intr | VcpuExit::IrqWindowOpen => {}
        VcpuExit::Shutdown => return Err("a triple fault".into()),
        VcpuExit::FailEntry(reason, _) => return Err(format!("entry failed for {reason:#x}")),
        VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_SEV_TERM, data) => {
            let [reason, ..] = data else {
                return Err("the guest asks for its termination".into());
            };
            return Err(format!("the guest asks for its termination, by {reason:#x}"));
        }
        other => return Err(format!("KVM exits with {other:?}")),
    }
    Ok(())
}

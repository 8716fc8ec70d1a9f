//! vCPUs: a thread each.

pub mod cpuid;
pub mod registers;

use kvm_bindings::KVM_SYSTEM_EVENT_SEV_TERM;
use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::access::key::Key;
use crate::error::Ended;
use crate::es_emu;
use crate::ghcb::Reader;
use crate::machine::{End, Machine};

/// What a vCPU's thread has for emulated SEV-ES; nothing for other guests.
#[derive(Debug, Clone, Default)]
pub struct SevEs {
    /// What reads its GHCB, unless KVM does.
    pub ghcb: Option<Reader>,
    /// The key of private memory, if there is one.
    pub private: Option<Key>,
}

/// Runs a vCPU until the VM ends. To stop it, end the VM and signal its thread.
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
            (Ok(exit), _) => handle(exit, machine),
            // A signal, or a vCPU that was not started yet.
            (Err(error), _) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => Ok(()),
            (Err(error), _) => {
                fail(&machine.end, id, error);
                Ok(())
            }
        };
        if let Err(why) = handled {
            let at = vcpu.get_regs().map_or(0, |registers| registers.rip);
            let text = format!("vCPU {id} cannot go on: {why} (RIP {at:#x})");
            machine.end.set(Ended::Crashed(text));
        }
    }
}

fn fail(end: &End, id: u8, error: kvm_ioctls::Error) {
    end.set(Ended::Failed(format!("cannot run vCPU {id}: {error}")));
}

fn handle(exit: VcpuExit, machine: &Machine) -> Result<(), String> {
    match exit {
        VcpuExit::IoIn(port, data) => machine.port_read(port, data),
        VcpuExit::IoOut(port, data) => machine.port_write(port, data),
        VcpuExit::MmioRead(address, data) => machine.memory_read(address, data),
        VcpuExit::MmioWrite(address, data) => machine.memory_write(address, data),
        VcpuExit::Hlt | VcpuExit::Intr | VcpuExit::IrqWindowOpen => {}
        VcpuExit::Shutdown => return Err("a triple fault".into()),
        VcpuExit::FailEntry(reason, _) => return Err(format!("entry failed for {reason:#x}")),
        VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_SEV_TERM, data) => {
            let [reason, ..] = data else {
                return Err("the guest asks for its termination".into());
            };
            return Err(format!("the guest asks for its termination, by {reason:#x}"));
        }
        VcpuExit::InternalError => return Err("KVM cannot emulate an instruction".into()),
        other => return Err(format!("KVM exits with {other:?}")),
    }
    Ok(())
}

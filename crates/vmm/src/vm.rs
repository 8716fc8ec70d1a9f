//! A VM from its start to its end.

mod devices;
mod events;
mod vcpus;

use std::io;
use std::sync::Arc;

use kvm_bindings::{KVM_PIT_SPEAKER_DUMMY, kvm_pit_config};
use kvm_ioctls::{Kvm, VmFd};
use vmm_sys_util::eventfd::EventFd;

use crate::config::Config;
use crate::error::{Ended, Step, VmmError};
use crate::es_emu;
use crate::load;
use crate::machine::{End, Machine};
use crate::memory;
use crate::pc::power::Power;
use crate::pc::serial::{COM1_IRQ, Com1};
use crate::pci::host::{DEVICES_MAX, Host};
use crate::pci::routes::Routes;
use crate::sandbox::{Kind, Sandbox};
use events::Events;

/// Where KVM keeps four pages on Intel's processors: above the local APICs, where no device is and
/// the DSDT promises nothing to PCI.
const TSS: usize = 0xfffb_d000;
const IDENTITY_MAP: u64 = 0xfffb_c000;

/// Runs a VM until it ends. Blocks SIGINT, SIGTERM and SIGHUP in the calling thread meanwhile, and
/// confines the thread if the configuration says so: the process can do little else afterwards.
pub fn run(config: &Config) -> Result<Ended, VmmError> {
    let (asked, max) = (config.devices(), DEVICES_MAX);
    if asked > max {
        return Err(VmmError::Devices { asked, max });
    }
    let mut events = Events::new(libc::STDIN_FILENO)?;
    let kvm = Kvm::new()
        .map_err(|error| VmmError::Unavailable(io::Error::from_raw_os_error(error.errno())))?;
    let max = kvm.get_max_vcpus();
    if usize::from(config.vcpus) > max {
        return Err(VmmError::Vcpus { asked: config.vcpus, max });
    }
    let memory = memory::new(config.memory_bytes)?;
    let private = config.es_emu.then(|| memory::new(config.memory_bytes)).transpose()?;
    let vm = Arc::new(create(&kvm, config)?);
    memory::register(&memory, &vm)?;
    private.as_ref().map_or(Ok(()), |private| es_emu::register(private, &vm))?;
    let registers = load::load(config, private.as_ref().unwrap_or(&memory))?;
    let sandbox = if config.seccomp { Sandbox::new()? } else { Sandbox::none() };
    let end = Arc::new(End::new(EventFd::new(libc::EFD_NONBLOCK).step("make an eventfd")?));
    let routes = Arc::new(Routes::new(Arc::clone(&vm))?);
    let setting = devices::Setting {
        vm: &vm,
        routes: &routes,
        memory: &memory,
        sandbox: &sandbox,
        end: &end,
    };
    let functions = setting.devices(config)?;
    let (interrupt, drained) = (routes.pin(COM1_IRQ)?, events.drained()?);
    let com1 = Com1::new(interrupt, drained, io::stdout(), Arc::clone(&end));
    let com1 = com1.step("copy standard output")?;
    let machine =
        Machine { com1, power: Power::default(), pci: Host::new(functions), end: Arc::clone(&end) };
    let machine = Arc::new(machine);
    let vcpus = vcpus::create(&kvm, &vm, config.vcpus, &registers)?;
    drop(registers);
    let threads = vcpus::start(vcpus, &machine, &sandbox)?;
    let confined = sandbox.enter(Kind::Main).map_err(VmmError::from);
    let waited = confined.and_then(|()| events.wait(&machine));
    // Whatever happened, nothing runs on.
    end.set(Ended::Failed("the VM was stopped".into()));
    threads.stop();
    machine.pci.stop();
    waited?;
    Ok(end.get().cloned().unwrap_or(Ended::Interrupted))
}

/// A VM with the PC's interrupt controllers and timer.
fn create(kvm: &Kvm, config: &Config) -> Result<VmFd, VmmError> {
    let vm =
        if config.es_emu { es_emu::create(kvm)? } else { kvm.create_vm().step("create a VM")? };
    vm.set_tss_address(TSS).step("place KVM's pages")?;
    vm.set_identity_map_address(IDENTITY_MAP).step("place KVM's pages")?;
    vm.create_irq_chip().step("create interrupt controllers")?;
    let pit = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
    vm.create_pit2(pit).step("create a timer")?;
    Ok(vm)
}

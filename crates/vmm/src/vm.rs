//! A VM, from its start to its end.

mod devices;
mod events;
mod stats;
mod vcpus;

use std::io::{self, Write};
use std::sync::Arc;

use kvm_bindings::{KVM_PIT_SPEAKER_DUMMY, kvm_pit_config};
use kvm_ioctls::{Kvm, VmFd};
use vmm_sys_util::eventfd::EventFd;

use crate::access::Policy;
use crate::access::conversions::Conversions;
use crate::access::gate::die_of_faults;
use crate::config::Config;
use crate::error::{Ended, Step, VmmError};
use crate::es_emu;
use crate::ghcb::Reader;
use crate::load;
use crate::machine::{End, Machine};
use crate::memory::{self, Private, Ram};
use crate::pc::clock::Clock;
use crate::pc::power::Power;
use crate::pc::serial::{COM1_IRQ, Com1};
use crate::pci::host::{DEVICES_MAX, Host};
use crate::pci::routes::Routes;
use crate::sandbox::{Kind, Sandbox};
use crate::vcpu::SevEs;
use events::Events;
use stats::Stats;

/// The address of the four pages that KVM needs on Intel processors. They are above the local
/// APICs: no device is there, and the DSDT gives no address there to PCI.
const TSS: usize = 0xfffb_d000;
const IDENTITY_MAP: u64 = 0xfffb_c000;

/// The warning that page access is weaker on a machine without protection keys.
const NO_KEY: &str = "unspin-vmm: no protection key: pages that are not granted stay in a mapping \
                      that devices do not use, and that nothing keeps them from";

/// The same warning for emulated SEV-ES.
const NO_OWN_KEY: &str = "unspin-vmm: no protection key: nothing keeps this program from the \
                          guest's private memory";

/// Runs a VM until it ends. Once the VM's files are loaded, blocks SIGINT, SIGTERM and SIGHUP in
/// the calling thread. If the configuration says so, also confines that thread, and the process can
/// do little else afterwards.
pub fn run(config: &Config) -> Result<Ended, VmmError> {
    let (asked, max) = (config.devices(), DEVICES_MAX);
    if asked > max {
        return Err(VmmError::Devices { asked, max });
    }
    die_of_faults();
    let kvm = Kvm::new()
        .map_err(|error| VmmError::Unavailable(io::Error::from_raw_os_error(error.errno())))?;
    let max = kvm.get_max_vcpus();
    if usize::from(config.vcpus) > max {
        return Err(VmmError::Vcpus { asked: config.vcpus, max });
    }
    let end = Arc::new(End::new(EventFd::new(libc::EFD_NONBLOCK).step("make an eventfd")?));
    let failed = Arc::clone(&end);
    let on_failure = Box::new(move |error: &io::Error| {
        let why = format!(
            "cannot give devices a page, or take it from them: {error}; raise vm.max_map_count"
        );
        failed.set(Ended::Failed(why));
    });
    let mut stats = config.stats.as_deref().map(Stats::create).transpose()?;
    let ram = Ram::new(config.memory_bytes, &config.access, on_failure)?;
    if config.access != Policy::Off && ram.key.is_none() {
        let _ = writeln!(io::stderr(), "{NO_KEY}");
    }
    let private = private(config)?;
    let own_key = private.as_ref().and_then(|private| private.key);
    let vm = Arc::new(create(&kvm, config)?);
    memory::register(&ram.guest, &vm)?;
    let private = private.as_ref().map(|private| &private.memory);
    private.map_or(Ok(()), |private| es_emu::register(private, &vm))?;
    let conversions = conversions(&vm, &ram, config)?;
    let ghcb = Reader::new(config.ghcb, &vm, &ram.guest, stats.is_some())?;
    let registers = load::load(config, private.unwrap_or(&ram.guest))?;
    // Threads inherit this denial. From now on, only KVM accesses private memory.
    own_key.iter().for_each(|key| key.deny());
    // Until here, signals end the process: it may read a file from a writer that never ends.
    let mut events = Events::new(libc::STDIN_FILENO)?;
    let sandbox = if config.seccomp { Sandbox::new()? } else { Sandbox::none() };
    let routes = Arc::new(Routes::new(Arc::clone(&vm))?);
    let setting = devices::Setting {
        vm: &vm,
        routes: &routes,
        memory: &ram.devices,
        ioeventfd: config.ioeventfd,
        key: ram.key,
        sandbox: &sandbox,
        end: &end,
    };
    let functions = setting.devices(config)?;
    let (interrupt, drained) = (routes.pin(COM1_IRQ)?, events.drained()?);
    let com1 = Com1::new(interrupt, drained, io::stdout(), Arc::clone(&end));
    let com1 = com1.step("copy standard output")?;
    let converts = conversions.is_some();
    let machine = Machine {
        com1,
        power: Power::default(),
        clock: Clock::default(),
        pci: Host::new(functions),
        conversions,
        end: Arc::clone(&end),
    };
    let machine = Arc::new(machine);
    let sev_es = SevEs { ghcb, private: own_key };
    let vcpus = vcpus::create(&kvm, &vm, config.vcpus, &registers, converts)?;
    drop(registers);
    let revoker = setting.revoker(config.revoke_per_s)?;
    let threads = vcpus::start(vcpus, &machine, &sev_es, &sandbox)?;
    // Threads inherit the right to use the key. The vCPUs are the last threads that need it.
    ram.key.iter().for_each(|key| key.deny());
    let confined = sandbox.enter(Kind::Main).map_err(VmmError::from);
    let waited = confined.and_then(|()| events.wait(&machine));
    // In any case, no thread may go on running.
    end.set(Ended::Failed("the VM was stopped".into()));
    threads.stop();
    machine.pci.stop();
    drop(revoker);
    if let Some(stats) = &mut stats {
        stats.write(&ram, sev_es.ghcb.as_ref());
    }
    waited?;
    Ok(end.get().cloned().unwrap_or(Ended::Interrupted))
}

/// Creates the private memory, if the guest has one.
fn private(config: &Config) -> Result<Option<Private>, VmmError> {
    let private = config.es_emu.then(|| Private::new(config.memory_bytes)).transpose()?;
    if private.as_ref().is_some_and(|private| private.key.is_none()) {
        let _ = writeln!(io::stderr(), "{NO_OWN_KEY}");
    }
    Ok(private)
}

/// Returns the guest's conversions of pages, if access to pages is restricted and KVM reports them.
fn conversions(vm: &VmFd, ram: &Ram, config: &Config) -> Result<Option<Conversions>, VmmError> {
    let Some(table) = ram.devices.table() else { return Ok(None) };
    let able = Conversions::ask_for(vm)?;
    Ok(able.then(|| Conversions::new(Arc::clone(table), config.es_emu)))
}

/// Creates a VM with the PC's interrupt controllers and timer.
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

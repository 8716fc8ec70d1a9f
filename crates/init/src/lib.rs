//! PID 1 of a lab guest. The init mounts the file systems that a workload needs, loads the modules
//! that the initramfs lists, opens the control channel and serves it until the lab asks it to power
//! off. If the initramfs holds an errand, the init runs that instead, without a channel.

mod background;
mod facts;
mod heartbeat;
mod job;
mod mark;
mod mounts;
mod port;
mod scheduler;
mod serve;
mod unattended;

use std::path::Path;

use unspin_wire::guest::MODULE_LIST;

/// Runs a guest. Only for PID 1; ends by powering the machine off.
pub fn main() -> ! {
    if let Err(error) = boot() {
        // The error can go only to the console, whose log the lab keeps.
        eprintln!("unspin init: {error:#}");
    }
    power_off()
}

/// Returns whether this process is the init of a lab guest.
pub fn is_init() -> bool {
    std::process::id() == 1 && Path::new(unspin_wire::guest::MARKER).exists()
}

fn boot() -> anyhow::Result<()> {
    mounts::mount_all()?;
    load_modules()?;
    if let Some(errand) = unattended::errand()? {
        return unattended::run(&errand);
    }
    let (reader, writer) = port::open()?;
    serve::serve(reader, writer)
}

/// Loads the modules in the order of the list; skips those that are built in.
fn load_modules() -> anyhow::Result<()> {
    let Ok(list) = std::fs::read_to_string(MODULE_LIST) else { return Ok(()) };
    for path in list.lines() {
        let file = std::fs::File::open(path)?;
        match nix::kmod::finit_module(&file, c"", nix::kmod::ModuleInitFlags::empty()) {
            Ok(()) | Err(nix::Error::EEXIST) => {}
            Err(error) => eprintln!("unspin init: module {path}: {error}"),
        }
    }
    Ok(())
}

fn power_off() -> ! {
    nix::unistd::sync();
    let _ = nix::sys::reboot::reboot(nix::sys::reboot::RebootMode::RB_POWER_OFF);
    loop {
        std::thread::park();
    }
}

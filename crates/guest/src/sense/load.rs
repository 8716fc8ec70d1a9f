//! What the kernel is asked to load, and with which settings.

use std::fs;
use std::sync::OnceLock;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::{Link, Object, OpenObject};
use unspin_model::diagnosis::Spinlock;

use super::{SenseError, Settings};
use crate::machine::Facts;
use crate::{doctor, spinning};

/// Without these there is nothing to tell.
const NEEDED: [&str; 3] = ["local_timer_entry", "sched_switch", "cpu_idle"];

/// What makes the first vCPU's ticks.
const TICKS: &str = "/sys/devices/system/clockevents/clockevent0/current_device";

/// Programs that this kernel has nothing to attach to are not loaded, nor those that
/// watch the spinlock's slow path where all waiters pass the tracepoints: in the PV queue.
pub(super) fn leave_out_missing(
    open: &mut OpenObject,
    functions: bool,
) -> Result<Vec<String>, SenseError> {
    check_ticks()?;
    let btf = Btf::from_vmlinux()?;
    static SPINLOCK: OnceLock<Spinlock> = OnceLock::new();
    let spinlock = *SPINLOCK.get_or_init(|| doctor::diagnose(&Facts::probe()).machine.spinlock);
    let mut missing = Vec::new();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let is_there = match section.split_once('/') {
            Some(("tp_btf", event)) => {
                btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{event}")).is_some()
            }
            Some((_, function)) => functions && btf.type_by_name::<Func<'_>>(function).is_some(),
            None => true,
        };
        let is_wanted = !name.starts_with("slowpath_") || spinlock != Spinlock::ParavirtualQueue;
        if !is_there && NEEDED.contains(&name.as_str()) {
            return Err(SenseError::Tracepoint(name));
        }
        if !is_there && is_wanted {
            missing.push(section);
        }
        program.set_autoload(is_there && is_wanted);
    }
    missing.dedup();
    Ok(missing)
}

/// Whether this machine's ticks can be seen: without them, no vCPU is found to be off.
pub(crate) fn check_ticks() -> Result<(), SenseError> {
    check_device(&fs::read_to_string(TICKS).unwrap_or_default())
}

/// Hyper-V's timer and Xen's have interrupts of their own, without a tracepoint.
fn check_device(device: &str) -> Result<(), SenseError> {
    match device.trim() {
        "" => Ok(()),
        device if device.starts_with("lapic") => Ok(()),
        device => Err(SenseError::Ticks(device.to_owned())),
    }
}

pub(super) fn configure(
    open: &mut OpenObject,
    settings: &Settings,
    vcpus: usize,
) -> Result<(), SenseError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if ["vcpus", "rings", "hearts"].contains(&name.as_str()) {
            map.set_max_entries(vcpus as u32)?;
        } else if name.ends_with(".rodata") {
            let bytes = map.initial_value_mut().expect("the settings have a value");
            let limits = settings.limits;
            let mut words = vec![limits.timer_ns, limits.wake_ns, settings.spin_ns];
            words.extend(spinning::ranges().into_iter().flat_map(|(from, to)| [from, to]));
            for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
        }
    }
    Ok(())
}

pub(super) fn attach(object: &Object) -> Result<Vec<Link>, SenseError> {
    let programs = object.progs_mut().filter(|program| program.autoload());
    Ok(programs.map(|program| program.attach()).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_from_the_local_apic() {
        for device in ["lapic-deadline\n", "lapic\n", ""] {
            assert!(check_device(device).is_ok(), "{device}");
        }
        for device in ["hyperv clockevent\n", "xen\n"] {
            assert!(matches!(check_device(device), Err(SenseError::Ticks(_))), "{device}");
        }
    }
}

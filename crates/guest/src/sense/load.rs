//! Chooses which programs the kernel loads, and with which settings.

use std::fs;
use std::sync::OnceLock;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::{Link, Object, OpenObject};
use unspin_model::diagnosis::Spinlock;

use super::{SenseError, Settings};
use crate::machine::{self, Facts};
use crate::spinning;

/// The programs without which nothing can be found.
const NEEDED: [&str; 3] = ["local_timer_entry", "sched_switch", "cpu_idle"];

/// The names of the spinlock's slow path: the second is its name without CONFIG_PARAVIRT_SPINLOCKS.
const SLOWPATHS: [&str; 2] = ["native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath"];

/// The part of the slow path that waits for a test-and-set spinlock, which no tracepoint shows.
pub(super) const TEST_AND_SET: &str = "virt_spin_lock";

/// The file that names the clock event device of the first vCPU's ticks.
const TICKS: &str = "/sys/devices/system/clockevents/clockevent0/current_device";

/// Disables programs that this kernel has nothing to attach to, and returns their hooks. Also
/// disables programs for the spinlock's slow path if all waiters pass the tracepoints, as they do
/// in the PV queue. Only waiters in the PV queue halt.
pub(super) fn leave_out_missing(
    open: &mut OpenObject,
    functions: bool,
) -> Result<Vec<String>, SenseError> {
    check_ticks()?;
    let btf = Btf::from_vmlinux().map_err(SenseError::NoBtf)?;
    static SPINLOCK: OnceLock<Spinlock> = OnceLock::new();
    let spinlock = *SPINLOCK.get_or_init(|| machine::spinlock(&Facts::of_spinlocks()));
    let has = |function: &str| functions && btf.type_by_name::<Func<'_>>(function).is_some();
    let slowpath = slowpath(has);
    let mut missing = Vec::new();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let is_there = match section.split_once('/') {
            Some(("tp_btf", event)) => {
                btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{event}")).is_some()
            }
            Some((_, function)) => has(function),
            None => true,
        };
        let is_queue_pv = spinlock == Spinlock::ParavirtualQueue;
        let is_wanted = match &name {
            name if name.starts_with("slowpath_") => !is_queue_pv && watches(&section, slowpath),
            name if name.starts_with("pv_halt_") => is_queue_pv,
            _ => true,
        };
        if !is_there && NEEDED.contains(&name.as_str()) {
            return Err(SenseError::Tracepoint(name));
        }
        if !is_there && is_wanted {
            missing.push(section);
        }
        program.set_autoload(is_there && is_wanted);
    }
    missing.dedup();
    let is_blind = missing.iter().any(|section| watches(section, slowpath));
    missing.extend((is_blind && spinlock == Spinlock::TestAndSet).then(|| TEST_AND_SET.to_owned()));
    missing.extend(spinning::kernel().hides_addresses.then(|| spinning::ADDRESSES.to_owned()));
    Ok(missing)
}

/// Returns the name of the slow path on a kernel with the given functions; the usual name if the
/// kernel has neither.
fn slowpath(has: impl Fn(&str) -> bool) -> &'static str {
    SLOWPATHS.into_iter().find(|name| has(name)).unwrap_or(SLOWPATHS[0])
}

/// Returns whether a program runs at the beginning or the end of this function.
fn watches(section: &str, function: &str) -> bool {
    section.split_once('/').is_some_and(|(_, watched)| watched == function)
}

/// Checks that the sensor sees this machine's ticks: without them, it finds no vCPU to be off.
pub(crate) fn check_ticks() -> Result<(), SenseError> {
    check_device(&fs::read_to_string(TICKS).unwrap_or_default())
}

/// Rejects Hyper-V's timer and Xen's: they have interrupts of their own, without a tracepoint.
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
    let mut programs: Vec<_> = object.progs_mut().filter(|program| program.autoload()).collect();
    // Attach the ends of waits first. If only the beginning of a wait were seen, the wait would
    // seem to last until the next one; and the kernel itself waits for other vCPUs while it
    // attaches a program.
    programs.sort_by_key(|program| sees_begin(&program.section().to_string_lossy()));
    Ok(programs.into_iter().map(|program| program.attach()).collect::<Result<_, _>>()?)
}

/// Returns whether a program runs at the beginning of waits.
fn sees_begin(section: &str) -> bool {
    section.starts_with("fentry/") || section == "tp_btf/contention_begin"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_path_has_one_name() {
        let of = |has: &[&str]| slowpath(|name| has.contains(&name));
        assert_eq!(of(&SLOWPATHS), SLOWPATHS[0]);
        assert_eq!(of(&SLOWPATHS[1..]), SLOWPATHS[1]);
        assert_eq!(of(&[]), SLOWPATHS[0], "the one to name as missing");
        assert!(watches("fexit/queued_spin_lock_slowpath", SLOWPATHS[1]));
        assert!(!watches("fexit/native_queued_spin_lock_slowpath", SLOWPATHS[1]));
    }

    #[test]
    fn ends_of_waits_are_seen_before_their_beginnings() {
        let mut sections = [
            "fentry/futex_wait",
            "fexit/futex_wait",
            "tp_btf/contention_begin",
            "tp_btf/contention_end",
            "tp_btf/sched_switch",
        ];
        sections.sort_by_key(|section| sees_begin(section));
        assert_eq!(sections[3..], ["fentry/futex_wait", "tp_btf/contention_begin"]);
    }

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

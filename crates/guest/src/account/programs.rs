//! The programs of `bpf/account.bpf.c` at the functions that spin.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::{Link, Object, OpenObject, ProgramMut};

use super::multi;
use crate::sense::SenseError;
use crate::spinning;

/// An attached program; dropping this detaches it.
pub(super) enum Attached {
    /// A program at one hook.
    One { _link: Link },
    /// A program at several functions.
    Several { _link: OwnedFd },
}

/// The functions that spin.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// The names of those that the kernel lacks.
    lacking: BTreeSet<String>,
    /// The BTF identifiers of the others.
    ids: BTreeSet<u32>,
}

/// Whether the programs for several functions are loaded, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Multi {
    /// They are, and are attached if the kernel takes them.
    Try,
    /// The kernel does not know such programs.
    Leave,
}

/// Alternative names of a function in several kernels, or functions one of which contains the
/// other.
const ALTERNATIVES: [[&str; 2]; 2] = [
    ["native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath"],
    ["rwsem_optimistic_spin", "rwsem_spin_on_owner"],
];

/// Returns the functions in which spins are not counted, given the missing ones.
fn unwatched(missing: &BTreeSet<String>) -> Vec<String> {
    let is_watched = |function: &String| {
        let mut alternatives = ALTERNATIVES.iter().filter(|all| all.contains(&function.as_str()));
        alternatives.any(|all| all.iter().any(|other| !missing.contains(*other)))
    };
    missing.iter().filter(|function| !is_watched(function)).cloned().collect()
}

/// Returns the function at whose beginning or end a program runs; `None` for a tracepoint.
fn watched(section: &str) -> Option<&str> {
    section.strip_prefix("fentry/").or_else(|| section.strip_prefix("fexit/"))
}

/// Chooses the programs to load, and returns the functions that they are for.
pub(super) fn choose(open: &mut OpenObject, btf: &Btf<'_>, multi: Multi) -> Functions {
    let mut functions = Functions::default();
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        if let Some(attach_type) = multi::attach_type(&section) {
            multi::prepare(&mut program, attach_type);
            program.set_autoload(multi == Multi::Try);
        }
        let Some(function) = watched(&section) else { continue };
        let found = btf.type_by_name::<Func<'_>>(function);
        let found = found.filter(|_| !enables_preemption(function));
        program.set_autoload(found.is_some());
        match found {
            Some(found) => functions.ids.insert(found.type_id().into()),
            None => functions.lacking.insert(function.to_owned()),
        };
    }
    functions
}

/// Returns whether a function enables preemption before it returns, so that its end could be seen
/// on another vCPU. `rwsem_optimistic_spin` does so before Linux 6.3 (commit 1d61659ced6b).
fn enables_preemption(function: &str) -> bool {
    function == "rwsem_optimistic_spin" && spinning::version().is_some_and(|it| it < (6, 3))
}

/// Attaches the programs, and returns the functions in which spins are not counted. A kernel may
/// refuse some, for example at functions that cannot be instrumented. It takes a program for
/// several functions at all of them or at none. If it refuses one, each function gets its own.
pub(super) fn attach(
    object: &Object,
    functions: &Functions,
) -> Result<(Vec<Attached>, Vec<String>), SenseError> {
    let (mut links, mut counts, mut missing) = (Vec::new(), false, functions.lacking.clone());
    let mut refused = None;
    let mut programs: Vec<_> = object.progs_mut().filter(|program| program.autoload()).collect();
    // Attach the programs for beginnings last. If only the beginning of a spin were seen, the spin
    // would seem to last; and the kernel itself waits for other vCPUs while it attaches a program.
    programs.sort_by_key(|program| program.section().to_string_lossy().starts_with("fentry"));
    let together = together(&programs, functions);
    for program in programs {
        let section = program.section().to_string_lossy().into_owned();
        let function = watched(&section);
        let is_elsewhere = together.is_some() && function.is_some();
        if is_elsewhere || multi::attach_type(&section).is_some() {
            continue;
        }
        let is_missing = function.is_some_and(|function| missing.contains(function));
        if is_missing && section.starts_with("fentry/") {
            continue;
        }
        match program.attach() {
            Ok(link) => {
                counts |= function.is_some();
                links.push(Attached::One { _link: link });
            }
            Err(error) => {
                missing.extend(function.map(str::to_owned));
                refused = Some(error);
            }
        }
    }
    counts |= together.is_some();
    links.extend(together.into_iter().flatten());
    Ok((of_use(links, counts, refused)?, unwatched(&missing)))
}

/// Attaches the programs for several functions. Returns `None` if there are none, or the kernel
/// refuses one.
fn together(programs: &[ProgramMut<'_>], functions: &Functions) -> Option<Vec<Attached>> {
    let mut links = Vec::new();
    for program in programs {
        if let Some(attach_type) = multi::attach_type(&program.section().to_string_lossy()) {
            let link = multi::attach(program.as_fd(), attach_type, &functions.ids).ok()?;
            links.push(Attached::Several { _link: link });
        }
    }
    (!links.is_empty()).then_some(links)
}

/// Returns the links if at least one program counts spins. The tick's program does not count: every
/// kernel takes it.
fn of_use<L>(
    links: Vec<L>,
    counts: bool,
    refused: Option<libbpf_rs::Error>,
) -> Result<Vec<L>, SenseError> {
    match refused {
        _ if counts => Ok(links),
        Some(error) => Err(error.into()),
        None => Err(SenseError::NoSlowPaths),
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn one_of_several_alternatives_is_enough() {
        let missing = |names: &[&str]| unwatched(&names.iter().map(|&name| name.into()).collect());
        assert!(missing(&["queued_spin_lock_slowpath", "rwsem_optimistic_spin"]).is_empty());
        let all = ["native_queued_spin_lock_slowpath", "osq_lock", "queued_spin_lock_slowpath"];
        assert_eq!(missing(&all), all);
    }

    #[test]
    fn the_tick_s_program_alone_counts_nothing() {
        let refused = || libbpf_rs::Error::from_raw_os_error(Errno::EBUSY as i32);
        let with = |counts, refused| of_use(vec!["tick"], counts, refused);
        assert!(matches!(with(false, Some(refused())), Err(SenseError::Load(_))));
        assert!(matches!(with(false, None), Err(SenseError::NoSlowPaths)));
        for some in [None, Some(refused())] {
            assert_eq!(with(true, some).ok(), Some(vec!["tick"]));
        }
    }
}

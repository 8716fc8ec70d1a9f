//! Errors of the sensors.

use std::{fs, io};

use libbpf_rs::ErrorKind;
use nix::errno::Errno;
use nix::unistd::geteuid;
use unspin_model::class::{Class, Classified};

/// What the kernel keeps even from root, such as `none [integrity] confidentiality`.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Why a sensor does not start.
#[derive(Debug, thiserror::Error)]
pub enum SenseError {
    /// The kernel lacks a necessary tracepoint.
    #[error(
        "this kernel has no tracepoint {0} that BPF programs can use: Linux 5.19 or newer with BTF \
         is needed"
    )]
    Tracepoint(String),
    /// The kernel does not describe its types.
    #[error(
        "this kernel does not describe its types (BTF), by which the sensor's BPF programs find \
         what they read: use a kernel with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf(#[source] libbpf_rs::Error),
    /// The kernel does not load the programs.
    #[error(
        "the kernel does not load the sensor's BPF programs (LIBBPF_LOG_LEVEL=warn says why; \
         `sudo unspin doctor` says what is missing)"
    )]
    Load(#[source] libbpf_rs::Error),
    /// The kernel loads BPF programs only for root.
    #[error("needs root")]
    Root,
    /// The kernel does not load BPF programs for root, either.
    #[error(
        "the kernel forbids the sensor's BPF programs even to root, as in a container or by a \
         security module: run unspin on the VM itself, or with CAP_BPF and CAP_PERFMON"
    )]
    Forbidden(#[source] libbpf_rs::Error),
    /// The kernel does not load them, and keeps its memory from BPF programs.
    #[error(
        "the kernel does not load the sensor's BPF programs, perhaps because it is locked down for \
         confidentiality, which keeps its memory from them: boot with `lockdown=integrity`"
    )]
    LockedDown(#[source] libbpf_rs::Error),
    /// The shared page cannot be mapped.
    #[error("the sensor's records cannot be mapped: {0}")]
    Map(io::Error),
    /// The kernel has none of the functions in which it waits without sleeping.
    #[error("this kernel has none of the functions in which it could be seen to spin")]
    NoSlowPaths,
    /// The kernel's ticks do not come from the local APIC's timer, the only one that the sensor
    /// watches.
    #[error(
        "this guest's ticks come from `{0}`, and unspin sees vCPUs that are off only by the local \
         APIC's timer, as KVM offers it; nothing in the guest changes that, but whoever runs the \
         host can look for waste in a trace (`unspin trace --help`)"
    )]
    Ticks(String),
    /// The addresses of the kernel's timers are not in kallsyms.
    #[error(
        "unspin cannot find this kernel's timers, because it lacks CONFIG_KALLSYMS_ALL, so its \
         ticks show nothing: use `watch --listen ADDR --causes`, which sets timers of its own; \
         `run` needs a kernel with that option"
    )]
    NoTimers,
}

impl From<libbpf_rs::Error> for SenseError {
    fn from(error: libbpf_rs::Error) -> SenseError {
        match error {
            error if only_for_root(&error) => SenseError::Root,
            error if is_forbidden(&error) => SenseError::Forbidden(error),
            error if may_be_locked_down(&error) => SenseError::LockedDown(error),
            error => SenseError::Load(error),
        }
    }
}

impl Classified for SenseError {
    fn class(&self) -> Class {
        match self {
            SenseError::Root => Class::NeedsRoot,
            SenseError::Load(error) if may_pass(error) => Class::Failed,
            SenseError::Map(error) if passes(error) => Class::Failed,
            _ => Class::Unavailable,
        }
    }
}

/// Errors that may not recur if the caller tries again.
pub(crate) const PASSING: [Errno; 8] = [
    Errno::EAGAIN,
    Errno::EDQUOT,
    Errno::EINTR,
    Errno::EIO,
    Errno::EMFILE,
    Errno::ENFILE,
    Errno::ENOMEM,
    Errno::ENOSPC,
];

/// Returns whether the next start may succeed, as after a full /run at boot. systemd restarts the
/// service after such a failure, and gives up if the machine lacks a feature.
pub(crate) fn passes(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| PASSING.contains(&errno))
}

/// Returns the same of libbpf's errors. ENOSPC is left out: the verifier's log has no more room.
pub(crate) fn may_pass(error: &libbpf_rs::Error) -> bool {
    PASSING.iter().any(|errno| *errno != Errno::ENOSPC && is(error, *errno))
}

/// Returns whether root might succeed where libbpf has failed.
pub(crate) fn only_for_root(error: &libbpf_rs::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied && !geteuid().is_root()
}

/// Returns whether the error is EPERM. The verifier refuses a program with EACCES, which libbpf's
/// error kinds do not distinguish from EPERM.
pub(super) fn is_forbidden(error: &libbpf_rs::Error) -> bool {
    is(error, Errno::EPERM)
}

fn is(error: &libbpf_rs::Error, errno: Errno) -> bool {
    format!("{error:#}").contains(&format!("(os error {})", errno as i32))
}

/// Whether the kernel's lockdown may be why a program is not loaded: the verifier then refuses the
/// calls by which programs read the kernel's memory (EINVAL).
pub(crate) fn may_be_locked_down(error: &libbpf_rs::Error) -> bool {
    is(error, Errno::EINVAL)
        && fs::read_to_string(LOCKDOWN).is_ok_and(|says| is_confidential(&says))
}

/// Lockdown for integrity, as most distributions have it with Secure Boot, allows these reads.
fn is_confidential(lockdown: &str) -> bool {
    lockdown.contains("[confidentiality]")
}

/// Attempts to load programs at tracepoints and functions, and if that fails, at tracepoints alone,
/// which a kernel may allow. Returns the reason if programs at functions are left out.
pub(super) fn with_fallback<T>(
    mut attempt: impl FnMut(bool) -> Result<T, SenseError>,
) -> Result<(T, Option<String>), SenseError> {
    match attempt(true) {
        Err(
            SenseError::Load(error) | SenseError::Forbidden(error) | SenseError::LockedDown(error),
        ) => Ok((attempt(false)?, Some(why_refused(&error)))),
        done => Ok((done?, None)),
    }
}

fn why_refused(error: &libbpf_rs::Error) -> String {
    if is_forbidden(error) {
        return "the kernel forbids BPF programs at its functions (EPERM), as a security module does"
            .into();
    }
    format!(
        "the kernel takes no BPF programs at its functions, for which \
         CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y is needed ({error})"
    )
}

#[cfg(test)]
mod tests {
    use unspin_model::class::chain;

    use super::*;

    fn of(errno: Errno) -> libbpf_rs::Error {
        libbpf_rs::Error::from_raw_os_error(errno as i32)
    }

    #[test]
    fn programs_at_functions_are_left_out_where_loading_or_attaching_fails() {
        for errno in [Errno::EPERM, Errno::EINVAL, Errno::EBUSY] {
            let kernel = |functions| match functions {
                true => Err(SenseError::Load(of(errno))),
                false => Ok("tracepoints"),
            };
            let (attached, refused) = with_fallback(kernel).expect("the rest is attached");
            let refused = refused.expect("a reason");
            assert_eq!(attached, "tracepoints");
            assert_eq!(refused.contains("forbids"), errno == Errno::EPERM, "{refused}");
        }
        for error in
            [SenseError::Forbidden(of(Errno::EPERM)), SenseError::LockedDown(of(Errno::EINVAL))]
        {
            let mut error = Some(error);
            let kernel = |_: bool| error.take().map_or(Ok(()), Err);
            assert!(with_fallback(kernel).is_ok_and(|(_, refused)| refused.is_some()));
        }
        assert!(with_fallback(Ok).is_ok_and(|done| done == (true, None)));
    }

    #[test]
    fn an_error_that_functions_do_not_change_is_kept() {
        let mut attempts = 0;
        let failed = with_fallback(|_| {
            attempts += 1;
            Err::<(), _>(SenseError::NoTimers)
        });
        assert!(matches!(failed, Err(SenseError::NoTimers)) && attempts == 1);
        let failed = with_fallback(|_| Err::<(), _>(SenseError::Load(of(Errno::EINVAL))));
        assert!(matches!(failed, Err(SenseError::Load(_))));
    }

    /// The verifier's own refusal (EACCES) is the program's fault, not a lack of privileges.
    #[test]
    fn only_eperm_is_a_lack_of_privileges() {
        assert!(is_forbidden(&of(Errno::EPERM)));
        assert!(!is_forbidden(&of(Errno::EACCES)) && !is_forbidden(&of(Errno::EINVAL)));
    }

    #[test]
    fn lockdown_keeps_memory_from_programs_only_for_confidentiality() {
        assert!(is_confidential("none integrity [confidentiality]\n"));
        assert!(!is_confidential("none [integrity] confidentiality\n") && !is_confidential(""));
        assert!(!may_be_locked_down(&of(Errno::EBUSY)));
    }

    #[test]
    fn a_lack_of_memory_may_pass() {
        for errno in [Errno::ENOMEM, Errno::EMFILE] {
            assert_eq!(SenseError::from(of(errno)).class(), Class::Failed);
            let map = SenseError::Map(io::Error::from_raw_os_error(errno as i32));
            assert_eq!(map.class(), Class::Failed);
        }
        assert_eq!(SenseError::from(of(Errno::ENOSPC)).class(), Class::Unavailable);
    }

    #[test]
    fn errors_say_what_to_do_next() {
        let hints = [
            (SenseError::Load(of(Errno::EINVAL)), "sudo unspin doctor"),
            (SenseError::Forbidden(of(Errno::EPERM)), "CAP_BPF and CAP_PERFMON"),
            (SenseError::LockedDown(of(Errno::EINVAL)), "lockdown=integrity"),
            (SenseError::NoBtf(of(Errno::ENOENT)), "CONFIG_DEBUG_INFO_BTF=y"),
        ];
        for (error, hint) in hints {
            let text = chain(&error).to_string();
            assert!(text.contains(hint) && text.contains("(os error"), "{text}");
            assert_eq!(error.class(), Class::Unavailable);
        }
    }
}

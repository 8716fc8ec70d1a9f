//! Attaches a program to several functions at once, as Linux 7.3 can. Kernels say in their BTF
//! whether they can.
//!
//! For each attached program, the kernel scans all functions that it could trace. With one link for
//! all functions, it does so once.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;
use libbpf_rs::{AsRawLibbpf, OpenProgramMut, ProgramType};
use nix::errno::Errno;
use nix::libc;

/// `enum bpf_attach_type` of Linux 7.3.
const FENTRY_MULTI: u32 = 59;
const FEXIT_MULTI: u32 = 60;
/// The command of bpf(2).
const BPF_LINK_CREATE: libc::c_long = 28;

/// The part of `union bpf_attr` that creates such a link.
#[repr(C)]
#[derive(Debug, Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    ids: u64,
    cookies: u64,
    cnt: u32,
    unused: u32,
}

/// Returns the attach type of a section of `bpf/account.bpf.c`, or `None` if its program has a
/// function of its own.
pub(super) fn attach_type(section: &str) -> Option<u32> {
    match section {
        "fentry.multi" => Some(FENTRY_MULTI),
        "fexit.multi" => Some(FEXIT_MULTI),
        _ => None,
    }
}

/// Returns whether the kernel knows the attach types.
pub(super) fn is_possible(btf: &Btf<'_>) -> bool {
    let types = btf.type_by_name::<Enum<'_>>("bpf_attach_type");
    types.is_some_and(|types| {
        types.iter().any(|member| {
            member.name.is_some_and(|name| name == "BPF_TRACE_FENTRY_MULTI")
                && member.value == i64::from(FENTRY_MULTI)
        })
    })
}

/// Prepares a program for loading, because libbpf does not know its section.
pub(super) fn prepare(program: &mut OpenProgramMut<'_>, attach_type: u32) {
    program.set_prog_type(ProgramType::Tracing);
    // SAFETY: the program is open, and has not been loaded.
    unsafe {
        libbpf_sys::bpf_program__set_expected_attach_type(
            program.as_libbpf_object().as_ptr(),
            attach_type,
        );
    }
}

/// Attaches a loaded program to the functions with these BTF identifiers, in ascending order, until
/// the descriptor is closed.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    attach_type: u32,
    functions: &BTreeSet<u32>,
) -> io::Result<OwnedFd> {
    let ids: Vec<u32> = functions.iter().copied().collect();
    let link = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        attach_type,
        ids: ids.as_ptr() as u64,
        cnt: ids.len() as u32,
        ..LinkCreate::default()
    };
    // SAFETY: the kernel reads the attributes and the identifiers, which live until it returns.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, &raw const link, size_of::<LinkCreate>())
    };
    let fd = Errno::result(fd)?;
    // SAFETY: the descriptor is new, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_have_the_kernel_s_layout() {
        assert_eq!(size_of::<LinkCreate>(), 40);
        assert_eq!(std::mem::offset_of!(LinkCreate, ids), 16);
        assert_eq!(std::mem::offset_of!(LinkCreate, cnt), 32);
    }
}

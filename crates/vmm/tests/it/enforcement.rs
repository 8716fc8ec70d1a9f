//! A device's thread that touches a forbidden page dies of SIGSEGV. The tests run themselves as
//! child processes.

use std::env;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use crate::driver;
use unspin_vmm::access::Policy;
use unspin_vmm::memory::{Memory, Private, Ram};
use unspin_vmm::sandbox::{Kind, Sandbox};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

/// The variable that names the action of the child process.
const VARIABLE: &str = "UNSPIN_VMM_TOUCHES";
/// The variable that turns missing protection keys into a failure instead of a skipped test.
const NEEDS_KEYS: &str = "UNSPIN_VMM_NEEDS_KEYS";
const BYTES: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// A page that no policy grants here.
const PRIVATE: GuestAddress = GuestAddress(7 * PAGE);
const SHARED: GuestAddress = GuestAddress(9 * PAGE);

fn ram(policy: &Policy) -> Ram {
    driver::ram(BYTES, policy)
}

/// Runs the action `what` in a child process. Returns its exit status, or its signal.
fn end(test: &str, what: &str) -> (Option<i32>, Option<i32>) {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("enforcement::{test}")])
        .env(VARIABLE, what)
        .output()
        .unwrap();
    (output.status.code(), output.status.signal())
}

/// Calls `act` in a thread that is confined like a disk's thread, and ends the process with status
/// 42.
fn as_device(ram: Ram, act: impl FnOnce(&Ram) + Send + 'static) -> ! {
    let thread = thread::spawn(move || {
        ram.key.iter().for_each(|key| key.deny());
        Sandbox::new().unwrap().enter(Kind::Block).unwrap();
        act(&ram);
    });
    thread.join().unwrap();
    std::process::exit(42)
}

fn touch(memory: &Memory, at: GuestAddress) {
    memory.write_obj(1u8, at).unwrap();
}

const KILLED: (Option<i32>, Option<i32>) = (None, Some(libc::SIGSEGV));
const LIVES: (Option<i32>, Option<i32>) = (Some(42), None);

#[test]
fn a_page_without_a_grant_cannot_be_touched() {
    if let Ok(what) = env::var(VARIABLE) {
        let policy = if what == "request" { Policy::Request } else { Policy::Cache };
        as_device(ram(&policy), move |ram| {
            let window = ram.devices.window();
            assert!(window.hold(&[(SHARED, 8)]));
            touch(window.memory(), SHARED);
            match &what[..] {
                "granted" => {}
                "private" => touch(window.memory(), PRIVATE),
                "beside" => touch(window.memory(), GuestAddress(SHARED.0 + PAGE)),
                "revoked" => {
                    window.release();
                    let table = ram.devices.table().unwrap();
                    table.revoke((SHARED.0 / PAGE) as u32);
                    touch(window.memory(), SHARED);
                }
                _ => {
                    window.release();
                    touch(window.memory(), SHARED);
                }
            }
        });
    }
    for (what, expected) in [
        ("granted", LIVES),
        ("kept", LIVES),
        ("private", KILLED),
        ("beside", KILLED),
        ("revoked", KILLED),
        ("request", KILLED),
    ] {
        assert_eq!(end("a_page_without_a_grant_cannot_be_touched", what), expected, "{what}");
    }
}

#[test]
fn the_vcpus_mapping_cannot_be_touched() {
    if let Ok(what) = env::var(VARIABLE) {
        let ram = ram(&Policy::Cache);
        touch(&ram.guest, PRIVATE);
        match &what[..] {
            "vcpu" => {
                // Threads inherit the right from the thread that loads the guest.
                thread::spawn(move || touch(&ram.guest, PRIVATE)).join().unwrap();
                std::process::exit(42)
            }
            _ => as_device(ram, |ram| touch(&ram.guest, PRIVATE)),
        }
    }
    if ram(&Policy::Cache).key.is_none() {
        assert!(env::var(NEEDS_KEYS).is_err(), "this processor has no protection keys");
        eprintln!("skipped: this processor has no protection keys");
        return;
    }
    let test = "the_vcpus_mapping_cannot_be_touched";
    assert_eq!(end(test, "vcpu"), LIVES);
    assert_eq!(end(test, "device"), KILLED);
}

#[test]
fn private_memory_is_a_running_vcpus_alone() {
    if let Ok(what) = env::var(VARIABLE) {
        let Private { memory, key } = Private::new(BYTES).unwrap();
        let key = key.unwrap();
        touch(&memory, PRIVATE);
        key.deny();
        let thread = thread::spawn(move || {
            // A vCPU's thread does the same around KVM_RUN.
            match &what[..] {
                "runs" => key.allow(),
                "exited" => {
                    key.allow();
                    key.deny();
                }
                _ => {}
            }
            touch(&memory, PRIVATE);
        });
        thread.join().unwrap();
        std::process::exit(42)
    }
    if Private::new(BYTES).unwrap().key.is_none() {
        assert!(env::var(NEEDS_KEYS).is_err(), "this processor has no protection keys");
        eprintln!("skipped: this processor has no protection keys");
        return;
    }
    let test = "private_memory_is_a_running_vcpus_alone";
    for (what, expected) in [("runs", LIVES), ("exited", KILLED), ("device", KILLED)] {
        assert_eq!(end(test, what), expected, "{what}");
    }
}

#[test]
fn a_system_call_cannot_reach_a_page_without_a_grant() {
    let ram = ram(&Policy::Cache);
    let (memory, file) = (ram.devices.memory().clone(), tempfile::tempfile().unwrap());
    file.set_len(PAGE).unwrap();
    let window = ram.devices.window();
    let read = |at| {
        let slice = memory.get_host_address(at).unwrap();
        // SAFETY: the kernel checks the address.
        let done = unsafe { libc::pread(file.as_raw_fd(), slice.cast(), 8, 0) };
        if done < 0 { io::Error::last_os_error().raw_os_error() } else { None }
    };
    assert_eq!(read(SHARED), Some(libc::EFAULT));
    assert!(window.hold(&[(SHARED, 8)]));
    assert_eq!((read(SHARED), read(PRIVATE)), (None, Some(libc::EFAULT)));
    drop(window);
    assert!(ram.devices.table().unwrap().revoke((SHARED.0 / PAGE) as u32));
    assert_eq!(read(SHARED), Some(libc::EFAULT));
}

#[test]
fn pages_are_opened_ahead_or_not() {
    let open = |policy: Policy| {
        let ram = ram(&policy);
        let table = Arc::clone(ram.devices.table().unwrap());
        (0..table.pages()).filter(|page| table.state(*page).is_open()).collect::<Vec<_>>()
    };
    assert!(open(Policy::Batch).is_empty());
    assert_eq!(open(Policy::Pregrant(Some(0x3000..0x5000))), [3, 4]);
    assert_eq!(open(Policy::Pregrant(None)).len() as u64, BYTES / PAGE);
    let outside = Policy::Pregrant(Some(0..BYTES + PAGE));
    let error = Ram::new(BYTES, &outside, Box::new(|_| {})).unwrap_err();
    assert!(error.to_string().contains("0x0-0x401000 is not memory"), "{error}");
}

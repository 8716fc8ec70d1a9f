//! System call filters: a forbidden call kills the process.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;

use unspin_vmm::sandbox::{Kind, Sandbox};

/// The variable that names the kind of thread, and the call, for the child process.
const VARIABLE: &str = "UNSPIN_VMM_CONFINED";
/// The requests of tcgetattr and tcsetattr in glibc since 2.42, whichever version is installed
/// here.
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;

/// This test runs itself as a child process for each kind of thread.
#[test]
fn a_forbidden_call_kills_the_process() {
    if let Ok(name) = env::var(VARIABLE) {
        confined(&name);
    }
    for kind in Kind::ALL {
        let other = kind != Kind::Main;
        let no_ghcb = kind != Kind::GhcbVcpu;
        for (call, killed) in [
            ("write", false),
            ("socket", true),
            ("mmap", true),
            ("ioctl", true),
            ("tcgets2", other),
            ("tcsets2", other),
            ("ghcb", no_ghcb),
        ] {
            let status = Command::new(env::current_exe().unwrap())
                .args(["--exact", "sandbox::a_forbidden_call_kills_the_process"])
                .env(VARIABLE, format!("{} {call}", kind.name()))
                .output()
                .unwrap()
                .status;
            let expected = if killed { (None, Some(libc::SIGSYS)) } else { (Some(42), None) };
            assert_eq!((status.code(), status.signal()), expected, "{} {call}", kind.name());
        }
    }
}

/// Makes a call in a confined thread, and ends the process with status 42.
fn confined(name: &str) -> ! {
    let (kind, call) = name.split_once(' ').unwrap();
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).unwrap();
    let sandbox = Sandbox::new().unwrap();
    let call = call.to_owned();
    let thread = thread::spawn(move || {
        sandbox.enter(kind).unwrap();
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: none of the calls changes memory that is in use.
        unsafe {
            match &call[..] {
                "socket" => drop(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)),
                "mmap" => drop(libc::mmap(std::ptr::null_mut(), 4096, executable, private, -1, 0)),
                // KVM_CREATE_VM.
                "ioctl" => drop(libc::ioctl(-1, 0xae01)),
                // KVM_MEMORY_ENCRYPT_OP.
                "ghcb" => drop(libc::ioctl(-1, 0xc008_aeba)),
                "tcgets2" => drop(libc::ioctl(0, TCGETS2, std::ptr::null_mut::<u8>())),
                "tcsets2" => drop(libc::ioctl(0, TCSETS2, std::ptr::null::<u8>())),
                _ => drop(libc::write(2, std::ptr::null(), 0)),
            }
        }
    });
    thread.join().unwrap();
    std::process::exit(42)
}

//! The serial port, including one whose output has no reader.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use unspin_vmm::error::Ended;
use unspin_vmm::machine::End;
use unspin_vmm::pc::serial::Com1;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::signal::register_signal_handler;

const SIGNAL: libc::c_int = libc::SIGUSR1;
const PATIENCE: Duration = Duration::from_secs(10);

extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

fn event() -> EventFd {
    EventFd::new(libc::EFD_NONBLOCK).unwrap()
}

fn set_nonblocking(file: &impl AsRawFd, nonblocking: bool) {
    let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
    // SAFETY: the argument is a number.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }, 0);
}

#[test]
fn a_vm_whose_output_nobody_reads_takes_input_and_ends() {
    register_signal_handler(SIGNAL, nothing).unwrap();
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    set_nonblocking(&writer, true);
    while writer.write(&[0; 4096]).is_ok() {}
    set_nonblocking(&writer, false);
    let end = Arc::new(End::new(event()));
    let com1 = Arc::new(Com1::new(event(), event(), &writer, Arc::clone(&end)).unwrap());
    let own = Arc::clone(&com1);
    let vcpu = thread::spawn(move || own.write(0, b"lost"));
    thread::sleep(Duration::from_millis(100));
    let (done, typed) = channel();
    let own = Arc::clone(&com1);
    thread::spawn(move || {
        own.input(b"x");
        done.send(own.room()).unwrap();
    });
    assert_eq!(typed.recv_timeout(PATIENCE), Ok(63), "input waits for output");
    let kick = || {
        // SAFETY: the thread was not joined.
        unsafe { libc::pthread_kill(vcpu.as_pthread_t(), SIGNAL) };
        thread::sleep(Duration::from_millis(5));
    };
    kick();
    assert!(!vcpu.is_finished(), "a signal alone loses output");
    end.set(Ended::Interrupted);
    let start = Instant::now();
    while !vcpu.is_finished() {
        assert!(start.elapsed() < PATIENCE, "the vCPU does not end");
        kick();
    }
    drop((writer, com1));
    let mut text = Vec::new();
    reader.read_to_end(&mut text).unwrap();
    assert!(!text.contains(&b'l'));
}

/// Covers writes that wait for a reader, and writes that fail because a process that shares the
/// file made it nonblocking.
#[test]
fn output_is_whole_and_in_order() {
    for nonblocking in [false, true] {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        set_nonblocking(&writer, nonblocking);
        let end = Arc::new(End::new(event()));
        let com1 = Com1::new(event(), event(), &writer, end).unwrap();
        drop(writer);
        let expected: Vec<u8> = (0..100_000u32).map(|index| index as u8).collect();
        let bytes = expected.clone();
        let vcpu = thread::spawn(move || bytes.chunks(7).for_each(|chunk| com1.write(0, chunk)));
        // The socket is full by now.
        thread::sleep(Duration::from_millis(100));
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        vcpu.join().unwrap();
        assert!(text == expected);
    }
}

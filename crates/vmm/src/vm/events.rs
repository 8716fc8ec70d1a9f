//! The events that the main thread waits for: signals, input, and the VM's end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use crate::error::{Ended, Step, VmmError};
use crate::machine::Machine;
use crate::terminal::{Raw, Typed};

const SIGNAL: u64 = 0;
const INPUT: u64 = 1;
const DRAINED: u64 = 2;
const END: u64 = 3;
const EVENTS_MAX: usize = 4;
/// The most bytes that one read takes.
const INPUT_BYTES: usize = 64;
/// The most bytes that are read ahead of the guest. While there is room, the program notices Ctrl-A
/// x.
const AHEAD_BYTES: usize = 4096;

/// The files and the input that the main thread waits for.
#[derive(Debug)]
pub struct Events {
    epoll: Epoll,
    signals: OwnedFd,
    /// The signals that were blocked before.
    blocked: libc::sigset_t,
    drained: EventFd,
    typed: Typed,
    /// Input that the serial port has no room for yet.
    ahead: VecDeque<u8>,
    /// The input file, which is open as long as the process, or the test.
    input: RawFd,
    /// Whether epoll watches the input.
    listening: bool,
    /// Whether the input has ended, or cannot be waited for.
    exhausted: bool,
}

impl Events {
    /// Blocks the signals that end a VM, so that all threads inherit the mask. `input` is the file
    /// that the guest's serial port reads.
    pub fn new(input: RawFd) -> Result<Events, VmmError> {
        let (signals, blocked) = signals().step("wait for signals")?;
        let epoll = Epoll::new().step("create an epoll instance")?;
        let drained = EventFd::new(libc::EFD_NONBLOCK).step("make an eventfd")?;
        let events = Events {
            epoll,
            signals,
            blocked,
            drained,
            typed: Typed::default(),
            ahead: VecDeque::new(),
            input,
            listening: false,
            exhausted: false,
        };
        events.add(events.signals.as_raw_fd(), SIGNAL).step("wait for signals")?;
        events.add(events.drained.as_raw_fd(), DRAINED).step("wait for the serial port")?;
        Ok(events)
    }

    /// Returns the event of a serial port whose input the guest has read.
    pub fn drained(&self) -> Result<EventFd, VmmError> {
        self.drained.try_clone().step("copy an eventfd")
    }

    /// Waits until the VM ends, and meanwhile passes input to the guest.
    pub fn wait(&mut self, machine: &Machine) -> Result<(), VmmError> {
        self.add(machine.end.event.as_raw_fd(), END).step("wait for the end")?;
        let terminal = Raw::enter(self.input).step("switch the terminal to raw mode")?;
        self.listen(true);
        while machine.end.get().is_none() {
            self.turn(machine, terminal.is_some(), -1);
        }
        Ok(())
    }

    /// Handles the next events, after a wait of at most `timeout_ms` milliseconds, or without a
    /// limit for -1. Returns the number of events.
    fn turn(&mut self, machine: &Machine, terminal: bool, timeout_ms: i32) -> usize {
        let mut events = [EpollEvent::default(); EVENTS_MAX];
        // Only a signal that is not blocked ends the wait early.
        let count = self.epoll.wait(timeout_ms, &mut events).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                SIGNAL => machine.end.set(Ended::Interrupted),
                INPUT => self.input(machine, terminal),
                DRAINED => {
                    let _ = self.drained.read();
                    self.feed(machine);
                    self.listen(true);
                }
                _ => {}
            }
        }
        count
    }

    fn add(&self, fd: RawFd, data: u64) -> io::Result<()> {
        self.epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, data))
    }

    /// Starts or stops waiting for input. If the file stayed in epoll, epoll would report the other
    /// end's hangup whatever events it is asked for.
    fn listen(&mut self, wanted: bool) {
        if wanted && !self.listening && !self.exhausted {
            self.listening = self.add(self.input, INPUT).is_ok();
            // Neither regular files nor /dev/null can be waited for.
            self.exhausted = !self.listening;
        } else if !wanted && self.listening {
            let nothing = EpollEvent::new(EventSet::empty(), INPUT);
            // The call fails only for a file that epoll does not have.
            let _ = self.epoll.ctl(ControlOperation::Delete, self.input, nothing);
            self.listening = false;
        }
    }

    fn input(&mut self, machine: &Machine, terminal: bool) {
        let room = (AHEAD_BYTES - self.ahead.len()).min(INPUT_BYTES);
        if room == 0 {
            return self.listen(false);
        }
        let mut bytes = [0; INPUT_BYTES];
        // SAFETY: `bytes` has room for that many.
        let count = unsafe { libc::read(self.input, bytes.as_mut_ptr().cast(), room) };
        let count = match usize::try_from(count) {
            Ok(count @ 1..) => count,
            Err(_) if is_temporary(&io::Error::last_os_error()) => return,
            // The input has ended, or the error would recur.
            _ => {
                self.exhausted = true;
                return self.listen(false);
            }
        };
        let bytes = &bytes[..count];
        match if terminal { self.typed.filter(bytes) } else { Some(bytes.to_vec()) } {
            Some(kept) => self.ahead.extend(kept),
            None => machine.end.set(Ended::Interrupted),
        }
        self.feed(machine);
    }

    /// Gives the guest as much input as the serial port has room for.
    fn feed(&mut self, machine: &Machine) {
        let count = machine.com1.room().min(self.ahead.len());
        let bytes: Vec<u8> = self.ahead.drain(..count).collect();
        machine.com1.input(&bytes);
    }
}

/// Returns whether a later read may succeed. Another process may share the file, and take its
/// bytes.
fn is_temporary(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind())
}

impl Drop for Events {
    /// Restores the old signal mask, so that later signals end the process. The process still has a
    /// last message to write, and its reader may not read it.
    fn drop(&mut self) {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: `bytes` has room for a signal, and `blocked` is a set of signals.
        unsafe {
            let fd = self.signals.as_raw_fd();
            while libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) > 0 {}
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.blocked, std::ptr::null_mut());
        }
    }
}

/// Returns a file that becomes readable when SIGINT, SIGTERM or SIGHUP arrives, and the signals
/// that were blocked before. The three signals do nothing else.
fn signals() -> io::Result<(OwnedFd, libc::sigset_t)> {
    // SAFETY: a set of signals is plain data, which the calls fill.
    let (fd, blocked) = unsafe {
        let [mut set, mut blocked]: [libc::sigset_t; 2] = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut blocked);
        (libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK), blocked)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok((unsafe { OwnedFd::from_raw_fd(fd) }, blocked))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use vmm_sys_util::signal::get_blocked_signals;

    use super::*;
    use crate::machine::End;
    use crate::pc::clock::Clock;
    use crate::pc::power::Power;
    use crate::pc::serial::Com1;
    use crate::pci::host::Host;

    /// The most turns that find an event; a busy loop takes more.
    const TURNS_MAX: usize = 2 * AHEAD_BYTES / INPUT_BYTES;

    struct Fixture {
        machine: Machine,
        events: Events,
        input: UnixStream,
    }

    impl Fixture {
        fn new(input: UnixStream) -> Fixture {
            let event = || EventFd::new(libc::EFD_NONBLOCK).unwrap();
            let mut events = Events::new(input.as_raw_fd()).unwrap();
            let end = Arc::new(End::new(event()));
            let sink = std::fs::File::create("/dev/null").unwrap();
            let drained = events.drained().unwrap();
            let com1 = Com1::new(event(), drained, sink, Arc::clone(&end)).unwrap();
            let pci = Host::new(vec![]);
            events.listen(true);
            Fixture {
                machine: Machine {
                    com1,
                    power: Power::default(),
                    clock: Clock::default(),
                    pci,
                    conversions: None,
                    end,
                },
                events,
                input,
            }
        }

        fn settle(&mut self) {
            let turn = |_| self.events.turn(&self.machine, false, 0) == 0;
            assert!((0..TURNS_MAX).any(turn), "a busy loop");
        }

        /// Reads all input that the guest can read now.
        fn read(&mut self) -> Vec<u8> {
            let mut bytes = Vec::new();
            while self.machine.com1.room() < INPUT_BYTES {
                let mut byte = [0];
                self.machine.com1.read(0, &mut byte);
                bytes.extend(byte);
                if self.machine.com1.room() == INPUT_BYTES {
                    self.settle();
                }
            }
            bytes
        }
    }

    #[test]
    fn input_ahead_of_the_guest_waits_for_it() {
        let (input, mut output) = UnixStream::pair().unwrap();
        let text: Vec<u8> = (0..10_000u32).map(|index| index as u8).collect();
        output.write_all(&text).unwrap();
        drop(output);
        let mut fixture = Fixture::new(input);
        fixture.settle();
        assert_eq!(fixture.read(), text);
        assert!(fixture.events.exhausted);
    }

    #[test]
    fn ctrl_a_x_overtakes_what_the_guest_does_not_read() {
        let (input, mut output) = UnixStream::pair().unwrap();
        output.write_all(&[&[b'a'; 1000][..], b"\x01x"].concat()).unwrap();
        let mut fixture = Fixture::new(input);
        while fixture.events.turn(&fixture.machine, true, 0) > 0 {}
        assert_eq!(fixture.machine.end.get(), Some(&Ended::Interrupted));
    }

    #[test]
    fn a_signal_ends_the_vm_and_later_ones_the_process() {
        let (input, _output) = UnixStream::pair().unwrap();
        let mut fixture = Fixture::new(input);
        let blocks = || get_blocked_signals().unwrap().contains(&libc::SIGHUP);
        assert!(blocks());
        for signal in [libc::SIGHUP, libc::SIGTERM] {
            // SAFETY: the signal is blocked.
            unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
        }
        fixture.events.turn(&fixture.machine, false, 0);
        assert_eq!(fixture.machine.end.get(), Some(&Ended::Interrupted));
        // Signals that have arrived already do not kill this process.
        drop(fixture);
        assert!(!blocks());
    }

    #[test]
    fn input_that_another_process_took_is_not_its_end() {
        let (input, mut output) = UnixStream::pair().unwrap();
        let mut fixture = Fixture::new(input);
        let fd = fixture.input.as_raw_fd();
        // SAFETY: the argument is a number.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        fixture.events.input(&fixture.machine, false);
        output.write_all(b"later").unwrap();
        fixture.settle();
        assert_eq!(fixture.read(), b"later");
    }
}

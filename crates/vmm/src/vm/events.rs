//! What the main thread waits for: signals, input, and the end.

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
/// What a serial port buffers.
const INPUT_BYTES: usize = 64;

/// The files.
#[derive(Debug)]
pub struct Events {
    epoll: Epoll,
    signals: OwnedFd,
    drained: EventFd,
    typed: Typed,
    /// Input can be waited for.
    pollable: bool,
}

impl Events {
    /// Blocks the signals that end a VM, so that all threads inherit that.
    pub fn new() -> Result<Events, VmmError> {
        let signals = signals().step("wait for signals")?;
        let epoll = Epoll::new().step("create an epoll instance")?;
        let drained = EventFd::new(libc::EFD_NONBLOCK).step("make an eventfd")?;
        let events = Events { epoll, signals, drained, typed: Typed::default(), pollable: false };
        events.add(events.signals.as_raw_fd(), SIGNAL).step("wait for signals")?;
        events.add(events.drained.as_raw_fd(), DRAINED).step("wait for the serial port")?;
        Ok(events)
    }

    /// The event of a serial port whose input was read.
    pub fn drained(&self) -> Result<EventFd, VmmError> {
        self.drained.try_clone().step("copy an eventfd")
    }

    /// Waits until the VM ends, and passes input on meanwhile.
    pub fn wait(&mut self, machine: &Machine) -> Result<(), VmmError> {
        self.add(machine.end.event.as_raw_fd(), END).step("wait for the end")?;
        // Neither regular files nor /dev/null can be waited for.
        self.pollable = self.add(libc::STDIN_FILENO, INPUT).is_ok();
        let terminal = Raw::enter(libc::STDIN_FILENO).step("switch the terminal to raw mode")?;
        let mut events = [EpollEvent::default(); EVENTS_MAX];
        while machine.end.get().is_none() {
            // Only a signal that is not blocked ends the wait early.
            let count = self.epoll.wait(-1, &mut events).unwrap_or(0);
            for event in &events[..count] {
                match event.data() {
                    SIGNAL => machine.end.set(Ended::Interrupted),
                    INPUT => self.input(machine, terminal.is_some()),
                    DRAINED => {
                        let _ = self.drained.read();
                        self.listen(true);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn add(&self, fd: RawFd, data: u64) -> io::Result<()> {
        self.epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, data))
    }

    /// Waits for input, or stops to.
    fn listen(&self, wanted: bool) {
        if self.pollable {
            let events = if wanted { EventSet::IN } else { EventSet::empty() };
            let event = EpollEvent::new(events, INPUT);
            // Fails only for a file that epoll does not know.
            let _ = self.epoll.ctl(ControlOperation::Modify, libc::STDIN_FILENO, event);
        }
    }

    fn input(&mut self, machine: &Machine, terminal: bool) {
        let room = machine.com1.room().min(INPUT_BYTES);
        if room == 0 {
            return self.listen(false);
        }
        let mut bytes = [0; INPUT_BYTES];
        // SAFETY: `bytes` has room for that many.
        let count = unsafe { libc::read(libc::STDIN_FILENO, bytes.as_mut_ptr().cast(), room) };
        let Ok(count @ 1..) = usize::try_from(count) else {
            // The end of the input, or an error that comes again.
            let nothing = EpollEvent::new(EventSet::empty(), INPUT);
            let _ = self.epoll.ctl(ControlOperation::Delete, libc::STDIN_FILENO, nothing);
            self.pollable = false;
            return;
        };
        if !terminal {
            return machine.com1.input(&bytes[..count]);
        }
        match self.typed.filter(&bytes[..count]) {
            Some(kept) => machine.com1.input(&kept),
            None => machine.end.set(Ended::Interrupted),
        }
    }
}

/// A file that is readable when SIGINT, SIGTERM or SIGHUP arrives; they do nothing else.
fn signals() -> io::Result<OwnedFd> {
    // SAFETY: a set of signals is plain data, and sigemptyset fills it.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::signalfd(-1, &set, libc::SFD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

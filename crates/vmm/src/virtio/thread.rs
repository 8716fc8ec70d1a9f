//! The thread of a [`Worker`]. It waits for queues, the backend, and commands of the transport.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use super::ring::Ring;
use super::{Left, Worker};

/// epoll's data for the commands' event, the backend, and the first queue.
const COMMAND: u64 = 0;
const BACKEND: u64 = 1;
const QUEUES: u64 = 2;
const EVENTS_MAX: usize = 8;

enum Command {
    Start { features: u64, rings: Vec<Option<Ring>> },
    Stop,
    Quit,
}

/// The transport's side of the thread.
#[derive(Debug)]
pub struct Handle {
    commands: Sender<Command>,
    replies: Receiver<io::Result<()>>,
    wake: EventFd,
    thread: Option<JoinHandle<()>>,
}

struct Thread {
    worker: Box<dyn Worker>,
    kicks: Vec<EventFd>,
    rings: Vec<Option<Ring>>,
    commands: Receiver<Command>,
    replies: Sender<io::Result<()>>,
    wake: EventFd,
    /// Whether the backend has more, which epoll will not report again.
    backend_left: bool,
}

/// Starts a worker's thread, which waits for its queues' `kicks`. The thread calls `enter` first,
/// which may install a filter, and keeps the value that `enter` returns until the thread ends.
pub fn spawn<G>(
    worker: Box<dyn Worker>,
    kicks: Vec<EventFd>,
    enter: impl FnOnce() -> io::Result<G> + Send + 'static,
) -> io::Result<Handle> {
    let wake = EventFd::new(libc::EFD_NONBLOCK)?;
    let (commands, inbox) = channel();
    let (outbox, replies) = channel();
    let name = worker.kind().name();
    let mut thread = Thread {
        rings: kicks.iter().map(|_| None).collect(),
        worker,
        kicks,
        commands: inbox,
        replies: outbox,
        wake: wake.try_clone()?,
        backend_left: false,
    };
    let thread = Builder::new().name(name.into()).spawn(move || {
        let entered = thread.epoll().and_then(|epoll| Ok((epoll, enter()?)));
        match entered {
            Ok((epoll, _guard)) => {
                let _ = thread.replies.send(Ok(()));
                thread.run(&epoll);
            }
            Err(error) => drop(thread.replies.send(Err(error))),
        }
    })?;
    let handle = Handle { commands, replies, wake, thread: Some(thread) };
    handle.reply()?;
    Ok(handle)
}

impl Handle {
    /// Gives the worker its rings, because the driver is ready.
    pub fn start(&self, features: u64, rings: Vec<Option<Ring>>) -> io::Result<()> {
        self.ask(Command::Start { features, rings })
    }

    /// Takes the rings away. Afterwards, no request is in flight.
    pub fn stop(&self) {
        // A thread that has ended has no request in flight either.
        let _ = self.ask(Command::Stop);
    }

    fn ask(&self, command: Command) -> io::Result<()> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.commands.send(command).map_err(gone)?;
        self.wake.write(1)?;
        self.reply()
    }

    fn reply(&self) -> io::Result<()> {
        self.replies.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.ask(Command::Quit);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the VM has ended for that reason.
            let _ = thread.join();
        }
    }
}

impl Thread {
    fn epoll(&self) -> io::Result<Epoll> {
        let epoll = Epoll::new()?;
        let add =
            |fd, events, data| epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(events, data));
        add(self.wake.as_raw_fd(), EventSet::IN, COMMAND)?;
        if let Some(backend) = self.worker.backend() {
            add(backend, EventSet::IN | EventSet::EDGE_TRIGGERED, BACKEND)?;
        }
        for (kick, data) in self.kicks.iter().zip(QUEUES..) {
            add(kick.as_raw_fd(), EventSet::IN, data)?;
        }
        Ok(epoll)
    }

    fn run(&mut self, epoll: &Epoll) {
        let mut events = [EpollEvent::default(); EVENTS_MAX];
        loop {
            // Only a signal ends the wait early.
            let count = epoll.wait(-1, &mut events).unwrap_or(0);
            for event in &events[..count] {
                match event.data() {
                    COMMAND => {
                        let _ = self.wake.read();
                        if !self.obey() {
                            return;
                        }
                    }
                    BACKEND => self.ready(),
                    queue => self.handle((queue - QUEUES) as usize),
                }
            }
        }
    }

    /// Executes the commands, and continues with the backend. Returns `false` if the thread ends.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            let (result, goes_on) = match command {
                Command::Start { features, rings } => (self.start(features, rings), true),
                Command::Stop => {
                    self.rings.fill_with(|| None);
                    self.worker.stop();
                    (Ok(()), true)
                }
                Command::Quit => (Ok(()), false),
            };
            let _ = self.replies.send(result);
            if !goes_on {
                return false;
            }
            // Notifications that arrived before the rings had no effect.
            (0..self.kicks.len()).for_each(|queue| self.handle(queue));
        }
        if self.backend_left {
            self.ready();
        }
        true
    }

    /// Starts the worker. If it fails to start, it gets no rings.
    fn start(&mut self, features: u64, rings: Vec<Option<Ring>>) -> io::Result<()> {
        self.worker.start(features)?;
        self.rings = rings;
        Ok(())
    }

    fn handle(&mut self, queue: usize) {
        let _ = self.kicks[queue].read();
        if self.worker.handle(queue, &mut self.rings) == Left::More {
            let _ = self.kicks[queue].write(1);
        }
    }

    fn ready(&mut self) {
        self.backend_left = self.worker.ready(&mut self.rings) == Left::More;
        if self.backend_left {
            let _ = self.wake.write(1);
        }
    }
}

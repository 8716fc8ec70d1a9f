//! The guest's side of the channel. Each request has its own thread, so that a long job never
//! delays the answer to a ping or a stop.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use unspin_host::{AskBy, ClockPage, Host, LocalHost};
use unspin_wire::clock::Moment;
use unspin_wire::{Envelope, Failure, HostReply, HostRequest, Job, Reply, Request};

use crate::background::Background;
use crate::{facts, heartbeat, job};

type Jobs = Mutex<HashMap<u64, Background>>;

struct Server {
    port: Mutex<File>,
    jobs: Jobs,
}

/// Answers requests until one asks to power off, or until the other end is gone.
pub fn serve(reader: File, writer: File) -> anyhow::Result<()> {
    let server = Arc::new(Server { port: Mutex::new(writer), jobs: Jobs::default() });
    let host = start_host(server.clone());
    server.reply(0, Reply::Hello(facts::hello()));
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            // QEMU's socket is not connected (yet, or any more).
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let request: Envelope<Request> = serde_json::from_str(&line)?;
        if matches!(request.body, Request::PowerOff) {
            return Ok(());
        }
        if let Request::Host(asked) = request.body {
            host.send((request.id, *asked))?;
            continue;
        }
        let server = server.clone();
        std::thread::spawn(move || {
            let reply = server.answer(request.id, request.body);
            server.reply(request.id, reply);
        });
    }
}

/// Starts a thread for the host role that never ends: a VM dies with the thread that started it.
fn start_host(server: Arc<Server>) -> mpsc::Sender<(u64, HostRequest)> {
    let (sender, requests) = mpsc::channel::<(u64, HostRequest)>();
    std::thread::spawn(move || {
        let mut host = LocalHost::new("/run/unspin".into(), AskBy::Messages);
        let mut beating = false;
        for (id, request) in requests {
            if !std::mem::replace(&mut beating, true) {
                heartbeat::start(facts::online_cpus() as usize);
            }
            let reply = carry_out(&mut host, request).unwrap_or_else(HostReply::Failed);
            server.reply(id, Reply::Host(Box::new(reply)));
        }
    });
    sender
}

fn carry_out(host: &mut dyn Host, request: HostRequest) -> Result<HostReply, Failure> {
    match request {
        HostRequest::Boot(spec) => host.boot(&spec).map(HostReply::Booted),
        HostRequest::Run(spec) => host.run(&spec).map(|output| HostReply::Ran(Box::new(output))),
        HostRequest::Halt => {
            host.halt();
            Ok(HostReply::Halted)
        }
    }
}

impl Server {
    fn answer(&self, id: u64, request: Request) -> Reply {
        match request {
            Request::Ping => Reply::Pong(Moment::now()),
            Request::ShareClock { rounds, limit_s } => share_clock(rounds, limit_s),
            Request::Run(job) => Reply::Ran(job::run_job(&job)),
            Request::Start(job) => self.start(id, &job),
            Request::Stop { handle } => self.stop(handle),
            Request::Host(_) | Request::PowerOff => Reply::Error("not a job".into()),
        }
    }

    fn start(&self, handle: u64, job: &Job) -> Reply {
        match Background::start(job) {
            Ok(background) => {
                lock(&self.jobs).insert(handle, background);
                Reply::Started { handle }
            }
            Err(error) => Reply::Error(format!("{error:#}")),
        }
    }

    fn stop(&self, handle: u64) -> Reply {
        let job = lock(&self.jobs).remove(&handle);
        match job {
            Some(job) => Reply::Ran(job.stop()),
            None => Reply::Error(format!("no job with handle {handle}")),
        }
    }

    fn reply(&self, id: u64, body: Reply) {
        let mut line = match serde_json::to_vec(&Envelope { id, body }) {
            Ok(line) => line,
            Err(error) => return eprintln!("unspin init: reply {id}: {error}"),
        };
        line.push(b'\n');
        if let Err(error) = lock(&self.port).write_all(&line) {
            eprintln!("unspin init: reply {id}: {error}");
        }
    }
}

fn share_clock(rounds: u64, limit_s: f64) -> Reply {
    match ClockPage::of_this_guest() {
        Ok(page) => {
            page.answer(rounds, Duration::from_secs_f64(limit_s));
            Reply::Shared
        }
        Err(error) => Reply::Error(format!("the shared page: {error}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

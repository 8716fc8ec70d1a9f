//! `holdbench`: one thread has a lock nearly all of the time, and another one wants it now and
//! then. Each is pinned to a vCPU of its own. The times at which those vCPUs were off therefore
//! explain why the second thread waited.

mod holds;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use holds::{Hold, SLEEPERS, Shared};

/// One thread holds, another one waits.
#[derive(Parser)]
#[command(name = "holdbench", version)]
struct Args {
    /// What is held
    #[arg(long, value_enum)]
    what: Hold,
    /// Microseconds that the holder keeps it each time; a kernel spinlock cannot be kept, and a
    /// kernel mutex for no longer than a read of 64 MiB takes
    #[arg(long, value_name = "US", default_value_t = 5_000)]
    hold_us: u64,
    /// Microseconds that the waiter sleeps between two attempts
    #[arg(long, value_name = "US", default_value_t = 1_000)]
    pause_us: u64,
    /// Also run a thread that computes on the holder's vCPU
    #[arg(long)]
    hog: bool,
    /// How long
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const SLEEPERS_STACK: usize = 64 << 10;
const WAITERS_VCPU: usize = 0;
const HOLDERS_VCPU: usize = 1;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok((waits, seconds)) => {
            let per_s = waits as f64 / seconds;
            if args.json {
                println!("{}", serde_json::json!({"waits": waits, "waits_per_s": per_s}));
            } else {
                println!("{waits} waits, {per_s:.1} per second");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("holdbench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns how often the waiter got the lock, and the seconds that this took.
fn run(args: &Args) -> std::io::Result<(u64, f64)> {
    let shared = Shared::new(args.what, Duration::from_micros(args.hold_us))?;
    let stop = AtomicBool::new(false);
    let pause = Duration::from_micros(args.pause_us);
    let started = Instant::now();
    let waits = std::thread::scope(|scope| {
        let sleepers = if args.what == Hold::Spinlock { SLEEPERS } else { 0 };
        for _ in 0..sleepers {
            let small = std::thread::Builder::new().stack_size(SLEEPERS_STACK);
            if let Err(error) = small.spawn_scoped(scope, || shared.sleep()) {
                shared.wake();
                return Err(error);
            }
        }
        // The scope waits for all threads.
        let end = || {
            stop.store(true, Ordering::Relaxed);
            shared.wake();
        };
        let hold = || -> std::io::Result<()> {
            hold_to(HOLDERS_VCPU)?;
            let mut buffer = shared.buffer();
            while !stop.load(Ordering::Relaxed) {
                shared.hold(&mut buffer)?;
            }
            Ok(())
        };
        let compute = || -> std::io::Result<()> {
            hold_to(HOLDERS_VCPU)?;
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let thread = std::thread::Builder::new;
        let holder = thread().spawn_scoped(scope, hold).inspect_err(|_| end())?;
        let hog = args.hog.then(|| thread().spawn_scoped(scope, compute)).transpose();
        let hog = hog.inspect_err(|_| end())?;
        let waiter = || -> std::io::Result<u64> {
            hold_to(WAITERS_VCPU)?;
            let mut waits = 0;
            while started.elapsed().as_secs_f64() < args.seconds && !holder.is_finished() {
                shared.wait()?;
                waits += 1;
                if !pause.is_zero() {
                    std::thread::sleep(pause);
                }
            }
            Ok(waits)
        };
        let waits = waiter();
        end();
        for thread in [Some(holder), hog].into_iter().flatten() {
            thread.join().expect("it does not panic")?;
        }
        waits
    })?;
    Ok((waits, started.elapsed().as_secs_f64()))
}

/// Pins this thread to a vCPU.
fn hold_to(vcpu: usize) -> std::io::Result<()> {
    // SAFETY: an all-zero set is an empty one; `vcpu` is far below its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(vcpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

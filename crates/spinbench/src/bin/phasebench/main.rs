//! `phasebench`: threads alternately spin in the kernel and compute. A program may limit the vCPUs
//! to avoid the spinning. `phasebench` measures how soon it sets the limit and lifts it.

mod follow;
mod load;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use follow::{Follower, Reactions};
use load::{Kind, Load, THREADS_MAX};

/// A load that changes, and how soon the vCPUs that its threads may use follow.
#[derive(Parser)]
#[command(name = "phasebench", version)]
struct Args {
    /// Threads
    #[arg(long, default_value_t = 8, value_parser = threads)]
    threads: usize,
    /// How long each phase lasts, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    phase_ms: u64,
    /// How often the phases are repeated
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn threads(text: &str) -> Result<usize, String> {
    let in_range = |threads: &usize| (1..=THREADS_MAX).contains(threads);
    text.parse()
        .ok()
        .filter(in_range)
        .ok_or_else(|| format!("it is a number from 1 to {THREADS_MAX}"))
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(result) => {
            print(&args, &result);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("phasebench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The results of the rounds.
struct Outcome {
    spun_per_s: f64,
    computed_per_s: f64,
    /// Time from the start of a spinning phase until the vCPUs were limited, and time from its end
    /// until all vCPUs were free again.
    limited: Reactions,
    lifted: Reactions,
    /// Rounds that began with a limit from the round before.
    still_limited: u32,
}

fn run(args: &Args) -> std::io::Result<Outcome> {
    let load = Load::new()?;
    let phase = Duration::from_millis(args.phase_ms);
    std::thread::scope(|scope| {
        let stop = load.stop_at_the_end();
        let mut threads = Vec::new();
        for number in 0..args.threads {
            threads.push(load.spawn(scope, number)?);
        }
        let watched = rounds(args, &load, phase);
        drop(stop);
        let mut work = [0; 2];
        for thread in threads {
            // If a thread failed, its error explains why its vCPUs could not be read.
            let done = thread.join().expect("it does not panic")?;
            work.iter_mut().zip(done).for_each(|(sum, part)| *sum += part);
        }
        let (outcome, lasted) = watched?;
        let per_s = |work: u64, time: Duration| work as f64 / time.as_secs_f64();
        Ok(Outcome {
            spun_per_s: per_s(work[0], lasted[0]),
            computed_per_s: per_s(work[1], lasted[1]),
            ..outcome
        })
    })
}

/// Runs the rounds. Returns all figures but the rates, and how long the threads spun and computed.
/// These times are measured, because the watching thread may be late.
fn rounds(args: &Args, load: &Load, phase: Duration) -> std::io::Result<(Outcome, [Duration; 2])> {
    let mut outcome = Outcome {
        spun_per_s: 0.0,
        computed_per_s: 0.0,
        limited: Reactions::default(),
        lifted: Reactions::default(),
        still_limited: 0,
    };
    let mut lasted = [Duration::ZERO; 2];
    let follower = Follower::new(load.thread_ids(args.threads)?)?;
    for _ in 0..args.rounds {
        let was_limited = follower.is_limited()?;
        load.change(Kind::Spin);
        let began = Instant::now();
        let after = follower.watch(phase, |follower| follower.is_limited())?;
        match was_limited {
            true => outcome.still_limited += 1,
            false => outcome.limited.add(after),
        }
        let is_limited = follower.is_limited()?;
        load.change(Kind::Compute);
        let changed = Instant::now();
        let after = follower.watch(phase, |follower| Ok(!follower.is_any_limited()?))?;
        if is_limited {
            outcome.lifted.add(after);
        }
        lasted[0] += changed - began;
        lasted[1] += changed.elapsed();
    }
    load.change(Kind::Stop);
    Ok((outcome, lasted))
}

fn print(args: &Args, outcome: &Outcome) {
    let both = (outcome.spun_per_s * outcome.computed_per_s).sqrt();
    if args.json {
        let json = serde_json::json!({
            "rounds": args.rounds,
            "both_per_s": both,
            "spun_per_s": outcome.spun_per_s,
            "computed_per_s": outcome.computed_per_s,
            "still_limited": outcome.still_limited,
            "limited": outcome.limited.to_json(),
            "lifted": outcome.lifted.to_json(),
        });
        println!("{json}");
        return;
    }
    println!("{:.0} descriptors/s, {:.0} loops/s", outcome.spun_per_s, outcome.computed_per_s);
    println!("limited in {}", outcome.limited);
    println!("lifted in {} that were limited to the end", outcome.lifted);
    if outcome.still_limited > 0 {
        println!("still limited from the round before in {}", outcome.still_limited);
    }
}

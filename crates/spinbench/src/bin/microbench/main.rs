//! `microbench`: the small costs of a machine, in nanoseconds: kernel entry, context switch,
//! wake-up, IPI, page fault, locks. They are comparable with published figures for hardware.

mod alone;
mod ipi;
mod line;
mod os;
mod peer;
mod pipe;
mod sample;
mod wake;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use os::Cpus;
use sample::Cost;

/// Measures the small costs of a machine, each the median of many batches.
#[derive(Parser)]
#[command(name = "microbench", version)]
struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Exit status: the measurement is impossible on this machine, or while it is this busy.
const EXIT_NOT_HERE: u8 = 77;
/// Version of the format of `--json`.
const FORMAT: u32 = 1;

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(cpus) = Cpus::allowed() else {
        eprintln!("microbench: needs two CPUs, and this process may use one; see `taskset -p`");
        return ExitCode::from(EXIT_NOT_HERE);
    };
    match measure(&cpus) {
        Ok(costs) if args.json => println!("{}", json(&costs)),
        Ok(costs) => costs.iter().for_each(|cost| println!("{cost}")),
        Err(error) => {
            eprintln!("microbench: {error}");
            let busy = error.kind() == io::ErrorKind::ResourceBusy;
            return if busy { ExitCode::from(EXIT_NOT_HERE) } else { ExitCode::FAILURE };
        }
    }
    ExitCode::SUCCESS
}

/// Measures every cost, in the order of printing. This thread stays on the first CPU.
fn measure(cpus: &Cpus) -> io::Result<Vec<Cost>> {
    os::pin_to(cpus.first)?;
    os::no_timer_slack()?;
    let one_cpu = pipe::round_trip(cpus.first)?;
    let calls = ipi::calls(cpus.second)?;
    Ok(vec![
        alone::getpid()?.cost("getpid"),
        one_cpu.clone().divided_by(2.0).cost("context_switch"),
        one_cpu.cost("pipe_one_cpu"),
        pipe::round_trip(cpus.second)?.cost("pipe_two_cpus"),
        wake::by_futex(cpus.second)?.cost("wake_futex"),
        calls.round_trip.cost("ipi_round_trip"),
        calls.delivery.cost("ipi_delivery"),
        calls.acknowledgement.cost("ipi_acknowledgement"),
        wake::by_timer()?.cost("timer_lateness"),
        alone::page_fault()?.cost("page_fault"),
        alone::lock()?.cost("lock_uncontended"),
        line::move_of(cpus.second)?.cost("cache_line_move"),
        line::handover(cpus.second)?.cost("lock_handover"),
    ])
}

/// Returns `{"format": 1, "costs": {NAME: {"median_ns": …, "p90_ns": …, "n": …}, …}}`.
fn json(costs: &[Cost]) -> serde_json::Value {
    let by_name: serde_json::Map<_, _> =
        costs.iter().map(|cost| (cost.name.to_owned(), serde_json::json!(cost))).collect();
    serde_json::json!({"format": FORMAT, "costs": by_name})
}

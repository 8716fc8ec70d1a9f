//! `unspin watch`.

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use unspin_guest::doctor;
use unspin_guest::machine::Facts;
use unspin_guest::sense::Settings;
use unspin_guest::watch::Watcher;
use unspin_lab::interrupt;
use unspin_report::live::{View, draw};

/// A slice of a lane, and the time between two pictures.
const SLICE: Duration = Duration::from_millis(200);

/// Watch this guest's vCPUs being on, off and idle, what is burned by spinning, why and
/// where. Needs root.
#[derive(clap::Args)]
pub struct Args {
    /// Watch for some seconds, print the figures, and end
    #[arg(long)]
    once: bool,
    /// Seconds that --once watches for
    #[arg(long = "for", value_name = "S", default_value_t = 3, requires = "once",
        value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Microseconds between two heartbeats of a vCPU that is not idle; 0: none
    #[arg(long, value_name = "US", default_value_t = Settings::default().beat_ns / 1_000,
        value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    beat: u64,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    json: bool,
}

/// Does it.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !args.once && !stdout().is_terminal() {
        bail!("watch draws on a terminal: use `unspin watch --once`, or `unspin record`");
    }
    let settings = Settings { beat_ns: args.beat * 1_000, ..Settings::default() };
    let mut watcher = Watcher::start(&settings)?;
    if args.once {
        return once(&args, &mut watcher);
    }
    let machine = unspin_report::doctor::kind(&doctor::diagnose(&Facts::probe()).machine);
    let mut terminal = ratatui::try_init()?;
    let done = watch(&mut terminal, &mut watcher, &machine);
    ratatui::restore();
    for name in watcher.missing() {
        eprintln!("unspin: not seen here, because this kernel does not have it: {name}");
    }
    done.map(|()| ExitCode::SUCCESS)
}

fn once(args: &Args, watcher: &mut Watcher) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(args.seconds) && !interrupt::requested() {
        std::thread::sleep(SLICE);
        watcher.step();
    }
    let digest = watcher.live.digest();
    if args.json {
        println!("{}", serde_json::to_string(&digest)?);
    } else {
        print!("{}", unspin_report::session::text(&digest));
    }
    Ok(ExitCode::SUCCESS)
}

fn watch(
    terminal: &mut DefaultTerminal,
    watcher: &mut Watcher,
    machine: &str,
) -> anyhow::Result<()> {
    let mut view = View::default();
    let mut shown = watcher.live.clone();
    let mut next = Instant::now() + SLICE;
    loop {
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()? {
                let stop = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    _ if key.kind != KeyEventKind::Press => {}
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if stop => return Ok(()),
                    KeyCode::Char('p') => view.paused = !view.paused,
                    KeyCode::Char('s') => view.worst_first = !view.worst_first,
                    KeyCode::Down => view.first += 1,
                    KeyCode::Up => view.first = view.first.saturating_sub(1),
                    KeyCode::PageDown => view.first += 10,
                    KeyCode::PageUp => view.first = view.first.saturating_sub(10),
                    KeyCode::Home => view.first = 0,
                    _ => {}
                }
                view.first = view.first.min(usize::from(watcher.live.vcpus()));
            }
            terminal.draw(|frame| draw(frame, &shown, view, machine))?;
        }
        next += SLICE;
        watcher.step();
        if !view.paused {
            shown = watcher.live.clone();
        }
        terminal.draw(|frame| draw(frame, &shown, view, machine))?;
    }
}

//! `unspin watch`.

use std::io::{IsTerminal, stdout};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use unspin_guest::doctor;
use unspin_guest::machine::Facts;
use unspin_guest::run::{scheduling, socket};
use unspin_guest::sense;
use unspin_guest::watch::{Sums, Watcher};
use unspin_lab::interrupt;
use unspin_model::class::Class;
use unspin_report::live::{Picture, View, draw};
use unspin_report::openmetrics;
use unspin_report::verdict::{Judged, Origin, judge};
use unspin_trace::live::{self, Live};
use unspin_trace::totals::Totals;

use crate::failure::of_class;
use crate::metrics::{self, Metrics};
use crate::{here, out, screen, sensing, span};

/// Duration of one character of a lane, and the time between two redraws.
const SLICE: Duration = Duration::from_millis(200);
/// Longest delay until a signal is noticed if no sums have to be read in between.
const REST: Duration = Duration::from_secs(1);

/// Show live what this guest loses to preemption and spinning, and why
///
/// It draws on the terminal, where `?` explains the keys and signs, prints a summary after some
/// seconds (--once), or serves sums for Prometheus (--listen). It needs root.
#[derive(clap::Args)]
pub struct Args {
    /// Instead of drawing, serve sums as OpenMetrics at http://ADDR/metrics, for Prometheus;
    /// `:PORT` is all IPv4 interfaces
    #[arg(long, value_name = "ADDR", conflicts_with = "once", value_parser = metrics::address)]
    listen: Option<SocketAddr>,
    /// With --listen: also watch each wait for a lock, and serve what they cost and why.
    /// Without it, watching costs next to nothing
    #[arg(long, requires = "listen")]
    causes: bool,
    /// Watch for a while, print the verdict and its figures, and end
    #[arg(long)]
    once: bool,
    /// How long --once watches, ten seconds at most: 3, 3s, 500ms
    #[arg(long = "for", value_name = "TIME", default_value = "3s", requires = "once",
        value_parser = span::seconds)]
    time: Duration,
    #[command(flatten)]
    sensing: sensing::Options,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !args.once && args.listen.is_none() && !stdout().is_terminal() {
        let text = "watch draws on a terminal: use `unspin watch --once`, or `unspin record`";
        return Err(of_class(Class::Usage, text));
    }
    let window = Duration::from_nanos(live::WINDOW_NS);
    if args.once && args.time > window {
        let text = format!(
            "--once covers {} s at most: use `sudo unspin record --for {}`",
            window.as_secs(),
            args.time.as_secs_f64()
        );
        return Err(of_class(Class::Usage, text));
    }
    let settings = args.sensing.settings();
    if let Some(address) = args.listen.filter(|_| !args.causes) {
        if args.sensing.chooses_heartbeats() {
            let text = "--listen has heartbeats with --causes only: add --causes, or leave out \
                        --beat and --budget";
            return Err(of_class(Class::Usage, text));
        }
        let mut sums = Sums::start(&settings)?;
        let missing = sums.missing().to_vec();
        return serve(address, &missing, None, || sums.totals());
    }
    let mut watcher = Watcher::start(&settings)?;
    if args.once {
        return once(&args, &mut watcher);
    }
    if let Some(address) = args.listen {
        note!("unspin: {}", sensing::describe(watcher.heartbeat(), watcher.missing()));
        let missing = watcher.missing().to_vec();
        return serve(address, &missing, Some(SLICE), || {
            watcher.step();
            watcher.totals.clone()
        });
    }
    let machine = unspin_report::doctor::kind(&doctor::diagnose(&Facts::probe()).machine);
    interrupt::install_flag()?;
    // Initialization may fail halfway.
    let mut terminal = ratatui::try_init().inspect_err(|_| _ = ratatui::try_restore())?;
    let done = watch(&mut terminal, &mut watcher, &machine);
    ratatui::restore();
    if let Some(missing) = sensing::missing(watcher.missing()) {
        note!("unspin: {missing}");
    }
    done.map(|()| ExitCode::SUCCESS)
}

fn once(args: &Args, watcher: &mut Watcher) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let started = Instant::now();
    while started.elapsed() < args.time && !interrupt::requested() {
        std::thread::sleep(SLICE.min(args.time));
        watcher.step();
    }
    let digest = &watcher.live.digest();
    let verdict = &judge(digest, Origin::Here(scheduling()), &sense::hidden(watcher.missing()));
    for remedy in sense::remedies(watcher.missing()) {
        note!("unspin: {remedy}");
    }
    if args.json {
        out::json(1, Some(&here::about()), &Judged { verdict, digest })?;
    } else {
        out::text(unspin_report::session::text(digest, verdict, screen::columns()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves sums. `at_least` is the longest time between two reads of the sums, if they need any.
fn serve(
    address: SocketAddr,
    missing: &[String],
    at_least: Option<Duration>,
    mut sums: impl FnMut() -> Totals,
) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let metrics = Metrics::listen(address)?;
    if let Some(missing) = sensing::missing(missing) {
        note!("unspin: {missing}");
    }
    note!("unspin: figures at {}, until Ctrl-C", metrics.url());
    let (figures, questions) = metrics::questions();
    let _serving = metrics.serve(figures)?;
    while !interrupt::requested() {
        questions.answer(at_least.unwrap_or(REST), || openmetrics::text(&sums()));
        if at_least.is_some() {
            sums();
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Draws until `q`, Ctrl-C or a signal that asks this process to end.
fn watch(
    terminal: &mut DefaultTerminal,
    watcher: &mut Watcher,
    machine: &str,
) -> anyhow::Result<()> {
    let mut view = View::of(watcher.live.vcpus());
    let hidden = sense::hidden(watcher.missing());
    let mut digest = watcher.live.digest();
    let mut verdict = judge(&digest, Origin::Here(scheduling()), &hidden);
    let scheduler = socket::follow(Path::new(socket::PATH));
    let mut scheduled = None;
    let mut paused_at: Option<Live> = None;
    let mut next = Instant::now() + SLICE;
    while !interrupt::requested() {
        if next <= Instant::now() {
            watcher.step();
            if !view.paused {
                digest = watcher.live.digest();
                verdict = judge(&digest, Origin::Here(scheduling()), &hidden);
                scheduled = scheduler.lock().unwrap_or_else(PoisonError::into_inner).clone();
            }
            next = Instant::now() + SLICE;
        }
        let mut page = 0;
        let picture = Picture {
            live: paused_at.as_ref().unwrap_or(&watcher.live),
            digest: &digest,
            verdict: &verdict,
            machine,
            scheduler: scheduled.as_ref(),
        };
        terminal.draw(|frame| page = draw(frame, picture, &mut view))?;
        if !event::poll(next.saturating_duration_since(Instant::now()))? {
            continue;
        }
        if let Event::Key(key) = event::read()? {
            if !obey(key, &mut view, page) {
                break;
            }
        }
        match (view.paused, &paused_at) {
            (true, None) => paused_at = Some(watcher.live.clone()),
            (false, Some(_)) => paused_at = None,
            _ => {}
        }
    }
    Ok(())
}

/// Handles a key. Returns false if the program has to end. `page` is the number of visible lanes.
fn obey(key: KeyEvent, view: &mut View, page: usize) -> bool {
    match key.code {
        _ if key.kind != KeyEventKind::Press => {}
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') => return false,
        _ if view.help => view.help = false,
        KeyCode::Esc => return false,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => view.help = true,
        KeyCode::Char('p') => view.paused = !view.paused,
        KeyCode::Char('s') => view.worst_first = !view.worst_first,
        KeyCode::Down => view.first = view.first.saturating_add(1),
        KeyCode::Up => view.first = view.first.saturating_sub(1),
        KeyCode::PageDown => view.first = view.first.saturating_add(page),
        KeyCode::PageUp => view.first = view.first.saturating_sub(page),
        KeyCode::Home => view.first = 0,
        // Drawing reduces this to the last lane.
        KeyCode::End => view.first = usize::MAX,
        _ => {}
    }
    true
}

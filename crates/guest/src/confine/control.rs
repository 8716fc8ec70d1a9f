//! The control loop: measures all vCPUs, one window at a time, and limits tasks.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use unspin_policy::confine::{Facts, WINDOW_NS};

use super::arrangement::Arrangement;
use super::cpusets::How;
use super::error::{ConfineError, LimitError};
use super::failures::{Change, Failures};
use super::means::Means;
use super::priority::{run_as_others, run_first};
use super::rule::{Decider, Rule};
use super::vigilance::Vigilance;
use super::window::{self, Sums};
use super::{Shared, price};
use crate::account::{Account, Woken};
use crate::sense::{LightSensor, Settings};

const WINDOW: Duration = Duration::from_nanos(WINDOW_NS);
/// The window while the guest has little to do: each look would only wake a vCPU.
const QUIET_WINDOW: Duration = Duration::from_millis(50);
/// Without a limit and without spins nothing has to be decided. After `CALM_WINDOWS` windows with a
/// smaller share of spins than `CALM_PERCENT`, the loop rests until a vCPU spins, for at most
/// `REST`.
const CALM_WINDOWS: u32 = 3;
const CALM_PERCENT: u32 = 10;
const REST: Duration = Duration::from_secs(1);
/// The rest while the guest has work: the loop looks whether spins have to be counted. While they
/// are not, no spin can wake it.
const SHORT_REST: Duration = Duration::from_millis(100);
/// The pause before the kernel is asked again after it has refused the programs, as it does after
/// an error in its tracing.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The number of windows after which the loop limits new cgroups, too, and notices vCPUs that came
/// or went.
const ROUND: u32 = 10;

/// The state of the control loop, which runs in a thread of its own.
pub(super) struct Control {
    // This field is dropped first: the kernel takes a second to detach the programs of the others.
    pub(super) means: Means,
    pub(super) sensor: LightSensor,
    pub(super) account: Account,
    vigilance: Vigilance,
    rule: Rule,
    pub(super) decider: Decider,
    pub(super) online: Vec<u32>,
    pub(super) arrangement: Arrangement,
    pub(super) before: Sums,
    pub(super) first: Sums,
    pub(super) facts: Facts,
    pub(super) started: Instant,
    pub(super) late_ns: u64,
    /// The cost of a context switch, in nanoseconds.
    switch_ns: u64,
    pub(super) used_vcpu_s: f64,
    pub(super) failed: Option<String>,
    pub(super) failures: Failures,
    /// The number of consecutive windows without spins and without a limit.
    calm: u32,
    /// Whether a spin has ended a rest, and no window has passed since.
    woken: bool,
    /// An alarm has ended the last rest of a guest that had little to do. Until a rest passes
    /// without one, many short waits raise none.
    woken_quiet: bool,
    /// Whether isolation of the unused vCPUs has been requested since the limit last changed.
    parted: bool,
    /// When the kernel last refused the programs that count spins, and why.
    pub(super) refused: Option<(Instant, String)>,
    /// Why this thread has no real-time priority.
    pub(super) late: Option<String>,
}

impl Control {
    pub(super) fn start(
        settings: &Settings,
        means: Means,
        rule: Rule,
    ) -> Result<Control, ConfineError> {
        let online = means.usable().map_err(LimitError::Unknown)?;
        let sensor = LightSensor::start(settings)?;
        let account = Account::start(&sensor)?;
        let switch_ns = price::switch_ns();
        let mut control = Control {
            means,
            sensor,
            vigilance: Vigilance::new(account.attached_ns, price::counted_ns(switch_ns)),
            account,
            rule,
            decider: Decider::new(rule, online.len() as u32),
            online,
            arrangement: Arrangement::default(),
            before: Sums::default(),
            first: Sums::default(),
            facts: Facts::default(),
            started: Instant::now(),
            late_ns: settings.limits.timer_ns,
            switch_ns,
            used_vcpu_s: 0.0,
            failed: None,
            failures: Failures::default(),
            calm: 0,
            woken: false,
            woken_quiet: false,
            parted: false,
            refused: None,
            late: None,
        };
        control.before = control.sums();
        control.first = control.before;
        Ok(control)
    }

    pub(super) fn run(mut self, shared: &Shared, end: &UnixStream) {
        self.late = run_first().err().map(|error| error.to_string());
        let mut alarm = self.account.alarm().ok();
        let mut rounds = 0;
        while !shared.over.load(Ordering::Relaxed) {
            let rests = alarm.as_ref().filter(|_| self.may_rest());
            let rest = self.rest();
            match rests
                .map(|alarm| alarm.rest(rest, rest == REST && !self.woken_quiet, end.as_fd()))
            {
                Some(Ok(Woken::Spins)) => {
                    self.woken_quiet = self.is_quiet();
                    self.wake();
                    continue;
                }
                Some(Ok(Woken::Over)) if rest == REST => {
                    rounds = 0;
                    self.woken_quiet = false;
                }
                Some(Ok(Woken::Over)) => {}
                Some(Err(_)) => alarm = None,
                None => thread::sleep(self.pause()),
            }
            let began_ns = self.before.now_ns;
            self.step(rounds % ROUND == 0);
            self.count_or_not(self.before.now_ns - began_ns);
            rounds += 1;
            *shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.stats();
        }
    }

    fn pause(&self) -> Duration {
        if self.is_quiet() && !self.woken { QUIET_WINDOW } else { WINDOW }
    }

    /// Returns whether the loop may rest until a vCPU spins.
    fn may_rest(&self) -> bool {
        self.decider.goes_by_spins()
            && (self.calm >= CALM_WINDOWS || (self.calm > 0 && self.is_quiet()))
    }

    fn rest(&self) -> Duration {
        if self.calm < CALM_WINDOWS {
            QUIET_WINDOW
        } else if self.is_quiet() {
            REST
        } else {
            SHORT_REST
        }
    }

    /// Returns whether the guest wants less than half a vCPU.
    fn is_quiet(&self) -> bool {
        self.facts.on_m + self.facts.off_m < 500
    }

    /// Starts or stops counting spins after a window of `window_ns`.
    fn count_or_not(&mut self, window_ns: u64) {
        let vcpus = self.online.len();
        let limits = self.decider.in_use() as usize != vcpus || self.decider.on_trial();
        let counts = self.vigilance.step(&self.facts, vcpus, window_ns, limits);
        let waits = self.refused.as_ref().is_some_and(|(at, _)| at.elapsed() < ASK_AGAIN);
        if counts == self.account.is_counting() || (counts && waits) {
            return;
        }
        if counts {
            let refused = self.account.resume().err().map(|error| error.to_string());
            if let (Some(why), None) = (&refused, &self.refused) {
                note!("unspin: spins are not counted any more, so nothing is limited: {why}");
            }
            self.refused = refused.map(|why| (Instant::now(), why));
            self.vigilance.attached(self.account.attached_ns);
        } else {
            // Detaching takes long, and the guest has work for all of its vCPUs.
            let _ = run_as_others();
            self.account.pause();
            self.late = run_first().err().map(|error| error.to_string());
        }
        self.wake();
    }

    /// Begins a window after a rest: the next decision depends on what follows.
    fn wake(&mut self) {
        let now = self.sums();
        self.begin_window(now);
        self.decider.wake();
        self.calm = 0;
        self.woken = true;
    }

    fn begin_window(&mut self, now: Sums) {
        let seconds = (now.now_ns - self.before.now_ns) as f64 / 1e9;
        self.used_vcpu_s += f64::from(self.decider.in_use()) * seconds;
        self.before = now;
    }

    fn step(&mut self, round: bool) {
        if round {
            let followed = self.follow_hotplug();
            let failed = self.count(Change::Hotplug, followed);
            if failed.is_some() {
                self.failed = failed;
                return;
            }
        }
        self.woken = false;
        let now = self.sums();
        self.facts = now.since(&self.before, self.online.len() as u32, self.switch_ns);
        if round && !self.decider.on_trial() {
            self.means.refresh();
        }
        let (before, tried_fewer) = (self.decider.in_use(), self.decider.tries_fewer());
        let had_fewer = self.decider.has_fewer();
        if before as usize != self.online.len() && self.failed.is_none() {
            self.arrangement.add(&self.facts, before as usize);
        }
        self.begin_window(now);
        let usage = self.decider.step(&self.facts, now.now_ns) as usize;
        let wanted_m = self.facts.on_m + self.facts.off_m;
        let spins = self.facts.spin_m * 100 > wanted_m * CALM_PERCENT;
        let is_calm = usage == self.online.len() && !self.decider.on_trial() && !spins;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        // Only a partition keeps processes of the root cgroup off the other vCPUs.
        let part = self.decider.isolates(now.now_ns) || self.means.misses_work();
        let changes = usage != before as usize;
        if !round && !changes && (self.parted || !part) {
            return;
        }
        self.parted = part || (self.parted && !changes);
        // Without a real-time priority, this thread would be braked as well.
        let jammed = window::is_jammed(&self.facts);
        let brake = (usage < before as usize || jammed) && self.late.is_none();
        let how = How { brake, part };
        if changes && had_fewer && self.decider.has_fewer() {
            // Half of the vCPUs on trial are among these.
        } else if changes && tried_fewer {
            self.arrangement.switch();
        } else if usage < before as usize {
            self.arrangement.choose(usage);
        }
        let (change, done) = match usage == self.online.len() {
            true => (Change::Lift, self.means.lift(how.brake)),
            false => {
                let (keep, spare) = self.arrangement.split(&self.online, usage);
                (Change::Limit, self.means.limit(&keep, &spare, how))
            }
        };
        self.failed = self.count(change, done);
        if changes {
            self.arrangement.begin();
        }
        // Leave out spinning that the write of the limit causes: it is not the load's.
        let now = self.sums();
        self.begin_window(now);
    }

    /// Counts a change of the limit, and prints a note when failures begin or end. Returns the
    /// error.
    fn count(&mut self, change: Change, done: Result<(), LimitError>) -> Option<String> {
        let failed = done.err().map(|error| error.to_string());
        if let Some(words) = self.failures.step(change, failed.as_deref()) {
            note!("unspin: {words}");
        }
        failed
    }

    /// Starts over when vCPUs come or go: everything learnt so far is about another machine.
    fn follow_hotplug(&mut self) -> Result<(), LimitError> {
        let online = self.means.usable().map_err(LimitError::Unknown)?;
        if online != self.online {
            // Replace first, because a lift may write the set of all vCPUs. If that set contained
            // vCPUs that somebody has just made a partition of, the kernel would end that
            // partition.
            let replaced = self.means.replace_all(&online);
            self.means.lift(false)?;
            replaced?;
            self.decider = Decider::new(self.rule, online.len() as u32);
            self.arrangement = Arrangement::default();
            self.vigilance.forget_all();
            self.online = online;
            // The sums are now over other vCPUs. Move their start so that the growth until now is
            // kept.
            let now = self.sums();
            self.first = now.less(&self.before.less(&self.first));
            self.begin_window(now);
        }
        Ok(())
    }
}

//! The answer first: what a guest loses, to what, and what to do next.
//!
//! Everything is a share of **CPU time**, the time that was watched times the vCPUs, idle
//! included. Time
//! off and time burned by spinning do not overlap, because a spinner that is off burns
//! nothing, so they add up to what is lost.

use serde::{Serialize, Serializer};
use unspin_model::diagnosis::Scheduling;
use unspin_model::episode::Cause;
use unspin_model::session::BUSY;
use unspin_trace::digest::{CauseWaste, Digest};

use crate::markdown::escape;

mod sentence;

/// Shorter than that says nothing. CFS bandwidth control, the slowest common way to take
/// vCPUs away, has a period of 100 ms: twenty of them give a share to within a fifth or so.
const SECONDS_MIN: f64 = 2.0;
/// Half a second is enough if that many preemptions, or waits for vCPUs that were off, came in it.
const PREEMPTIONS_ENOUGH: u64 = 100;
const SECONDS_LEAST: f64 = 0.5;
/// What a first look should last.
const SECONDS_ADVISED: u64 = 10;
/// A loss below that is not worth a change: heartbeats may cost as much themselves.
const SHARE_MIN: f64 = 0.01;
/// From here on preemption is the host's doing on purpose (overcommit, a quota), worth a
/// talk with who runs it; below, other guests' bursts explain it.
const HOST_SHARE_MIN: f64 = 0.1;
/// `unspin run` acts where so much of the time that work wants is spun (CONFINE_SPIN_PERCENT of
/// policy/confine_spin.h).
const ACTS_FROM: f64 = 0.2;
/// Sleeping threads leave their vCPUs to others, so more of it is needed to matter.
const ASLEEP_MIN: f64 = 0.05;
/// Where more of the findings were lost, what is left proves no absence of anything.
const LOST_MAX: f64 = 0.1;
/// The hypervisor's steal time and what was found should not be further apart than that:
/// in the lab they agree within a tenth.
const DISAGREES: f64 = 2.0;

/// What it comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Too little was seen.
    TooLittle,
    /// No loss worth a change.
    Fine,
    /// No loss shows, but the kernel hides when busy vCPUs are off.
    Blind,
    /// vCPUs spin because others are preempted.
    Spinning,
    /// Threads sleep because lock holders are preempted.
    Sleeping,
    /// User space spins while vCPUs are preempted.
    UserSpinning,
    /// Locks are contended while everybody runs.
    Contended,
    /// vCPUs are preempted, and locks are hardly concerned.
    Preempted,
}

/// The verdict: an object of that name in `report --json` and `watch --once --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What it comes down to.
    pub kind: Kind,
    /// The same for a person.
    #[serde(serialize_with = "plain")]
    pub sentence: String,
    /// What to do next; absent where there is nothing to do.
    pub next: Option<Next>,
    /// What the sentence rests on.
    pub shares: Shares,
    /// What limits it, such as findings that were lost.
    #[serde(serialize_with = "all_plain")]
    pub caveats: Vec<String>,
    /// What the kernel hides, which is among the caveats.
    #[serde(skip)]
    pub hidden: Vec<String>,
}

/// A command, and when it applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    /// The command.
    pub command: String,
    /// Where or why, if that is not obvious.
    pub note: Option<String>,
}

impl Next {
    /// In a line.
    fn text(&self) -> String {
        match &self.note {
            None => self.brief(),
            Some(note) => format!("{} ({note})", self.brief()),
        }
    }

    /// The same without the note.
    pub(crate) fn brief(&self) -> String {
        format!("Try: {}", self.command)
    }
}

/// Shares of CPU time, from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shares {
    /// Lost: preempted, and spinning because others were.
    pub lost: f64,
    /// vCPUs were off.
    pub preempted: f64,
    /// Burned by spinning, by cause, the worst first. Plain contention is not among them.
    pub spinning: Vec<CauseShare>,
    /// Burned by spinning while nobody who was waited for was off.
    pub contended: f64,
    /// Threads slept for locks whose holders' vCPUs were off; more than 1 where many did.
    pub asleep: f64,
    /// Spinning in user space, as ticks found; absent where they did not look.
    pub user_spin: Option<f64>,
    /// Steal time; absent where nobody asked, 0 also where the hypervisor counts none.
    pub steal: Option<f64>,
}

/// What one cause burned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CauseShare {
    /// The cause.
    pub cause: Cause,
    /// Share of CPU time.
    pub share: f64,
}

/// Where the figures come from, which decides what can be done about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This machine, a moment ago.
    Here(Scheduling),
    /// A file, perhaps of another machine.
    File,
}

impl Shares {
    /// Of a digest.
    pub fn of(digest: &Digest) -> Shares {
        let cpu_s = (digest.seconds * f64::from(digest.vcpus)).max(1e-9);
        let off_s = digest.off.iter().fold(0.0, |sum, vcpu| sum + vcpu.off_s);
        let all = || digest.causes.iter();
        let spinning = all().filter(|waste| waste.cause != Cause::Plain && waste.wasted_s > 0.0);
        let spinning: Vec<CauseShare> = spinning
            .map(|waste| CauseShare { cause: waste.cause, share: waste.wasted_s / cpu_s })
            .collect();
        // From 0, because the sum of nothing is -0.
        let sum = |of: &dyn Fn(&CauseWaste) -> f64| all().map(of).fold(0.0, |sum, s| sum + s);
        let is_plain = |waste: &CauseWaste| waste.cause == Cause::Plain;
        let plain = sum(&|waste| if is_plain(waste) { waste.wasted_s } else { 0.0 });
        // While the guest's own scheduler runs others, no CPU time is lost to the sleepers.
        let asleep = sum(&|waste| if waste.cause.by_off() { waste.blocked_s } else { 0.0 });
        let preempted = off_s / cpu_s;
        Shares {
            lost: spinning.iter().fold(preempted, |sum, cause| sum + cause.share),
            preempted,
            contended: plain / cpu_s,
            asleep: asleep / cpu_s,
            user_spin: digest.user_spin_s.map(|s| s / cpu_s),
            steal: digest.steal_s.map(|s| s / cpu_s),
            spinning,
        }
    }

    fn spun(&self) -> f64 {
        self.spinning.iter().map(|cause| cause.share).sum()
    }

    fn kind(&self, digest: &Digest, blind: &[&str]) -> Kind {
        let is_off = self.preempted >= SHARE_MIN;
        match () {
            () if !is_enough(digest) => Kind::TooLittle,
            () if self.spun() >= SHARE_MIN => Kind::Spinning,
            () if lost_share(digest) >= LOST_MAX => Kind::TooLittle,
            () if is_off && self.asleep >= ASLEEP_MIN => Kind::Sleeping,
            () if is_off && self.user_spin.is_some_and(|s| s >= SHARE_MIN) => Kind::UserSpinning,
            () if self.contended >= SHARE_MIN.max(self.preempted) => Kind::Contended,
            () if is_off => Kind::Preempted,
            () if blind.contains(&BUSY) => Kind::Blind,
            () => Kind::Fine,
        }
    }
}

/// Whether there is enough to judge.
pub(crate) fn is_enough(digest: &Digest) -> bool {
    let preemptions: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let waits = digest.causes.iter().filter(|waste| waste.cause != Cause::Plain);
    let waits: u64 = waits.map(|waste| waste.episodes).sum();
    let many = preemptions + waits >= PREEMPTIONS_ENOUGH;
    digest.seconds >= if many { SECONDS_LEAST } else { SECONDS_MIN }
}

/// Judges a digest. `blind` names kinds of waits that the kernel hides, such as
/// `waits for IPIs`.
pub fn judge(digest: &Digest, origin: Origin, blind: &[&str]) -> Verdict {
    let shares = Shares::of(digest);
    let kind = shares.kind(digest, blind);
    Verdict {
        kind,
        sentence: sentence::of(kind, &shares, digest, origin),
        next: next(kind, &shares, digest, origin),
        caveats: caveats(digest, &shares, blind),
        hidden: blind.iter().map(|what| (*what).to_owned()).collect(),
        shares,
    }
}

fn next(kind: Kind, shares: &Shares, digest: &Digest, origin: Origin) -> Option<Next> {
    let command = |command: &str, note: Option<&str>| {
        Some(Next { command: command.into(), note: note.map(str::to_owned) })
    };
    match (kind, origin) {
        (Kind::Fine, _) => None,
        (Kind::Blind, Origin::Here(_)) => command("sudo unspin watch --beat 4ms", None),
        (Kind::Blind, Origin::File) => {
            command("sudo unspin record --beat 4ms", Some("in the guest that was recorded"))
        }
        (Kind::TooLittle, _) if digest.seconds >= SECONDS_MIN => {
            command("sudo unspin watch --listen 127.0.0.1:9469", Some("it keeps sums only"))
        }
        (Kind::TooLittle, _) => {
            command(&format!("sudo unspin record --for {SECONDS_ADVISED}"), None)
        }
        (Kind::Contended, _) => command("unspin explain plain", None),
        (Kind::Preempted, _) => command("unspin explain preempted", None),
        (Kind::UserSpinning, _) => command("unspin explain user-spin", None),
        (Kind::Sleeping, _) => command("unspin explain holder-off", None),
        (_, Origin::Here(Scheduling::Ready)) => {
            let rarely = "acts where spinning takes 20 % or more";
            command("sudo unspin run", (shares.spun() < ACTS_FROM).then_some(rarely))
        }
        (_, Origin::Here(Scheduling::Ours)) => {
            command("sudo unspin run --status", Some("unspin run is at work already"))
        }
        (_, Origin::Here(Scheduling::Taken)) => {
            command("unspin doctor", Some("another sched_ext scheduler is loaded"))
        }
        (_, Origin::Here(Scheduling::Needless)) => command(
            "sudo unspin run --ab 10",
            Some("a limit seldom gains with this host's PV spinlocks and steal time: measure it"),
        ),
        (_, Origin::Here(Scheduling::Absent)) => command(
            "unspin doctor",
            Some("`unspin run` needs cgroup version 2 or sched_ext; doctor says how to get them"),
        ),
        (_, Origin::File) => command(
            "sudo unspin run",
            Some("in the guest that was recorded; `unspin doctor` there says whether it can"),
        ),
    }
}

fn caveats(digest: &Digest, shares: &Shares, blind: &[&str]) -> Vec<String> {
    let mut caveats = Vec::new();
    caveats.extend(digest.incomplete.iter().map(|what| sentence::cut_off(digest, what)));
    caveats.extend((digest.lost > 0).then(|| sentence::lost(digest)));
    caveats.extend((!blind.is_empty()).then(|| sentence::blind(blind)));
    let told = shares.steal.filter(|steal| *steal > 0.0);
    caveats.extend(
        told.filter(|steal| disagree(*steal, shares.preempted))
            .map(|steal| sentence::disagreement(steal, shares.preempted)),
    );
    caveats
}

/// The share of all findings that was lost.
fn lost_share(digest: &Digest) -> f64 {
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    // A file that somebody made up can say that any number was lost.
    let all = digest.lost.saturating_add(intervals + digest.spins + digest.waits);
    digest.lost as f64 / all.max(1) as f64
}

fn disagree(steal: f64, found: f64) -> bool {
    let (less, more) = (steal.min(found), steal.max(found));
    more >= SHARE_MIN && more > DISAGREES * less
}

impl Verdict {
    /// What the kernel hides: the paragraph, and a few words for small screens.
    pub(crate) fn hidden(&self) -> Option<(String, String)> {
        let hidden: Vec<&str> = self.hidden.iter().map(String::as_str).collect();
        let whole = || format!("Mind: {}", sentence::blind(&hidden));
        (!hidden.is_empty()).then(|| (whole(), format!("Mind: not shown: {}", hidden.join(", "))))
    }

    /// In paragraphs: the sentence, what to try, what limits it.
    pub fn paragraphs(&self) -> Vec<String> {
        let mut all = vec![self.sentence.clone()];
        all.extend(self.next.as_ref().map(Next::text));
        all.extend(self.caveats.iter().map(|caveat| format!("Mind: {caveat}")));
        all
    }

    /// The same in Markdown, with nothing from a session's file as markup.
    pub(crate) fn markdown(&self) -> Vec<String> {
        let mut all = vec![format!("**{}**", escape(&self.sentence))];
        all.extend(self.next.as_ref().map(Next::text));
        all.extend(self.caveats.iter().map(|caveat| format!("Mind: {}", escape(caveat))));
        all
    }
}

/// A digest with its verdict, as JSON.
#[derive(Debug, Serialize)]
pub struct Judged<'a> {
    /// The verdict.
    pub verdict: &'a Verdict,
    /// The figures.
    #[serde(flatten)]
    pub digest: &'a Digest,
}

/// JSON is for programs: ordinary spaces.
fn plain<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&crate::columns::printable(text))
}

fn all_plain<S: Serializer>(texts: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(texts.iter().map(|text| crate::columns::printable(text)))
}

//! The verdict: what a guest loses, to what, and what to do next.
//!
//! All figures are shares of **CPU time**: the time that was watched times the number of vCPUs,
//! including idle time. Time off and time burned by spinning do not overlap, because a spinner that
//! is off burns nothing. So they add up to the loss.

use serde::{Serialize, Serializer};
use unspin_model::diagnosis::Scheduling;
use unspin_model::episode::Cause;
use unspin_model::session::BUSY;
use unspin_trace::digest::{CauseWaste, Digest};

use crate::markdown::escape;

mod sentence;

/// Minimum number of seconds for a verdict. CFS bandwidth control, the slowest common way to take
/// vCPUs away, has a period of 100 ms: twenty periods give a share to within a fifth or so.
const SECONDS_MIN: f64 = 2.0;
/// Number of preemptions, or of waits for vCPUs that were off, with which half a second is enough.
const PREEMPTIONS_ENOUGH: u64 = 100;
const SECONDS_LEAST: f64 = 0.5;
/// Recommended number of seconds for a first look.
const SECONDS_ADVISED: u64 = 10;
/// Share of a loss below which a change is not worth it: heartbeats may cost as much themselves.
const SHARE_MIN: f64 = 0.01;
/// Share from which the host preempts on purpose (overcommit, a quota), which is worth a talk with
/// its operator. Bursts of other guests explain less.
const HOST_SHARE_MIN: f64 = 0.1;
/// Share of spinning, in the time that work wants, from which `unspin run` acts
/// (CONFINE_SPIN_PERCENT of policy/confine_spin.h).
const ACTS_FROM: f64 = 0.2;
/// Share of sleeping that matters. It is larger, because sleeping threads leave their vCPUs to
/// others.
const ASLEEP_MIN: f64 = 0.05;
/// Share of lost findings above which the remaining ones do not prove that anything is absent.
const LOST_MAX: f64 = 0.1;
/// Factor between the hypervisor's steal time and the off time found that is too large: in the lab,
/// they agree within a tenth.
const DISAGREES: f64 = 2.0;

/// Kind of the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Too little was seen to judge.
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
    /// Locks are contended while all vCPUs run.
    Contended,
    /// vCPUs are preempted, with little effect on locks.
    Preempted,
}

/// The verdict: an object of that name in `report --json` and `watch --once --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Kind of the verdict.
    pub kind: Kind,
    /// The verdict in a sentence.
    #[serde(serialize_with = "plain")]
    pub sentence: String,
    /// What to do next; absent if there is nothing to do.
    pub next: Option<Next>,
    /// Shares on which the sentence rests.
    pub shares: Shares,
    /// Limits of the verdict, such as lost findings.
    #[serde(serialize_with = "all_plain")]
    pub caveats: Vec<String>,
    /// What the kernel hides; the caveats contain it, too.
    #[serde(skip)]
    pub hidden: Vec<String>,
}

/// A command, and the conditions for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    /// The command.
    pub command: String,
    /// Where or why to run it, if that is not obvious.
    pub note: Option<String>,
}

impl Next {
    /// Returns the command and its note in a line.
    fn text(&self) -> String {
        match &self.note {
            None => self.brief(),
            Some(note) => format!("{} ({note})", self.brief()),
        }
    }

    /// Returns the command without the note.
    pub(crate) fn brief(&self) -> String {
        format!("Try: {}", self.command)
    }
}

/// Shares of CPU time, from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shares {
    /// Time lost: preempted, and spinning because other vCPUs were preempted.
    pub lost: f64,
    /// Time for which vCPUs were off.
    pub preempted: f64,
    /// Time burned by spinning, by cause, the worst first. Plain contention is left out.
    pub spinning: Vec<CauseShare>,
    /// Time burned by spinning while no vCPU that was waited for was off.
    pub contended: f64,
    /// Time for which threads slept for locks whose holders' vCPUs were off; more than 1 if many
    /// did.
    pub asleep: f64,
    /// Time spent spinning in user space, as ticks found; absent if ticks did not sample.
    pub user_spin: Option<f64>,
    /// Steal time; absent if it was not read, and 0 also if the hypervisor counts none.
    pub steal: Option<f64>,
}

/// Time that one cause burned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CauseShare {
    /// The cause.
    pub cause: Cause,
    /// Share of CPU time.
    pub share: f64,
}

/// Origin of the figures, which decides what the user can do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This machine, a moment ago.
    Here(Scheduling),
    /// A file, perhaps from another machine.
    File,
}

impl Shares {
    /// Returns the shares of a digest.
    pub fn of(digest: &Digest) -> Shares {
        let cpu_s = (digest.seconds * f64::from(digest.vcpus)).max(1e-9);
        let off_s = digest.off.iter().fold(0.0, |sum, vcpu| sum + vcpu.off_s);
        let all = || digest.causes.iter();
        let spinning = all().filter(|waste| waste.cause != Cause::Plain && waste.wasted_s > 0.0);
        let spinning: Vec<CauseShare> = spinning
            .map(|waste| CauseShare { cause: waste.cause, share: waste.wasted_s / cpu_s })
            .collect();
        // The fold starts from 0, because the sum of nothing is -0.
        let sum = |of: &dyn Fn(&CauseWaste) -> f64| all().map(of).fold(0.0, |sum, s| sum + s);
        let is_plain = |waste: &CauseWaste| waste.cause == Cause::Plain;
        let plain = sum(&|waste| if is_plain(waste) { waste.wasted_s } else { 0.0 });
        // While the guest's own scheduler runs other threads, no CPU time is lost to the sleepers.
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

/// Returns whether the digest covers enough to judge.
pub(crate) fn is_enough(digest: &Digest) -> bool {
    let preemptions: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let waits = digest.causes.iter().filter(|waste| waste.cause != Cause::Plain);
    let waits: u64 = waits.map(|waste| waste.episodes).sum();
    let many = preemptions + waits >= PREEMPTIONS_ENOUGH;
    digest.seconds >= if many { SECONDS_LEAST } else { SECONDS_MIN }
}

/// Judges a digest. `blind` names kinds of waits that the kernel hides, such as `waits for IPIs`.
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
        (_, Origin::Here(Scheduling::Absent)) => {
            command("unspin doctor", Some("`unspin run` cannot act here; doctor says why"))
        }
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

/// Returns the share of all findings that was lost.
fn lost_share(digest: &Digest) -> f64 {
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    // A forged file can have any number of lost findings.
    let all = digest.lost.saturating_add(intervals + digest.spins + digest.waits);
    digest.lost as f64 / all.max(1) as f64
}

fn disagree(steal: f64, found: f64) -> bool {
    let (less, more) = (steal.min(found), steal.max(found));
    more >= SHARE_MIN && more > DISAGREES * less
}

impl Verdict {
    /// Returns what the kernel hides: as a paragraph, and in a few words for small screens.
    pub(crate) fn hidden(&self) -> Option<(String, String)> {
        let hidden: Vec<&str> = self.hidden.iter().map(String::as_str).collect();
        let whole = || format!("Mind: {}", sentence::blind(&hidden));
        (!hidden.is_empty()).then(|| (whole(), format!("Mind: not shown: {}", hidden.join(", "))))
    }

    /// Returns the verdict in paragraphs: the sentence, what to try, the limits.
    pub fn paragraphs(&self) -> Vec<String> {
        let mut all = vec![self.sentence.clone()];
        all.extend(self.next.as_ref().map(Next::text));
        all.extend(self.caveats.iter().map(|caveat| format!("Mind: {caveat}")));
        all
    }

    /// Returns the same in Markdown, with all text from a session's file escaped.
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

/// Writes a text with ordinary spaces: JSON is for programs.
fn plain<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&crate::columns::printable(text))
}

fn all_plain<S: Serializer>(texts: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(texts.iter().map(|text| crate::columns::printable(text)))
}

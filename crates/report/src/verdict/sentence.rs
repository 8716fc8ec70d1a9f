//! The sentences of the verdict.

use unspin_model::episode::Cause;
use unspin_trace::digest::Digest;

use super::{
    HOST_SHARE_MIN, Kind, Origin, SECONDS_ADVISED, SECONDS_MIN, SHARE_MIN, Shares, lost_share,
};
use crate::explain::causes;
use crate::format::{percent, plural, time};

/// Share below which a part of a loss is not listed.
const PART_MIN: f64 = 0.001;
/// Ratio of spinning to preemption below which spinning is hardly worth mentioning.
const HARDLY: f64 = 0.1;

/// Returns the sentence for a kind of verdict.
pub(super) fn of(kind: Kind, shares: &Shares, digest: &Digest, origin: Origin) -> String {
    let who = match origin {
        Origin::Here(_) => "You lose",
        Origin::File => "The guest lost",
    };
    // Lost findings would have added to the loss.
    let lose = format!("{who}{}", if digest.lost > 0 { " at least" } else { "" });
    let (lost, off) = (share(shares.lost), share(shares.preempted));
    match kind {
        Kind::TooLittle if digest.seconds >= SECONDS_MIN => {
            format!(
                "{} of what happened came too fast to be recorded, too much for a verdict: \
                 measure again under less load.",
                share(lost_share(digest))
            )
        }
        Kind::TooLittle => format!(
            "Too little seen to judge ({}); record for at least {SECONDS_ADVISED} s.",
            time(digest.seconds)
        ),
        Kind::Blind => "This kernel does not show when busy vCPUs are off: no verdict.".to_owned(),
        Kind::Fine if shares.lost == 0.0 => none(who, shares.steal.unwrap_or(0.0)),
        Kind::Fine => format!("{lose} {lost} of CPU time: nothing worth fixing."),
        Kind::Spinning => format!("{lose} {lost} of CPU time: {}.", parts(shares)),
        Kind::Sleeping => format!(
            "{lose} {off} of CPU time to preemption, and threads slept {} for locks whose \
             holders were preempted.",
            time(shares.asleep * digest.seconds * f64::from(digest.vcpus))
        ),
        Kind::UserSpinning => format!(
            "{lose} {off} of CPU time to preemption, while {} went into spinning in user space.",
            share(shares.user_spin.unwrap_or(0.0))
        ),
        Kind::Contended => format!(
            "{} of CPU time is burned waiting for locks whose holders run{}: \
             no scheduler mends that, less sharing does.",
            share(shares.contended),
            worst_place(digest)
        ),
        Kind::Preempted => preempted(&lose, shares),
    }
}

/// Returns the sentence if no loss was found; the hypervisor may count one.
fn none(who: &str, steal: f64) -> String {
    if steal <= 0.0 {
        return format!("{who} no CPU time: nothing to fix.");
    }
    let end = if steal < SHARE_MIN { ": nothing worth fixing" } else { "" };
    let steal = share(steal);
    format!("No loss was found, but the hypervisor counts {steal} of CPU time as steal time{end}.")
}

/// Returns a share for use within a sentence.
fn share(share: f64) -> String {
    percent(share).replace("< ", "less than ")
}

/// Returns the parts of a loss, such as `9 % to preemption, 3 % spinning because lock holders were
/// preempted`.
fn parts(shares: &Shares) -> String {
    let mut parts = Vec::new();
    if shares.preempted >= PART_MIN {
        parts.push(format!("{} to preemption", share(shares.preempted)));
    }
    let listed = shares.spinning.iter().filter(|cause| cause.share >= PART_MIN);
    for (nth, part) in listed.enumerate() {
        let spinning = if nth == 0 { " spinning" } else { "" };
        parts.push(format!(
            "{}{spinning} because {}",
            share(part.share),
            causes::in_sentence(part.cause)
        ));
    }
    parts.join(", ")
}

fn preempted(lose: &str, shares: &Shares) -> String {
    let lost = format!("{lose} {} of CPU time to preemption", share(shares.preempted));
    let spun = shares.spun();
    let locks = if spun == 0.0 && shares.asleep == 0.0 {
        "no locks involved".to_owned()
    } else if spun < shares.preempted * HARDLY {
        "hardly any of it at locks".to_owned()
    } else {
        format!("{} to spinning", share(spun))
    };
    if shares.preempted < HOST_SHARE_MIN {
        format!("{lost}, {locks}: nothing to fix in this guest.")
    } else {
        format!("{lost}, {locks}: only the host can give that back.")
    }
}

fn worst_place(digest: &Digest) -> String {
    let site = digest.sites.iter().find(|site| site.cause == Cause::Plain && !site.site.is_empty());
    site.map_or(String::new(), |site| format!(", most of it in {}", site.site))
}

pub(super) fn cut_off(digest: &Digest, what: &str) -> String {
    let first = time(digest.seconds);
    format!("the recording is incomplete: this is its first {first} only ({what}).")
}

pub(super) fn lost(digest: &Digest) -> String {
    let were = plural(digest.lost, "finding was", "findings were");
    format!("{were} lost, {} of all, because they came too fast.", share(lost_share(digest)))
}

pub(super) fn blind(blind: &[&str]) -> String {
    let (last, others) = blind.split_last().unwrap_or((&"", &[]));
    let others = if others.is_empty() { String::new() } else { others.join(", ") + " or " };
    format!("this kernel does not show {others}{last}, so what that costs is missing.")
}

pub(super) fn disagreement(steal: f64, found: f64) -> String {
    format!(
        "by the hypervisor, {} of CPU time was stolen, and {} was found here: see `unspin explain \
         steal`.",
        share(steal),
        share(found)
    )
}

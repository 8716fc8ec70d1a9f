//! A guest's session for the terminal.

use unspin_model::episode::{Cause, Wait};
use unspin_trace::digest::Digest;

use crate::columns::table;
use crate::format::{count, number};

/// Places that are listed.
const ROWS: usize = 15;

/// All of it as text, with a closing newline.
pub fn text(digest: &Digest) -> String {
    let mut parts = vec![opening(digest), vcpus(digest)];
    if !digest.causes.is_empty() {
        parts.push(causes(digest));
        parts.push(sites(digest));
    }
    parts.join("\n")
}

fn opening(digest: &Digest) -> String {
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let off_s: f64 = digest.off.iter().map(|vcpu| vcpu.off_s).sum();
    let per_s = if digest.seconds > 0.0 { 1e3 * off_s / digest.seconds } else { 0.0 };
    let mut out = format!(
        "{} s of {} vCPUs. They were off {} times, {} ms in every second, all together.\n",
        number(digest.seconds),
        digest.vcpus,
        count(intervals),
        number(per_s),
    );
    if let Some([median, p90, p99, largest]) = digest.off_ms.map(|all| all.map(number)) {
        out += &format!(
            "An off interval lasted {median} ms (median), {p90} (p90), {p99} (p99), {largest} at most.\n"
        );
    }
    out += &format!(
        "{} long spins burned {} vCPU-seconds.\n",
        count(digest.spins),
        number(digest.spin_s)
    );
    if digest.lost > 0 {
        out += &format!("{} findings were lost: they came too fast.\n", count(digest.lost));
    }
    out
}

fn vcpus(digest: &Digest) -> String {
    let rows = digest
        .off
        .iter()
        .map(|vcpu| vec![vcpu.vcpu.to_string(), count(vcpu.intervals), number(vcpu.off_s)]);
    table(["vCPU", "off intervals", "s off"], &[], rows.collect())
}

pub(crate) fn causes(digest: &Digest) -> String {
    let rows = digest.causes.iter().map(|waste| {
        vec![
            cause(waste.cause).to_owned(),
            count(waste.episodes),
            number(waste.wasted_s),
            format!("{:.0} %", 100.0 * waste.confidence),
        ]
    });
    table(["why they spun", "spins", "s wasted", "sure"], &[], rows.collect())
}

pub(crate) fn sites(digest: &Digest) -> String {
    let rows = digest.sites.iter().take(ROWS).map(|waste| {
        let site = if waste.site.is_empty() { "(not known)" } else { &waste.site };
        vec![
            site.to_owned(),
            count(waste.episodes),
            number(waste.wasted_s),
            wait(waste.wait).to_owned(),
            cause(waste.cause).to_owned(),
        ]
    });
    let words = ["for", "mostly because"];
    table(["where", "spins", "s wasted", words[0], words[1]], &words, rows.collect())
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::HolderOff => "the holder was off",
        Cause::WaiterOff => "a waiter in front was off",
        Cause::IpiOff => "a vCPU that had to answer was off",
        Cause::HolderPreempted => "the guest did not run the holder",
        Cause::Plain => "contention, nobody was off",
    }
}

fn wait(wait: Wait) -> &'static str {
    match wait {
        Wait::Spinlock => "spinlock",
        Wait::Mutex => "mutex",
        Wait::Ipi => "IPI",
    }
}

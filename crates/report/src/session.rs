//! A guest's session for people: terminal, Markdown and a page.

use minijinja::value::Serde;
use serde::Serialize;
use unspin_model::Session;
use unspin_model::episode::{Cause, Wait};
use unspin_trace::digest::Digest;

use crate::columns;
use crate::format::{count, number, plural};
use crate::html::{HtmlError, render};
use crate::markdown;

mod plots;

/// Columns that a table's first column has at least.
const FIRST_MIN: usize = 8;
/// Places that are listed.
const ROWS: usize = 15;

/// A table, ready to print; its first column holds words.
#[derive(Serialize)]
pub(crate) struct Table {
    title: &'static str,
    about: &'static str,
    heads: Vec<&'static str>,
    /// Which columns hold figures.
    figures: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let is_word = |at: &usize| *at > 0 && !self.figures.contains(at);
        let words: Vec<&str> =
            (0..self.heads.len()).filter(is_word).map(|at| self.heads[at]).collect();
        columns::table(&self.heads, &words, self.rows.clone())
    }

    /// For a terminal of so many columns: the first column gives way to the others.
    pub(crate) fn text_within(mut self, columns: usize) -> String {
        let widest = self.text().lines().map(columns::width).max().unwrap_or(0);
        let firsts = self.rows.iter().map(|row| columns::width(&row[0]));
        let first = firsts.max().unwrap_or(0);
        let room = (columns + first).saturating_sub(widest).max(FIRST_MIN);
        for row in &mut self.rows {
            row[0] = columns::cut(&row[0], room);
        }
        self.text()
    }
}

/// All of it as text, with a closing newline.
pub fn text(digest: &Digest) -> String {
    let opening = sentences(digest).join("\n") + "\n";
    let tables = tables(digest).into_iter().map(|table| table.text());
    [opening].into_iter().chain(tables).collect::<Vec<_>>().join("\n")
}

/// All of it as Markdown.
pub fn document(digest: &Digest) -> String {
    let mut out = sentences(digest).join(" ") + "\n";
    for table in tables(digest) {
        let heads: Vec<String> = table.heads.iter().map(|head| (*head).to_owned()).collect();
        out += &format!("\n**{}**\n\n", table.title);
        out += &markdown::grid(&heads, &table.rows, &table.figures);
    }
    out
}

/// What the page's template is filled with.
#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    headline: String,
    sentences: Vec<String>,
    lanes: String,
    left_out: Option<String>,
    lengths: Option<String>,
    tables: Vec<Table>,
}

/// All of it as a self-contained HTML page; `name` is the session's.
///
/// # Errors
/// [`HtmlError`] for a broken template; no session leads to it.
pub fn page(name: &str, session: &Session, digest: &Digest) -> Result<String, HtmlError> {
    let mut sentences = sentences(digest);
    let headline = sentences.remove(0);
    let more = usize::from(session.vcpus).saturating_sub(plots::LANES);
    let left_out =
        (more > 0).then(|| format!("The {} that were off most are shown.", plots::LANES));
    let page = Page {
        name,
        headline,
        sentences,
        lanes: plots::lanes(session),
        left_out,
        lengths: plots::lengths(session),
        tables: tables(digest),
    };
    render("session.html", Serde(page))
}

fn sentences(digest: &Digest) -> Vec<String> {
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let off_s: f64 = digest.off.iter().map(|vcpu| vcpu.off_s).sum();
    let per_s = if digest.seconds > 0.0 { 1e3 * off_s / digest.seconds } else { 0.0 };
    let mut out = vec![format!(
        "{} s of {}. They were off {}, {} ms in every second, all together.",
        number(digest.seconds),
        plural(u64::from(digest.vcpus), "vCPU", "vCPUs"),
        plural(intervals, "time", "times"),
        number(per_s),
    )];
    out.extend(digest.off_ms.map(|all| all.map(number)).map(|[median, p90, p99, largest]| {
        format!(
            "An off interval lasted {median} ms (median), {p90} (p90), {p99} (p99), \
             {largest} at most."
        )
    }));
    out.extend(digest.steal_s.map(|steal_s| steal(steal_s, off_s)));
    out.push(format!(
        "{} burned {} vCPU-seconds.",
        plural(digest.spins, "long spin", "long spins"),
        number(digest.spin_s)
    ));
    out.extend(digest.user_spin_s.map(|spun_s| {
        format!("Ticks found {} vCPU-seconds of spinning in user space.", number(spun_s))
    }));
    if digest.waits > 0 {
        out.push(format!(
            "{} for locks kept threads asleep for {} s, all together.",
            plural(digest.waits, "long wait", "long waits"),
            number(digest.wait_s)
        ));
    }
    out.extend(digest.incomplete.iter().map(|what| format!("Incomplete: {what}.")));
    if digest.lost > 0 {
        let lost = plural(digest.lost, "finding was", "findings were");
        out.push(format!("{lost} lost: they came too fast."));
    }
    out
}

fn steal(steal_s: f64, off_s: f64) -> String {
    if steal_s == 0.0 {
        return "Steal time as the hypervisor tells it: none.".into();
    }
    let (told, found) = (number(steal_s), number(off_s));
    format!("Steal time as the hypervisor tells it: {told} s; {found} s off were found.")
}

fn tables(digest: &Digest) -> Vec<Table> {
    let mut tables = vec![vcpus(digest)];
    if !digest.causes.is_empty() {
        tables.extend([causes(digest), sites(digest)]);
    }
    tables
}

fn vcpus(digest: &Digest) -> Table {
    let mut heads = vec!["vCPU", "off intervals", "s off"];
    heads.extend(digest.steal_s.map(|_| "s steal"));
    heads.extend(digest.user_spin_s.map(|_| "s user spin"));
    let row = |vcpu: &unspin_trace::digest::VcpuOff| {
        let mut row = vec![vcpu.vcpu.to_string(), count(vcpu.intervals), number(vcpu.off_s)];
        row.extend(digest.steal_s.map(|_| number(vcpu.steal_s.unwrap_or(0.0))));
        row.extend(digest.user_spin_s.map(|_| number(vcpu.user_spin_s.unwrap_or(0.0))));
        row
    };
    Table {
        title: "vCPUs",
        about: "Off: it wanted to run and did not have its pCPU.",
        figures: (1..heads.len()).collect(),
        heads,
        rows: digest.off.iter().map(row).collect(),
    }
}

pub(crate) fn causes(digest: &Digest) -> Table {
    let row = |waste: &unspin_trace::digest::CauseWaste| {
        vec![
            cause(waste.cause).to_owned(),
            count(waste.episodes),
            number(waste.wasted_s),
            number(waste.blocked_s),
            format!("{:.0} %", 100.0 * waste.confidence),
        ]
    };
    Table {
        title: "Why they waited",
        about: "vCPU-seconds burned by spinning and seconds asleep, by what kept them waiting, \
                and how sure that is.",
        heads: vec!["why they waited", "times", "s burned", "s asleep", "sure"],
        figures: vec![1, 2, 3, 4],
        rows: digest.causes.iter().map(row).collect(),
    }
}

pub(crate) fn sites(digest: &Digest) -> Table {
    let row = |waste: &unspin_trace::digest::SiteWaste| {
        let site = if waste.site.is_empty() { "(not known)" } else { &waste.site };
        vec![
            site.to_owned(),
            count(waste.episodes),
            number(waste.wasted_s),
            number(waste.blocked_s),
            wait(waste.wait).to_owned(),
            cause_in_short(waste.cause).to_owned(),
        ]
    };
    Table {
        title: "Where they waited",
        about: "The functions that wanted the locks, the worst one first.",
        heads: vec!["where", "times", "s burned", "s asleep", "for", "mostly because"],
        figures: vec![1, 2, 3],
        rows: digest.sites.iter().take(ROWS).map(row).collect(),
    }
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::HolderOff => "the holder was off",
        Cause::WaiterOff => "a waiter in front was off",
        Cause::IpiOff => "a vCPU that had to answer was off",
        Cause::HolderPreempted => "the guest did not run the holder",
        Cause::Plain => "plain contention",
    }
}

fn cause_in_short(cause: Cause) -> &'static str {
    match cause {
        Cause::HolderOff => "holder off",
        Cause::WaiterOff => "waiter off",
        Cause::IpiOff => "IPI target off",
        Cause::HolderPreempted => "holder not run",
        Cause::Plain => "contention",
    }
}

fn wait(wait: Wait) -> &'static str {
    match wait {
        Wait::Spinlock => "spinlock",
        Wait::Mutex => "mutex",
        Wait::Rwsem => "rwsem",
        Wait::Futex => "user's mutex",
        Wait::Ipi => "IPI",
    }
}

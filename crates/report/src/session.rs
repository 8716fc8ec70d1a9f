//! A guest's session for people: for the terminal, in Markdown and as a page.

use minijinja::value::Serde;
use serde::Serialize;
use unspin_model::Session;
use unspin_model::episode::Wait;
use unspin_model::session::About;
use unspin_trace::digest::{CauseWaste, Digest, SiteWaste, VcpuOff};

use crate::columns;
use crate::explain::causes;
use crate::format::{count, percent, plural, time};
use crate::html::{HtmlError, render};
use crate::markdown;
use crate::verdict::Verdict;

mod plots;

/// Minimum width of a table's first column.
const FIRST_MIN: usize = 8;
/// Wanted width of the first column: other columns are left out for it.
const FIRST_WANTED: usize = 20;
/// Length of lines in paragraphs that are not for a terminal.
const COLUMNS: usize = 80;
/// Maximum number of places that are listed.
const ROWS: usize = 15;
/// Minimum of the rest in seconds: less than a microsecond is rounding.
const REST_MIN_S: f64 = 1e-6;

/// A table, ready to print; its first column contains words.
#[derive(Serialize)]
pub(crate) struct Table {
    title: &'static str,
    about: &'static str,
    heads: Vec<&'static str>,
    /// Indices of the columns of figures.
    figures: Vec<usize>,
    /// Columns to leave out if there is little room, in this order.
    dispensable: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns the table for a terminal.
    pub(crate) fn text(&self) -> String {
        let is_word = |at: &usize| *at > 0 && !self.figures.contains(at);
        let words: Vec<&str> =
            (0..self.heads.len()).filter(is_word).map(|at| self.heads[at]).collect();
        columns::table(&self.heads, &words, self.rows.clone())
    }

    /// Returns the table for a terminal of `columns` columns. The first column shrinks for the
    /// others, and some of the others are left out if it becomes too narrow.
    pub(crate) fn text_within(mut self, columns: usize) -> String {
        let first = self.rows.iter().map(|row| columns::width(&row[0])).max().unwrap_or(0);
        let wanted = first.min(FIRST_WANTED);
        while self.width() + wanted > columns + first && !self.dispensable.is_empty() {
            let head = self.dispensable.remove(0);
            self.leave_out(head);
        }
        let room = (columns + first).saturating_sub(self.width()).max(FIRST_MIN);
        self.heads[0] = if columns::width(self.heads[0]) > room { "" } else { self.heads[0] };
        for row in &mut self.rows {
            row[0] = columns::cut(&row[0], room);
        }
        self.text()
    }

    fn width(&self) -> usize {
        self.text().lines().map(columns::width).max().unwrap_or(0)
    }

    fn leave_out(&mut self, head: &str) {
        let Some(at) = self.heads.iter().position(|here| *here == head) else { return };
        self.heads.remove(at);
        self.figures.retain(|figure| *figure != at);
        for figure in self.figures.iter_mut().filter(|figure| **figure > at) {
            *figure -= 1;
        }
        for row in &mut self.rows {
            row.remove(at);
        }
    }
}

/// Returns the session as text, with a closing newline: the verdict, its evidence, tables. Lines
/// fit a terminal of the given width; without a terminal, tables are complete.
pub fn text(digest: &Digest, verdict: &Verdict, terminal: Option<usize>) -> String {
    let columns = terminal.unwrap_or(COLUMNS);
    let lines = |texts: Vec<String>| -> String {
        texts.iter().map(|text| columns::paragraph(text, columns) + "\n").collect()
    };
    let mut parts = vec![lines(verdict.paragraphs()), lines(sentences(digest))];
    parts.extend(tables(digest).into_iter().map(|table| match terminal {
        Some(columns) => table.text_within(columns),
        None => table.text(),
    }));
    parts.join("\n")
}

/// Returns the session as Markdown.
pub fn document(digest: &Digest, verdict: &Verdict) -> String {
    let mut paragraphs = verdict.markdown();
    paragraphs.push(sentences(digest).join(" "));
    let mut out = paragraphs.join("\n\n") + "\n";
    for table in tables(digest) {
        let heads: Vec<String> = table.heads.iter().map(|head| (*head).to_owned()).collect();
        out += &format!("\n**{}**\n\n", table.title);
        out += &markdown::grid(&heads, &table.rows, &table.figures);
    }
    out
}

/// Values for the page's template.
#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    headline: &'a str,
    sentences: Vec<String>,
    lanes: String,
    left_out: Option<String>,
    lengths: Option<String>,
    tables: Vec<Table>,
    place: String,
    made: &'a Made,
}

/// Origin of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Name of the session file.
    pub name: String,
    /// Date and time in UTC of the last write to the session file; empty if not known.
    pub recorded: String,
    /// Date on which the page was made.
    pub date: String,
    /// Command that made the page.
    pub command: String,
    /// Name and version of the program.
    pub program: String,
}

/// Returns the session as a self-contained HTML page.
///
/// # Errors
/// Returns [`HtmlError`] for a broken template. No session causes it.
pub fn page(
    made: &Made,
    session: &Session,
    digest: &Digest,
    verdict: &Verdict,
) -> Result<String, HtmlError> {
    let more = usize::from(digest.vcpus).saturating_sub(plots::LANES);
    let left_out =
        (more > 0).then(|| format!("The {} that were off most are shown.", plots::LANES));
    let mut paragraphs = verdict.paragraphs().split_off(1);
    paragraphs.extend(sentences(digest));
    let page = Page {
        name: &made.name,
        headline: &verdict.sentence,
        sentences: paragraphs,
        lanes: plots::lanes(session),
        left_out,
        lengths: plots::lengths(session),
        tables: tables(digest),
        place: place(&session.about),
        made,
    };
    render("session.html", Serde(page))
}

/// Returns the machine, kernel and program of the recording, as far as they are known.
fn place(about: &About) -> String {
    let kernel = about.kernel.as_ref().map(|release| format!("Linux {release}"));
    let known = [about.machine.clone(), kernel, about.program.clone()];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the CPU time in seconds on which shares are based.
pub(crate) fn cpu_s(digest: &Digest) -> f64 {
    (digest.seconds * f64::from(digest.vcpus)).max(1e-9)
}

fn sentences(digest: &Digest) -> Vec<String> {
    let share = |s: f64| percent(s / cpu_s(digest));
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let off_s: f64 = digest.off.iter().map(|vcpu| vcpu.off_s).sum();
    let lengths = digest.off_ms.map(|all| all.map(|ms| time(ms / 1e3)));
    let lengths = lengths.map_or(String::new(), |[median, _, p99, longest]| {
        if intervals == 1 {
            return format!(" It lasted {longest}.");
        }
        format!(
            " An off interval lasted {median} (median), {p99} (99th percentile), {longest} at most."
        )
    });
    let mut out = vec![format!(
        "{} of {}: off {}, {} of CPU time.{lengths}",
        time(digest.seconds),
        plural(u64::from(digest.vcpus), "vCPU", "vCPUs"),
        plural(intervals, "time", "times"),
        share(off_s),
    )];
    out.extend(digest.steal_s.map(|steal_s| {
        match steal_s {
            0.0 => {
                "No steal time: none passed, or the hypervisor does not count it; `unspin doctor` \
                shows which."
                    .to_owned()
            }
            _ => format!("The hypervisor counts {} as steal time.", share(steal_s)),
        }
    }));
    out.push(match digest.spins {
        0 => "No long spins.".to_owned(),
        spins => {
            let spins = plural(spins, "long spin", "long spins");
            format!("{spins} burned {} of CPU time.", share(digest.spin_s))
        }
    });
    if digest.halted_s > 0.0 {
        out.push(format!(
            "Waiters for PV spinlocks halted for {} more, which burned nothing.",
            time(digest.halted_s)
        ));
    }
    out.extend(digest.user_spin_s.map(|spun_s| {
        format!("Ticks found {} of CPU time in spin loops of user space.", share(spun_s))
    }));
    if digest.waits > 0 {
        out.push(format!(
            "{} for locks kept threads asleep for {}, all together.",
            plural(digest.waits, "long wait", "long waits"),
            time(digest.wait_s)
        ));
    }
    out
}

/// Returns the tables. The rows of the tables of waits add up to the figures in the sentences.
fn tables(digest: &Digest) -> Vec<Table> {
    let mut tables = vec![vcpus(digest)];
    if !digest.causes.is_empty() {
        let (mut causes, mut sites) = (causes(digest), sites(digest));
        sites.rows.extend(more_sites(digest));
        for table in [&mut causes, &mut sites] {
            table.rows.extend(rest(digest, table.heads.len()));
        }
        tables.extend([causes, sites]);
    }
    tables
}

/// Returns a row for the places that are not listed one by one.
fn more_sites(digest: &Digest) -> Option<Vec<String>> {
    let more = digest.sites.get(ROWS..).filter(|more| !more.is_empty())?;
    let sum = |of: fn(&SiteWaste) -> f64| more.iter().map(of).sum::<f64>();
    let (burned_s, asleep_s) = (sum(|site| site.wasted_s), sum(|site| site.blocked_s));
    let episodes = more.iter().map(|site| site.episodes).sum();
    Some(vec![
        format!("({})", plural(more.len() as u64, "more place", "more places")),
        percent(burned_s / cpu_s(digest)),
        time(burned_s),
        time(asleep_s),
        count(episodes),
        String::new(),
        String::new(),
    ])
}

/// Returns a row of `columns` cells for the rest of all waits. A cause accounts only for the part
/// of a wait in which the vCPU waited for was off.
fn rest(digest: &Digest, columns: usize) -> Option<Vec<String>> {
    let sum = |of: fn(&CauseWaste) -> f64| digest.causes.iter().map(of).sum::<f64>();
    let burned_s = digest.spin_s - sum(|cause| cause.wasted_s);
    let asleep_s = digest.wait_s + digest.halted_s - sum(|cause| cause.blocked_s);
    if burned_s.max(asleep_s) < REST_MIN_S {
        return None;
    }
    let (burned_s, asleep_s) = (burned_s.max(0.0), asleep_s.max(0.0));
    let mut row = vec![
        "(rest of the waits)".to_owned(),
        percent(burned_s / cpu_s(digest)),
        time(burned_s),
        time(asleep_s),
    ];
    row.resize(columns, String::new());
    Some(row)
}

fn vcpus(digest: &Digest) -> Table {
    let mut heads = vec!["vCPU", "off", "times", "time off"];
    heads.extend(digest.steal_s.map(|_| "steal"));
    heads.extend(digest.user_spin_s.map(|_| "user spin"));
    let share = |s: f64| percent(s / digest.seconds.max(1e-9));
    let row = |vcpu: &VcpuOff| {
        let (number, off) = (vcpu.vcpu.to_string(), share(vcpu.off_s));
        let mut row = vec![number, off, count(vcpu.intervals), time(vcpu.off_s)];
        row.extend(digest.steal_s.map(|_| share(vcpu.steal_s.unwrap_or(0.0))));
        row.extend(digest.user_spin_s.map(|_| share(vcpu.user_spin_s.unwrap_or(0.0))));
        row
    };
    Table {
        title: "vCPUs",
        about: "Off: it wanted to run and did not have its pCPU. Shares of its time.",
        figures: (1..heads.len()).collect(),
        dispensable: vec!["time off", "times", "user spin"],
        heads,
        rows: digest.off.iter().map(row).collect(),
    }
}

pub(crate) fn causes(digest: &Digest) -> Table {
    let row = |waste: &CauseWaste| {
        vec![
            causes::in_table(waste.cause).to_owned(),
            percent(waste.wasted_s / cpu_s(digest)),
            time(waste.wasted_s),
            time(waste.blocked_s),
            count(waste.episodes),
            format!("{:.0} %", 100.0 * waste.confidence),
        ]
    };
    Table {
        title: "Why they waited",
        about: "CPU time burned by spinning, and how long threads slept, by what kept them \
                waiting and how sure that is. The rest: while whoever they waited for was on. \
                `unspin explain` has more about each.",
        heads: vec!["why they waited", "CPU time", "burned", "asleep", "times", "sure"],
        figures: vec![1, 2, 3, 4, 5],
        dispensable: vec!["sure", "times", "burned", "asleep"],
        rows: digest.causes.iter().map(row).collect(),
    }
}

pub(crate) fn sites(digest: &Digest) -> Table {
    let row = |waste: &SiteWaste| {
        let site = if waste.site.is_empty() { "(not known)" } else { &waste.site };
        vec![
            site.to_owned(),
            percent(waste.wasted_s / cpu_s(digest)),
            time(waste.wasted_s),
            time(waste.blocked_s),
            count(waste.episodes),
            wait(waste.wait).to_owned(),
            waste.cause.name().to_owned(),
        ]
    };
    Table {
        title: "Where they waited",
        about: "The functions that wanted the locks, the worst one first.",
        heads: vec!["where", "CPU time", "burned", "asleep", "times", "for", "mostly because"],
        figures: vec![1, 2, 3, 4],
        dispensable: vec!["times", "burned", "asleep", "for", "mostly because"],
        rows: digest.sites.iter().take(ROWS).map(row).collect(),
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

//! `unspin explain`: the meaning of each cause, the evidence for it, and the remedies.

use serde::Serialize;
use unspin_model::episode::Cause;

use crate::columns::{paragraph, width};
use crate::format::GROUP;

pub(crate) mod causes;
mod texts;

/// A topic that `watch`, `report` or `trace` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// vCPUs off.
    Preempted,
    /// Cause of a spin or a wait.
    Cause(Cause),
    /// Spinning in user space.
    UserSpin,
    /// Steal time.
    Steal,
    /// Pause-loop storms in a host's trace.
    PauseStorm,
}

/// The text of a topic: the format of `unspin explain --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Name in files and figures.
    pub name: &'static str,
    /// Other common names.
    pub also: &'static [&'static str],
    /// Names in the verdict and in the table of causes, if they have the topic.
    pub shown_as: &'static [&'static str],
    /// Summary in one line.
    pub brief: &'static str,
    /// Description of what happens.
    pub means: &'static str,
    /// The evidence for it, and its confidence.
    pub recognised: &'static str,
    /// Remedies, the most effective first.
    pub remedies: &'static [&'static str],
}

impl Topic {
    /// Returns all topics, in the order in which they are listed.
    pub fn all() -> impl Iterator<Item = Topic> {
        let causes = Cause::all().map(Topic::Cause);
        let others = [Topic::UserSpin, Topic::Steal, Topic::PauseStorm];
        [Topic::Preempted].into_iter().chain(causes).chain(others)
    }

    /// Returns the text of the topic.
    pub fn explanation(self) -> Explanation {
        texts::of(self)
    }

    /// Returns the topic with a name from any of the views: `holder-off`, `The holder was off`.
    pub fn of(name: &str) -> Option<Topic> {
        let key = |name: &str| name.to_lowercase().replace([' ', '_'], "-");
        Topic::all().find(|topic| {
            let words = topic.explanation();
            let names = [&[words.name], words.also, words.shown_as].concat();
            names.iter().any(|known| key(known) == key(name))
        })
    }
}

/// Returns all topics, a line each, with a closing newline.
pub fn list(columns: usize) -> String {
    let all: Vec<Explanation> = Topic::all().map(Topic::explanation).collect();
    let names = all.iter().map(|it| width(it.name)).max().unwrap_or(0);
    let line = |it: &Explanation| {
        let text = indented(it.brief, names + 2, columns);
        format!("{:names$}  {}\n", it.name, text.trim_start())
    };
    let lines: String = all.iter().map(line).collect();
    lines
        + "\nA vCPU is off while it wants to run and has no pCPU.\nunspin explain CAUSE says how it is recognised and what to do.\n"
}

/// Returns one topic in full, with a closing newline.
pub fn text(words: &Explanation, columns: usize) -> String {
    let also = words.also.join(", ");
    let also = if also.is_empty() { String::new() } else { format!(" (also: {also})") };
    let mut out = paragraph(&format!("{}{also}: {}", words.name, words.brief), columns) + "\n";
    if let [verdict, table] = words.shown_as {
        let names = format!(
            "A verdict says \"{verdict}\", the table of causes \"{table}\", JSON and the table \
             of places `{}`.",
            words.name
        );
        out += &format!("\nIts names\n{}\n", indented(&names, 2, columns));
    }
    for (head, body) in [("What it means", words.means), ("How it is recognised", words.recognised)]
    {
        out += &format!("\n{head}\n{}\n", indented(body, 2, columns));
    }
    out += "\nWhat to do\n";
    for (nth, remedy) in words.remedies.iter().enumerate() {
        let text = indented(remedy, 5, columns);
        out += &format!("  {}. {}\n", nth + 1, text.trim_start());
    }
    out
}

fn indented(text: &str, by: usize, columns: usize) -> String {
    // A figure and its sign must stay on one line.
    let text = text.replace(" %", &format!("{GROUP}%"));
    let wrapped = paragraph(&text, columns.saturating_sub(by));
    wrapped.lines().map(|line| " ".repeat(by) + line).collect::<Vec<_>>().join("\n")
}

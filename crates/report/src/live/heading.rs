//! The top lines: the verdict, and the figures of the last seconds.

use ratatui::layout::Rect;
use ratatui::style::Stylize;
use ratatui::text::Line;
use unspin_trace::digest::Digest;

use super::{Picture, View};
use crate::columns::{cut, paragraph, printable};
use crate::format::{count, number, percent, time};
use crate::scheduler::brief;
use crate::session::cpu_s;
use crate::verdict::{Kind, Next, is_enough};

/// Divisor of the screen's height that gives the heading's maximum height.
const PART: u16 = 3;

/// Returns as many lines as fit, the most important first, and always title and verdict. If the
/// heading has no room for everything that the kernel hides, it names that in a few words.
pub(super) fn lines(picture: Picture<'_>, view: View, area: Rect) -> Vec<Line<'static>> {
    let (width, room) = (usize::from(area.width), usize::from(area.height / PART));
    let mut lines = vec![title(picture, view, width)];
    let is_early = !is_enough(picture.digest);
    let mut verdict = match picture.verdict.kind {
        Kind::TooLittle if is_early => vec!["Too little seen to judge yet.".to_owned()],
        _ => picture.verdict.paragraphs(),
    }
    .into_iter();
    let bold = paragraph(&verdict.next().unwrap_or_default(), width);
    lines.extend(bold.lines().map(|line| Line::from(line.to_owned().bold())));
    // The limits of the verdict come after the advice.
    let next = picture.verdict.next.as_ref();
    let tried = verdict.by_ref().take(usize::from(next.is_some())).zip(next);
    let in_a_line = |(text, next): (String, &Next)| match text.len() > width {
        true => next.brief(),
        false => text,
    };
    let mut rest: Vec<String> = tried.map(in_a_line).collect();
    rest.push(figures(picture.digest));
    rest.extend(picture.scheduler.map(|stats| cut(&brief(stats), width)));
    rest.extend(beside(picture.digest));
    rest.extend(verdict);
    let needed: usize = rest.iter().map(|part| wrapped(part, width).len()).sum();
    let is_short = lines.len() < room && lines.len() + needed > room;
    let hidden = picture.verdict.hidden().filter(|_| is_short);
    if let Some((whole, _)) = &hidden {
        rest.retain(|part| part != whole);
    }
    let room = room.saturating_sub(usize::from(hidden.is_some()));
    for part in rest.iter().map(|part| wrapped(part, width)) {
        if lines.len() + part.len() <= room {
            lines.extend(part);
        }
    }
    lines.extend(hidden.map(|(_, short)| Line::from(cut(&printable(&short), width))));
    lines
}

fn wrapped(text: &str, width: usize) -> Vec<Line<'static>> {
    paragraph(text, width).lines().map(|line| Line::from(line.to_owned())).collect()
}

fn title(picture: Picture<'_>, view: View, width: usize) -> Line<'static> {
    let Picture { live, digest, machine, .. } = picture;
    let paused = if view.paused { " paused " } else { "" };
    let what = format!("watch: {machine}, {} vCPUs, {:.0} s", digest.vcpus, live.elapsed_s());
    let room = width.saturating_sub("unspin   ".len() + paused.len());
    let what = cut(&printable(&what), room);
    Line::from(vec!["unspin ".bold(), what.into(), "  ".into(), paused.reversed()])
}

fn figures(digest: &Digest) -> String {
    let off_s: f64 = digest.off.iter().map(|vcpu| vcpu.off_s).sum();
    let intervals: u64 = digest.off.iter().map(|vcpu| vcpu.intervals).sum();
    let seconds = digest.seconds.max(1e-9);
    let longest_ms = digest.off_ms.map_or(0.0, |all| all[3]);
    let mut figures = format!(
        "last {seconds:.0} s: off {}, {} times/s, longest {}; long spins {}",
        percent(off_s / cpu_s(digest)),
        number(intervals as f64 / seconds),
        time(longest_ms / 1e3),
        percent(digest.spin_s / cpu_s(digest)),
    );
    if digest.lost > 0 {
        figures += &format!("; {} lost", count(digest.lost));
    }
    figures
}

/// Returns the hypervisor's steal time, and the time that ticks found in user-space spinning.
fn beside(digest: &Digest) -> Option<String> {
    let share = |s: f64| percent(s / cpu_s(digest));
    let steal = digest.steal_s.map(|s| if s == 0.0 { "none".into() } else { share(s) });
    let steal = steal.map(|steal| format!("steal time by the hypervisor: {steal}"));
    let spun = digest.user_spin_s.map(|s| format!("user-space spins by ticks: {}", share(s)));
    let parts: Vec<String> = steal.into_iter().chain(spun).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

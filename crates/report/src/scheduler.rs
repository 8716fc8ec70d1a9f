//! Figures of the guest scheduler, for people.

use std::fmt::Write;

use unspin_model::scheduler::{Actuator, Limits, Stats};

use crate::format::{duration, plural};

/// Returns one line on the current state.
pub fn line(stats: &Stats) -> String {
    if stats.resting.is_some() {
        return format!("{:7.1} s  does nothing; {} vCPUs", stats.seconds, stats.vcpus);
    }
    let trial = if stats.trial { ", being tried" } else { "" };
    let waiting = match stats.actuator {
        Actuator::Cpuset => String::new(),
        Actuator::SchedExt => format!("; {:.0} tasks wait", stats.waiting),
    };
    format!(
        "{:7.1} s  uses {} of {} vCPUs{trial}; {:.2} on, {:.2} off, {:.2} in spinning slow paths{waiting}",
        stats.seconds, stats.used, stats.vcpus, stats.on, stats.off, stats.spinning
    )
}

/// Returns the actuator, its running time and its vCPUs; `since` is its start.
pub fn at_work(stats: &Stats, since: &str) -> String {
    if stats.resting.is_some() {
        let time = duration(stats.seconds);
        return format!("`unspin run` has done nothing for {time}, since {since}.\n");
    }
    let what = match stats.actuator {
        Actuator::SchedExt => "The guest scheduler",
        Actuator::Cpuset => "The limit on vCPUs",
    };
    let used: Vec<String> = stats.used_vcpus.iter().map(u32::to_string).collect();
    let which = match used.len() {
        0 => String::new(),
        count if count == stats.vcpus as usize => " (all)".to_owned(),
        _ => format!(" ({})", used.join(", ")),
    };
    format!(
        "{what} ({}) has been at work for {}, since {since}.\n\
         {} of {} vCPUs are in use now{which}.\n",
        stats.actuator.option(),
        duration(stats.seconds),
        stats.used,
        stats.vcpus
    )
}

/// Returns a short form with the most important figures first, because the rest may not fit.
pub fn brief(stats: &Stats) -> String {
    if let Some(why) = &stats.resting {
        return format!("unspin run does nothing: {why}");
    }
    let trial = if stats.trial { ", a trial" } else { "" };
    let [fewer, fewer_kept] = stats.trials_fewer;
    let [more, more_kept] = stats.trials_more;
    let mut text = format!(
        "unspin run: {} of {} vCPUs in use{trial}; trials kept: fewer {fewer_kept} of {fewer}, more {more_kept} of {more}; \
         {:.1} vCPU-seconds off and {:.1} spinning in {:.0} s",
        stats.used, stats.vcpus, stats.off_s, stats.spin_s, stats.seconds
    );
    if stats.actuator == Actuator::SchedExt {
        text += &format!(
            "; {} slices lengthened, {} holders ran next, {} spinners slept",
            stats.extended, stats.handed, stats.slept
        );
    }
    text
}

/// Returns the figures since the scheduler was loaded.
pub fn summary(stats: &Stats) -> String {
    if let Some(why) = &stats.resting {
        return format!("{:.1} s without limiting or measuring anything: {why}\n", stats.seconds);
    }
    let mut text = String::new();
    let [fewer, fewer_kept] = stats.trials_fewer;
    let [more, more_kept] = stats.trials_more;
    let _ = writeln!(
        text,
        "{:.1} s with {:.1} of {} vCPUs in use on average; trials kept: fewer {fewer_kept} of {fewer}, \
         more {more_kept} of {more}",
        stats.seconds, stats.used_mean, stats.vcpus
    );
    let limits = stats.limits.clone().unwrap_or_default();
    let limited = match stats.actuator {
        Actuator::Cpuset => {
            format!("; {} limited", plural(limits.cgroups, "cgroup is", "cgroups are"))
        }
        Actuator::SchedExt => String::new(),
    };
    let _ = writeln!(
        text,
        "{:.2} vCPU-seconds off, {:.2} in {} spins{limited}",
        stats.off_s, stats.spin_s, limits.spins
    );
    if stats.actuator == Actuator::SchedExt {
        scheduled(&mut text, stats);
    }
    caveats(&mut text, &limits);
    text
}

/// Writes the figures that only a scheduler of unspin has.
fn scheduled(text: &mut String, stats: &Stats) {
    if !stats.stacks.is_empty() {
        let _ = writeln!(text, "vCPUs that share a pCPU: {}", stacks(stats));
    }
    let _ = writeln!(
        text,
        "{} tasks went to an idle vCPU at once, {} were queued; {} slices of holders were lengthened, \
         {} holders ran next, {} spinners slept instead",
        stats.placed, stats.queued, stats.extended, stats.handed, stats.slept
    );
}

/// Writes what the limits do not reach, and what was not counted.
fn caveats(text: &mut String, limits: &Limits) {
    if limits.in_root > 0 {
        let _ = writeln!(
            text,
            "{} processes are in the root cgroup, which cannot be limited: move them to another, \
             or start work by `unspin run -- CMD`",
            limits.in_root
        );
    }
    if !limits.left_alone.is_empty() {
        let _ = writeln!(
            text,
            "left alone, because their vCPUs are set by somebody else: {}",
            limits.left_alone.join(", ")
        );
    }
    if let Some(why) = &limits.not_isolated {
        let _ = writeln!(text, "the vCPUs out of use are not isolated: {why}");
    }
    // Some spins are already in progress when counting begins.
    if limits.spins_lost > 10 && limits.spins_lost * 100 > limits.spins {
        let _ =
            writeln!(text, "{} spins are not counted: their end was not seen", limits.spins_lost);
    }
    if !limits.not_counted.is_empty() {
        let _ = writeln!(text, "not counted: {}", limits.not_counted.join(", "));
    }
    if let Some(why) = &limits.not_counting {
        let _ = writeln!(text, "spins are not counted any more, so nothing is limited: {why}");
    }
    if let Some(failed) = &limits.failed {
        let _ = writeln!(text, "the last change of the limit failed: {failed}");
    } else if limits.failures > 0 {
        let changes = plural(limits.failures, "change", "changes");
        let _ = writeln!(text, "{changes} of the limit failed, but not the last one");
    }
    if let Some(late) = &limits.late {
        let _ = writeln!(
            text,
            "no real-time priority, so it decides late where every vCPU spins: {late} (it needs \
             CAP_SYS_NICE)"
        );
    }
}

/// Returns the stacks in words, such as `0 with 1, 2 with 3`.
fn stacks(stats: &Stats) -> String {
    let stack =
        |vcpus: &Vec<u32>| vcpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" with ");
    stats.stacks.iter().map(stack).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_was_tried_and_kept() {
        let stats = Stats {
            seconds: 10.0,
            vcpus: 4,
            used: 2,
            used_mean: 2.25,
            trials_fewer: [3, 1],
            off_s: 1.5,
            stacks: vec![vec![0, 2], vec![1, 3]],
            ..Stats::default()
        };
        let text = summary(&stats);
        assert!(
            text.starts_with("10.0 s with 2.2 of 4 vCPUs in use on average")
                && text.contains("trials kept: fewer 1 of 3, more 0 of 0")
        );
        assert!(text.contains("vCPUs that share a pCPU: 0 with 2, 1 with 3\n"));
        assert!(line(&stats).contains("uses 2 of 4 vCPUs; "));
    }

    #[test]
    fn a_status_names_the_actuator_its_vcpus_and_its_time() {
        let stats = Stats {
            actuator: Actuator::Cpuset,
            seconds: 75.0,
            vcpus: 4,
            used: 2,
            used_vcpus: vec![0, 1],
            limits: Some(Limits::default()),
            ..Stats::default()
        };
        let text = at_work(&stats, "2026-01-02 03:04:05 UTC");
        assert_eq!(
            text,
            "The limit on vCPUs (--actuator cpuset) has been at work for 1 min 15 s, since \
             2026-01-02 03:04:05 UTC.\n2 of 4 vCPUs are in use now (0, 1).\n"
        );
        let all = Stats { used: 4, used_vcpus: vec![0, 1, 2, 3], ..stats };
        assert!(at_work(&all, "x").ends_with("4 of 4 vCPUs are in use now (all).\n"));
        let other = at_work(&Stats::default(), "x");
        assert!(other.starts_with("The guest scheduler (--actuator sched-ext) has"), "{other}");
    }

    #[test]
    fn who_rests_says_why_and_shows_no_figures() {
        let why = "the host helps";
        let stats = Stats {
            actuator: Actuator::Cpuset,
            resting: Some(why.into()),
            seconds: 12.0,
            vcpus: 4,
            used: 4,
            used_vcpus: vec![0, 1, 2, 3],
            ..Stats::default()
        };
        assert_eq!(at_work(&stats, "x"), "`unspin run` has done nothing for 12 s, since x.\n");
        let texts = [line(&stats), at_work(&stats, "x"), brief(&stats), summary(&stats)];
        for text in &texts {
            for measured in [" off", "spin", "trials", "at work", "queued"] {
                assert!(!text.replace("unspin", "").contains(measured), "{measured}: {text}");
            }
        }
        assert!(texts[2].ends_with(why) && texts[3].contains(why), "{texts:?}");
    }

    #[test]
    fn failures_to_limit_are_shown_while_they_last_and_afterwards() {
        let of = |failed: Option<&str>| {
            let failed = failed.map(str::to_owned);
            let limits = Some(Limits { failures: 2, failed, ..Limits::default() });
            summary(&Stats { actuator: Actuator::Cpuset, limits, ..Stats::default() })
        };
        assert!(of(Some("busy")).ends_with("\nthe last change of the limit failed: busy\n"));
        assert!(of(None).ends_with("\n2 changes of the limit failed, but not the last one\n"));
    }

    #[test]
    fn limits_say_what_they_do_not_reach() {
        let limits = Limits {
            cgroups: 3,
            in_root: 2,
            left_alone: vec!["a.slice".into()],
            not_counted: vec!["osq_lock".into()],
            not_counting: Some("Operation not supported".into()),
            not_isolated: Some("Cpu list in cpuset.cpus not exclusive".into()),
            ..Limits::default()
        };
        let actuator = Actuator::Cpuset;
        let text = summary(&Stats { actuator, limits: Some(limits), ..Stats::default() });
        for part in [
            "3 cgroups are limited",
            "2 processes are in the root",
            "else: a.slice",
            "osq",
            "isolated: Cpu list",
            "spins are not counted any more, so nothing is limited: Operation not",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            !text.contains("failed") && !text.contains("decides late") && !text.contains("holders"),
            "{text}"
        );
    }
}

//! The ends of `--help` and of the man pages: examples, exit statuses and related verbs.

use clap::Command;

use crate::{igvm, lab};

/// The help of a verb besides its options.
pub struct Help {
    /// The verb as users type it after `unspin`.
    pub verb: &'static str,
    /// Command lines, each with its explanation.
    pub examples: &'static [(&'static str, &'static str)],
    /// Exit statuses besides those of [`STATUS`].
    pub status: &'static [(&'static str, &'static str)],
    /// Related verbs.
    pub see: &'static [&'static str],
}

/// Exit statuses of all verbs.
pub const STATUS: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "failed; the message says what failed"),
    ("2", "wrong usage, or a wrong experiment or workload file"),
    ("77", "not possible on this machine; the message says what is missing"),
];

const INTERRUPTED: (&str, &str) = ("130", "interrupted; finished work is kept");
const OF_COMMAND: &[(&str, &str)] = &[
    ("N", "the status of CMD, if there is one"),
    ("126", "CMD could not be started"),
    ("127", "CMD was not found"),
    ("128+N", "signal N ended CMD"),
];
const OF_RUN: &[(&str, &str)] = &[
    ("N", "the status of CMD, if there is one; with --ab, 1 if CMD fails or cannot be started"),
    OF_COMMAND[1],
    OF_COMMAND[2],
    OF_COMMAND[3],
    ("130", "with --ab: interrupted; the result of the rounds so far is printed"),
];

/// Empty help.
pub const NONE: Help = Help { verb: "", examples: &[], status: &[], see: &[] };

static VERBS: &[Help] = &[
    Help {
        verb: "",
        examples: &[
            ("unspin doctor", "what this machine is, and what unspin can do on it"),
            ("sudo unspin watch", "whether vCPUs lose time now, and why"),
            (
                "sudo unspin run -- sudo -u \"$USER\" make -j8",
                "a build, on fewer vCPUs while spinning wastes time",
            ),
        ],
        see: &["doctor", "watch", "record", "report", "run", "lab"],
        ..NONE
    },
    Help {
        verb: "doctor",
        examples: &[
            ("sudo unspin doctor", "this machine, with what only root can read"),
            ("unspin doctor --facts", "what was read, as JSON, for another machine to judge"),
            ("unspin doctor --from facts.json", "the machine that these facts are of"),
        ],
        see: &["watch", "run"],
        ..NONE
    },
    Help {
        verb: "watch",
        examples: &[
            ("sudo unspin watch", "until q is pressed"),
            ("sudo unspin watch --once --for 10 --json", "ten seconds, as JSON"),
            ("sudo unspin watch --listen 127.0.0.1:9469", "sums for Prometheus, until Ctrl-C"),
        ],
        see: &["record", "run", "doctor"],
        ..NONE
    },
    Help {
        verb: "run",
        examples: &[
            ("sudo unspin run", "until Ctrl-C"),
            (
                "sudo unspin run --stats 1 -- sudo -u \"$USER\" make -j4",
                "a build, with figures every second",
            ),
            ("sudo unspin run --status", "the figures of the `unspin run` that is active"),
            (
                "sudo unspin run --ab 10 -- sudo -u \"$USER\" sh -c 'make clean && make -j4'",
                "whether the build is faster with it",
            ),
        ],
        status: OF_RUN,
        see: &["watch", "doctor"],
    },
    Help {
        verb: "record",
        examples: &[
            ("sudo unspin record --for 10", "ten seconds, into unspin.arrow.gz"),
            ("sudo unspin record -o build.arrow.gz -- sudo -u \"$USER\" make -j8", "a build"),
            ("sudo unspin record --for 10 -o - | unspin report -", "through a pipe"),
        ],
        status: OF_COMMAND,
        see: &["report", "export", "watch"],
    },
    Help {
        verb: "report",
        examples: &[
            ("unspin report unspin.arrow.gz", "time off, spins and causes as text"),
            ("unspin report unspin.arrow.gz --html page.html", "the same, and a page with plots"),
        ],
        see: &["record", "explain", "export"],
        ..NONE
    },
    Help {
        verb: "explain",
        examples: &[("unspin explain", "the causes"), ("unspin explain holder-off", "one of them")],
        see: &["report", "watch", "trace"],
        ..NONE
    },
    Help {
        verb: "export",
        examples: &[
            ("unspin export unspin.arrow.gz", "a Perfetto trace, unspin.arrow.pftrace"),
            ("unspin export unspin.arrow.gz --format openmetrics -o -", "sums, on standard output"),
        ],
        see: &["record", "report"],
        ..NONE
    },
    Help {
        verb: "trace",
        examples: &[
            ("unspin trace trace.txt", "storms, and addresses of the spinning code"),
            ("unspin trace trace.txt.gz --kallsyms kallsyms.txt", "functions instead of addresses"),
            ("unspin trace - --json", "a trace from standard input, as JSON"),
        ],
        see: &["record"],
        ..NONE
    },
    Help {
        verb: "claims",
        examples: &[
            ("unspin claims", "all figures"),
            ("unspin claims list 'lab.loss.*'", "those whose ids match"),
            ("unspin claims check lab.start_s", "one, measured again"),
        ],
        status: &[INTERRUPTED],
        see: &["lab"],
    },
    Help {
        verb: "claims list",
        examples: &[("unspin claims list 'lab.loss.*' --json", "figures as JSON")],
        see: &["claims-check"],
        ..NONE
    },
    Help {
        verb: "claims check",
        examples: &[("unspin claims check 'lab.loss.*'", "measure again into out/check")],
        status: &[("1", "a claim is not confirmed"), INTERRUPTED],
        see: &["claims-list"],
    },
    Help {
        verb: "claims record",
        examples: &[("unspin claims record out/overcommit-curve", "what its runs support")],
        see: &["claims-render", "claims-plot"],
        ..NONE
    },
    Help {
        verb: "claims plot",
        examples: &[("unspin claims plot --check", "whether the plots are up to date")],
        status: &[("1", "with --check: a plot is out of date")],
        see: &["claims-render"],
    },
    Help {
        verb: "claims render",
        examples: &[("unspin claims render README.md docs/results.md", "write their tables")],
        status: &[("1", "with --check: a document is out of date")],
        see: &["claims-plot"],
    },
    Help {
        verb: "lab",
        examples: &[
            ("unspin lab list", "the experiments, with their titles"),
            ("unspin lab run quickstart --dry-run", "how many runs are left, how long they take"),
            ("unspin lab run quickstart", "run them, or resume"),
            ("unspin lab report out/quickstart", "the result"),
        ],
        status: &[INTERRUPTED],
        see: &[
            "lab-list",
            "lab-run",
            "lab-report",
            "lab-compare",
            "lab-kernel",
            "lab-qemu",
            "claims",
        ],
    },
    Help {
        verb: "lab list",
        examples: &[
            ("unspin lab list", "the experiments"),
            ("unspin lab list workloads --json", "the workloads, as JSON"),
        ],
        see: &["lab-run"],
        ..NONE
    },
    Help {
        verb: "lab run",
        examples: &[
            ("unspin lab run quickstart", "a shipped experiment, into out/quickstart"),
            ("unspin lab run mine.toml --accel kvm", "one's own, on real CPUs"),
            ("unspin lab run overcommit-curve --repeats 20", "more runs of each cell"),
        ],
        status: &[INTERRUPTED],
        see: &["lab-list", "lab-report", "lab-compare"],
    },
    Help {
        verb: "lab fuzz",
        examples: &[
            ("unspin lab fuzz", "100 seeds under `unspin run`, about half an hour on two CPUs"),
            ("unspin lab fuzz --seeds 17", "one seed again"),
            ("unspin lab fuzz --seeds 17 --plan", "what it does"),
            ("unspin lab fuzz --scheduler scx_bpfland", "another scheduler, found in PATH"),
        ],
        status: &[("1", "a seed failed"), INTERRUPTED],
        see: &["lab-run"],
    },
    Help {
        verb: "lab report",
        examples: &[
            ("unspin lab report out/quickstart", "a table; report.html in the folder"),
            ("unspin lab report out/quickstart --json", "the summary; writes no file"),
        ],
        see: &["lab-run", "lab-compare"],
        ..NONE
    },
    Help {
        verb: "lab compare",
        examples: &[("unspin lab compare out/before out/after", "before is the baseline")],
        see: &["lab-report"],
        ..NONE
    },
    Help {
        verb: "completions",
        examples: &[(
            "unspin completions bash",
            "for ~/.local/share/bash-completion/completions/unspin",
        )],
        see: &["man"],
        ..NONE
    },
    Help {
        verb: "man",
        examples: &[("unspin man ~/.local/share/man/man1", "all pages")],
        see: &["completions"],
        ..NONE
    },
];

fn all() -> impl Iterator<Item = &'static Help> {
    VERBS.iter().chain(lab::help::VERBS).chain(igvm::help::VERBS)
}

/// Returns the help of a verb.
pub fn of(verb: &str) -> &'static Help {
    all().find(|help| help.verb == verb).unwrap_or(&NONE)
}

impl Help {
    /// Returns all exit statuses of the verb.
    pub fn statuses(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let own = |code: &str| self.status.iter().any(|(known, _)| *known == code);
        STATUS.iter().filter(move |(code, _)| !own(code)).chain(self.status)
    }

    fn text(&self) -> String {
        let mut text = String::from("Examples:\n");
        for (line, what) in self.examples {
            text += &format!("  {line}\n      {what}\n");
        }
        text += "\nExit status:\n";
        for (code, what) in self.statuses() {
            text += &format!("  {code:5}  {what}\n");
        }
        text
    }
}

/// Adds each verb's examples and exit statuses to its long help.
pub fn complete(command: Command) -> Command {
    complete_below(command, "")
}

fn complete_below(command: Command, verb: &str) -> Command {
    let help = of(verb);
    let command =
        if help.examples.is_empty() { command } else { command.after_long_help(help.text()) };
    let below = |sub: Command| {
        let name = format!("{verb} {}", sub.get_name());
        complete_below(sub, name.trim_start())
    };
    command.mut_subcommands(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects every verb, including verbs below verbs.
    fn verbs(command: &Command, verb: &str, found: &mut Vec<(String, Command)>) {
        found.push((verb.to_owned(), command.clone()));
        for sub in command.get_subcommands() {
            verbs(sub, format!("{verb} {}", sub.get_name()).trim_start(), found);
        }
    }

    #[test]
    fn every_verb_has_a_short_and_a_long_help() {
        let mut found = Vec::new();
        verbs(&crate::command(), "", &mut found);
        assert!(found.len() > 20, "{}", found.len());
        for (verb, command) in &found {
            let help = of(verb);
            assert!(!help.examples.is_empty(), "`{verb}` has no example");
            for (line, _) in help.examples {
                let line = line.strip_prefix("sudo ").unwrap_or(line);
                let own = format!("unspin {verb}");
                assert!(line.starts_with(own.trim_end()), "`{line}` is not an example of `{verb}`");
            }
            for see in help.see {
                let known = found.iter().any(|(verb, _)| verb.replace(' ', "-") == *see);
                assert!(known, "`{verb}` refers to `{see}`");
            }
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && about.len() < 90, "`{verb}`: {about}");
            let long = command.clone().render_long_help().to_string();
            for part in ["Examples:", "Exit status:"] {
                assert!(long.contains(part), "{part} is not in the help of `{verb}`: {long}");
            }
        }
        let known = |help: &&Help| !found.iter().any(|(verb, _)| verb == help.verb);
        assert!(all().find(known).is_none(), "help of a verb that does not exist");
    }

    #[test]
    fn examples_are_command_lines() {
        for (line, _) in all().flat_map(|help| help.examples) {
            for line in line.split(" | ") {
                let line = line.strip_prefix("sudo ").unwrap_or(line).replace('\'', "");
                let parsed = crate::command().try_get_matches_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn the_long_help_is_that_of_the_arguments() {
        let mut trace = crate::command();
        let trace = trace.find_subcommand_mut("trace").expect("a verb");
        let help = trace.render_long_help().to_string();
        for part in ["perf record -a", "trace-cmd record", "Examples:", "Exit status:"] {
            assert!(help.contains(part), "{part} is not in {help}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        crate::command().debug_assert();
    }
}

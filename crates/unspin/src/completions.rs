//! `unspin completions`.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use unspin_lab::experiment::Experiment;
use unspin_model::Accel;

use crate::out;

/// Print completions for a shell
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Named kernels of the lab.
const KERNELS: [&str; 6] =
    ["lab", "lab-cvm", "lab-es", "debian-cloud", "debian-cloud:bookworm", "debian-cloud:trixie"];

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    out::text(script(args.shell))?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut completed(), "unspin", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        fish_values(&completed(), &mut Vec::new(), &mut script);
    }
    script
}

/// Appends the values of positional arguments, which clap's generator for fish leaves out. `path`
/// has the subcommands above `command`.
fn fish_values(command: &Command, path: &mut Vec<String>, script: &mut String) {
    let values = command.get_positionals().flat_map(Arg::get_possible_values);
    let values: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
    let below = (!values.is_empty()).then_some(&path[..]);
    if let Some([first, rest @ ..]) = below {
        let below = rest.iter().map(|name| format!("; and __fish_seen_subcommand_from {name}"));
        let (below, values) = (below.collect::<String>(), values.join(" "));
        script.push_str(&format!(
            "complete -c unspin -n \"__fish_unspin_using_subcommand {first}{below}\" -a \"{values}\"\n"
        ));
    }
    for subcommand in command.get_subcommands() {
        path.push(subcommand.get_name().to_owned());
        fish_values(subcommand, path, script);
        path.pop();
    }
}

/// Returns the command line with the names that some arguments accept besides files. The program
/// itself accepts other values too, so only the completions list these names.
fn completed() -> Command {
    let names = |names: Vec<&'static str>| {
        move |arg: Arg| arg.value_parser(PossibleValuesParser::new(names))
    };
    let experiments = Experiment::builtin_names().collect();
    let accels = Accel::ALL.map(Accel::as_str).to_vec();
    let run = |run: Command| {
        run.mut_arg("experiment", names(experiments))
            .mut_arg("accel", names(accels))
            .mut_arg("kernel", names(KERNELS.to_vec()))
    };
    let kernel = |kernel: Command| {
        kernel.mut_subcommand("show", |show| show.mut_arg("kernel", names(KERNELS.to_vec())))
    };
    let lab = |lab: Command| lab.mut_subcommand("run", run).mut_subcommand("kernel", kernel);
    crate::command().mut_subcommand("lab", lab)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        let names =
            ["overcommit-curve", "quickstart", "tcg", "debian-cloud", "holder-off", "workloads"];
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for name in names {
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
    }

    /// Checks that both arguments still accept other values than the completed ones.
    #[test]
    fn files_stay_possible_values() {
        for line in ["unspin lab run mine.toml --kernel /boot/vmlinuz", "unspin lab kernel show x"]
        {
            assert!(crate::command().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}

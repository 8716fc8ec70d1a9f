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

/// Kernels that the lab knows by name.
const KERNELS: [&str; 2] = ["lab", "debian-cloud"];

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut completed(), "unspin", &mut script);
    out::text(String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The command line, with the names that some arguments take besides files. For the program
/// itself they are not the only values, so they are only here.
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
        // fish has values of options only.
        for (shell, names) in [
            (Shell::Bash, &["overcommit-curve", "quickstart", "tcg", "debian-cloud"][..]),
            (Shell::Zsh, &["overcommit-curve", "quickstart", "tcg", "debian-cloud"]),
            (Shell::Fish, &["tcg", "debian-cloud", "openmetrics"]),
        ] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut completed(), "unspin", &mut script);
            let script = String::from_utf8(script).expect("a script is text");
            for name in names {
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
    }

    /// Both are still more than what is completed.
    #[test]
    fn files_stay_possible_values() {
        for line in ["unspin lab run mine.toml --kernel /boot/vmlinuz", "unspin lab kernel show x"]
        {
            assert!(crate::command().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}

//! The `unspin-vmm` program.

use std::fmt::Display;
use std::io::{Write, stderr};
use std::process::ExitCode;

use unspin_model::class::{Classified, chain};
use unspin_vmm::error::Ended;
use unspin_vmm::{cli, vm};

fn main() -> ExitCode {
    let config = cli::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match vm::run(&config) {
        Ok(ended) => {
            if ended != Ended::PoweredOff {
                say(&ended);
            }
            ended.exit_status().into()
        }
        Err(error) => {
            say(&chain(&error));
            error.class().exit_status().into()
        }
    }
}

/// Prints to standard error. A failed write is ignored, because the exit status has the result,
/// too.
fn say(text: &impl Display) {
    let _ = writeln!(stderr(), "unspin-vmm: {text}");
}

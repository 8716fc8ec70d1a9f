//! The command.

use std::process::ExitCode;

use unspin_model::class::{Classified, chain};
use unspin_vmm::error::Ended;
use unspin_vmm::{cli, vm};

fn main() -> ExitCode {
    let config = cli::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match vm::run(&config) {
        Ok(ended) => {
            if ended != Ended::PoweredOff {
                eprintln!("unspin-vmm: {ended}");
            }
            ended.exit_status().into()
        }
        Err(error) => {
            eprintln!("unspin-vmm: {}", chain(&error));
            error.class().exit_status().into()
        }
    }
}

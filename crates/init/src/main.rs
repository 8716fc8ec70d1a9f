//! The program that the lab puts into its guests as /init.

use std::process::ExitCode;

fn main() -> ExitCode {
    if unspin_init::is_init() {
        unspin_init::main();
    }
    eprintln!(
        "unspin-init: not PID 1 of a lab guest: `unspin lab run EXPERIMENT` starts guests with it"
    );
    ExitCode::from(2)
}

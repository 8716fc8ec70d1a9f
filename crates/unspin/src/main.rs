//! The `unspin` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    unspin_cli::main()
}

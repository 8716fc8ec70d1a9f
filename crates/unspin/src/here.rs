//! Describes this program and the machine that it runs on.

use std::time::SystemTime;

use unspin_guest::doctor;
use unspin_guest::machine::Facts;
use unspin_model::session::About;

/// This program's version.
pub const PROGRAM: &str = concat!("unspin ", env!("CARGO_PKG_VERSION"));

/// Formats a date and time in UTC, to the second.
pub fn utc(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

/// Returns the program's version, the kernel and the machine.
pub fn about() -> About {
    let release = nix::sys::utsname::uname().ok();
    About {
        program: Some(PROGRAM.to_owned()),
        kernel: release.map(|names| names.release().to_string_lossy().into_owned()),
        machine: Some(unspin_report::doctor::kind(&doctor::diagnose(&Facts::probe()).machine)),
        hidden: Vec::new(),
    }
}

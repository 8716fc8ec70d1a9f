//! Standard output that is full, or that nobody reads on.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

fn completions() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.args(["completions", "bash"]).stderr(Stdio::piped());
    command
}

#[test]
fn a_full_disk_is_an_error_that_says_so() {
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let done = completions().stdout(full).output().expect("start unspin");
    assert_eq!(done.status.code(), Some(1));
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(told.starts_with("unspin: write to standard output: No space left"), "{told}");
}

#[test]
fn who_has_read_enough_is_no_error() {
    let (reader, writer) = UnixStream::pair().expect("two ends");
    drop(reader);
    let done = completions().stdout(OwnedFd::from(writer)).output().expect("start unspin");
    assert_eq!((done.status.code(), done.stderr), (Some(0), Vec::new()));
}

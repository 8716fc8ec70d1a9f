//! Checks that `unspin record -- CMD` exits like CMD and never loses a session. The tests need root
//! and a kernel that supports the sensor, and report when they skip.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NOT_POSSIBLE_HERE: i32 = 77;

fn unspin(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspin"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Records a command. Returns `None` if this machine cannot record.
fn record(file: &Path, command: &[&str]) -> Option<Output> {
    let mut record = unspin(&["record", "-o"]);
    let output = record.arg(file).arg("--").args(command).output().expect("start unspin");
    if output.status.code() == Some(NOT_POSSIBLE_HERE) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(output)
}

fn is_session(file: &Path) -> bool {
    unspin(&["report"]).arg(file).output().expect("start unspin").status.success()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_command_that_does_not_start_leaves_the_old_session_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (folder.path().join("old.gz"), folder.path().join("new.gz"));
    fs::write(&old, "a session").expect("write");
    for (command, code) in [("nosuchcmd", 127), ("/", 126)] {
        for file in [&old, &new] {
            let Some(output) = record(file, &[command]) else { return };
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{stderr}");
            assert!(stderr.contains(&format!("cannot start {command}: ")), "{stderr}");
        }
    }
    assert_eq!(fs::read(&old).expect("read"), b"a session");
    assert_eq!(names(folder.path()), ["old.gz"]);
}

#[test]
fn the_exit_status_is_the_commands_and_the_session_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s.gz");
    fs::write(&file, "replaced").expect("write");
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let Some(output) = record(&file, &["sh", "-c", script]) else { return };
        assert_eq!(output.status.code(), Some(code), "{script}");
        assert!(is_session(&file), "{script}");
    }
    assert_eq!(names(folder.path()), ["s.gz"]);
}

#[test]
fn json_is_alone_on_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut record = unspin(&["record", "--json", "-o"]);
    let record = record.arg(folder.path().join("s.gz")).args(["--", "sh", "-c", "echo a; exit 3"]);
    let output = record.output().expect("start unspin");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NOT_POSSIBLE_HERE) {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert_eq!((output.status.code(), stderr.lines().next()), (Some(3), Some("a")), "{stderr}");
    serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON");
}

#[test]
fn a_session_goes_into_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut record = unspin(&["record", "--for", "500ms", "-o", "-"]);
    let output = record.current_dir(folder.path()).output().expect("start unspin");
    if output.status.code() == Some(NOT_POSSIBLE_HERE) {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(folder.path()), [""; 0], "no file");
    let file = folder.path().join("s.gz");
    fs::write(&file, &output.stdout).expect("write");
    assert!(is_session(&file));
}

#[test]
fn a_signal_is_passed_on_and_the_session_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    for (signal, code) in [(Signal::SIGTERM, 5), (Signal::SIGINT, 6)] {
        let (file, ready) = (folder.path().join("s.gz"), folder.path().join("ready"));
        let script = format!(
            "trap 'kill $!; exit 5' TERM; trap 'kill $!; exit 6' INT; sleep 100 & : > {}; wait",
            ready.display()
        );
        let mut command = unspin(&["record", "-o"]);
        let mut child =
            command.arg(&file).args(["--", "sh", "-c", &script]).spawn().expect("start unspin");
        let limit = Instant::now() + Duration::from_secs(20);
        while !ready.exists() {
            if let Some(status) = child.try_wait().expect("wait") {
                let output = child.wait_with_output().expect("what it says");
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert_eq!(status.code(), Some(NOT_POSSIBLE_HERE), "{stderr}");
                eprintln!("skipped: {stderr}");
                return;
            }
            assert!(Instant::now() < limit, "the command does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        kill(Pid::from_raw(child.id() as i32), signal).expect("a process of ours");
        let status = child.wait().expect("wait");
        assert_eq!(status.code(), Some(code), "{signal}");
        assert!(is_session(&file), "{signal}");
        fs::remove_file(&ready).expect("remove");
    }
}

#[test]
fn a_full_disk_is_named() {
    let Some(output) = record(Path::new("/dev/full"), &["true"]) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let what = "unspin: /dev/full: cannot write the session: No space left on device";
    assert!(stderr.contains(what), "{stderr}");
    assert_eq!(stderr.matches("No space left").count(), 1, "{stderr}");
}

//! Messages when output fails, rights are missing, or options conflict.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

const CLAIMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/claims.json");

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

/// Returns the standard error of a command that runs unprivileged and must exit with status 77.
fn unprivileged(args: &[&str]) -> String {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    let done = command.arg(env!("CARGO_BIN_EXE_unspin")).args(args).output();
    let done = done.expect("util-linux has setpriv");
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(77), "{args:?}: {stderr}");
    stderr
}

#[test]
fn who_is_not_root_gets_the_command_to_run() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s").display().to_string();
    for (args, command, senses) in [
        (&["watch", "--once"][..], "sudo unspin watch --once".to_owned(), true),
        (&["record", "-o", &file], format!("sudo unspin record -o {file}"), true),
        (&["run"], "sudo unspin run".to_owned(), false),
        (&["run", "--restore"], "sudo unspin run --restore".to_owned(), false),
    ] {
        let stderr = unprivileged(args);
        // A kernel that lacks the sensor's hooks is reported first, to any user.
        if senses && stderr.contains("this kernel") {
            eprintln!("skipped: {args:?}: {stderr}");
            continue;
        }
        assert_eq!(stderr, format!("unspin: needs root: {command}\n"));
    }
}

/// Checks that `unspin run` refuses containers. The container's cgroups may look like the guest's
/// own, but no process outside would find a limit that a killed `unspin run` leaves in them. A
/// scheduler would also act on the whole guest.
#[test]
fn a_container_limits_nothing() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a namespace of processes");
        return;
    }
    for actuator in ["cpuset", "sched-ext"] {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_unspin")]);
        let done = command.args(["run", "--actuator", actuator, "--", "true"]).output();
        let done = done.expect("util-linux has unshare");
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        if stderr.starts_with("unshare: ") {
            eprintln!("skipped: {stderr}");
            return;
        }
        assert_eq!(done.status.code(), Some(77), "{actuator}: {stderr}");
        assert!(stderr.contains("container"), "{actuator}: {stderr}");
    }
}

#[test]
fn options_that_do_not_go_together_are_wrong_usage() {
    for args in [&["watch"][..], &["watch", "--listen", "127.0.0.1:0", "--beat", "500"]] {
        let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
        let done = unspin.args(args).output().expect("start unspin");
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {stderr}");
    }
}

/// Checks that conflicting options fail before anything is loaded, for any user.
#[test]
fn what_does_not_go_together_is_a_usage_error() {
    for (args, says) in [
        (&["watch", "--once", "--for", "20"][..], "use `sudo unspin record --for 20`"),
        (&["run", "--actuator", "cpuset", "--no-pack"], "an option of --actuator sched-ext"),
        (&["run", "--ab", "6", "--socket", "/x"], "cannot be used with '--socket"),
        (&["lab", "run", "demo", "--verify", "/nonexistent"], "/nonexistent is not a folder"),
        (&["claims", "list", "no.such*", "--file", CLAIMS], "no claim matches `no.such*`"),
        (&["claims", "check", "no.such*", "--file", CLAIMS], "no claim matches `no.such*`"),
        (&["record", "-o", "-", "--json"], "leave out --json"),
        (&["record", "-o", "-", "--", "true"], "what CMD prints"),
        (&["report", "s", "--html", "-", "--json"], "leave out --json"),
    ] {
        let unspin = Command::new(env!("CARGO_BIN_EXE_unspin")).args(args).output();
        let output = unspin.expect("start unspin");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
}

#[test]
fn a_wrong_file_of_plots_is_an_error_of_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.toml");
    std::fs::write(&path, "\nplot = 3\n").expect("write");
    let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
    let done = unspin.args(["claims", "plot", "--file", CLAIMS]).arg(&path).output();
    let done = done.expect("start unspin");
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    let starts = format!("unspin: {}:2:8: invalid type: integer `3`", path.display());
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with(&starts) && stderr.lines().count() == 1, "{stderr}");
}

/// Checks that the refused folder stays unchanged.
#[test]
fn a_folder_of_another_experiment_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let meta = folder.path().join("experiment.json");
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/truth/experiment.json");
    std::fs::copy(from, &meta).expect("committed runs");
    let before = std::fs::read(&meta).expect("read");
    for more in [&[][..], &["--dry-run"], &["--plan"]] {
        let mut unspin = Command::new(env!("CARGO_BIN_EXE_unspin"));
        let out = folder.path().display().to_string();
        let done = unspin.args(["lab", "run", "quickstart", "--out", &out]).args(more).output();
        let done = done.expect("start unspin");
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("experiment `truth`, not of `quickstart`"), "{stderr}");
        assert!(stderr.contains("--out"), "{stderr}");
    }
    assert_eq!(std::fs::read(&meta).expect("read"), before);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

/// Returns the demo's report as a terminal gets it. script(1) provides the terminal.
fn on_a_terminal(environment: &[(&str, &str)]) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/demo");
    for entry in std::fs::read_dir(published).expect("the published runs").flatten() {
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a copy");
    }
    let line = format!("{} lab report {}", env!("CARGO_BIN_EXE_unspin"), folder.path().display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR");
    let done = script.envs(environment.iter().copied()).stdin(Stdio::null()).output().ok()?;
    assert!(done.status.success(), "{done:?}");
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Returns the width of the first line of `doctor` on a terminal with that many columns.
fn doctor_on(columns: usize) -> Option<usize> {
    let line = format!("stty cols {columns} && {} doctor", env!("CARGO_BIN_EXE_unspin"));
    let done = Command::new("script").args(["-qec", &line, "/dev/null"]).output().ok()?;
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.lines().next().map(|line| line.trim_end().chars().count())
}

#[test]
fn doctor_is_as_wide_as_its_terminal() {
    let Some(narrow) = doctor_on(30) else {
        eprintln!("skipped: needs script(1): apt install bsdutils");
        return;
    };
    let wide = doctor_on(60).expect("it ran before");
    assert!(narrow <= 30 && wide > 30 && wide <= 60, "{narrow}, {wide}");
}

#[test]
fn a_terminal_gets_colours_unless_they_are_not_wanted() {
    let Some(coloured) = on_a_terminal(&[]) else {
        eprintln!("skipped: needs script(1): apt install bsdutils");
        return;
    };
    assert!(coloured.contains("\u{1b}["), "{coloured}");
    for unwanted in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = on_a_terminal(&[unwanted]).expect("it ran before");
        assert!(plain.contains("rename") && !plain.contains('\u{1b}'), "{unwanted:?}: {plain}");
    }
    let empty = on_a_terminal(&[("NO_COLOR", "")]).expect("it ran before");
    assert!(empty.contains("\u{1b}["), "an empty NO_COLOR counts as none: {empty}");
}

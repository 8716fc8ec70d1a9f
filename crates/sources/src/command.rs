//! Runs programs and logs their output.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::fcntl::OFlag;

use super::SourcesError;

/// Lines of the log that an error shows.
const TAIL_LINES: usize = 15;

/// A required program: its name and its Debian package.
pub(super) type Tool = (&'static str, &'static str);

/// Checks that all `tools` are in `PATH`.
pub(super) fn need(purpose: &'static str, tools: &[Tool]) -> Result<(), SourcesError> {
    let absent: Vec<Tool> = tools.iter().copied().filter(|(tool, _)| !in_path(tool)).collect();
    missing(purpose, absent)
}

/// Returns an error that names the absent tools, if there are any.
pub(super) fn missing(purpose: &'static str, absent: Vec<Tool>) -> Result<(), SourcesError> {
    if absent.is_empty() {
        return Ok(());
    }
    let (missing, mut packages): (Vec<_>, Vec<_>) = absent.into_iter().unzip();
    packages.sort_unstable();
    packages.dedup();
    Err(SourcesError::Missing { purpose, missing, packages })
}

/// Checks, before the folder is filled, that make and QEMU's configure accept its path. Both refuse
/// blanks and colons.
pub(super) fn buildable(folder: &Path) -> Result<(), SourcesError> {
    let refused = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    match folder.as_os_str().as_encoded_bytes().iter().any(refused) {
        true => Err(SourcesError::Blank(folder.into())),
        false => Ok(()),
    }
}

fn in_path(tool: &str) -> bool {
    program(tool).is_absolute()
}

/// Returns the tool's full path, or only its name if no folder has it. The search includes the
/// administrator's folders, which the `PATH` of an ordinary user lacks.
pub(super) fn program(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut files = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(tool));
    files.find(|file| file.is_file()).unwrap_or_else(|| tool.into())
}

/// Returns the first line of the compiler's version. The call writes no log, so it works on a full
/// disk.
pub(super) fn compiler() -> Result<String, SourcesError> {
    let fail = |error| SourcesError::io("run", "gcc", error);
    let output = Command::new("gcc").arg("--version").output().map_err(fail)?;
    if !output.status.success() {
        return Err(fail(io::Error::other(output.status.to_string())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Runs commands one after the other and appends their output to one log.
pub(super) struct Runner {
    log: PathBuf,
}

impl Runner {
    /// Begins a new log at `log`.
    pub(super) fn new(log: PathBuf) -> Result<Self, SourcesError> {
        File::create(&log).map_err(|e| SourcesError::io("create the log", &log, e))?;
        Ok(Self { log })
    }

    /// The log's path.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Runs `command` and passes each line of its output to `line`.
    ///
    /// # Errors
    /// If the command cannot start or fails. The message names the command's purpose, `what`.
    pub(super) fn run(
        &self,
        what: &str,
        command: &mut Command,
        line: &mut dyn FnMut(&str),
    ) -> Result<(), SourcesError> {
        let status = self.stream(command, line).map_err(|error| not_run(command, error))?;
        self.check(what, status)
    }

    /// Runs `command` and returns its standard output. The log gets only standard error.
    pub(super) fn output(&self, what: &str, command: &mut Command) -> Result<String, SourcesError> {
        let output = self
            .begin(command)
            .and_then(|log| command.stderr(log).output())
            .map_err(|error| not_run(command, error))?;
        self.check(what, output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Logs the command line and opens the log for its output.
    fn begin(&self, command: &mut Command) -> io::Result<File> {
        let mut log = OpenOptions::new().append(true).open(&self.log)?;
        writeln!(log, "+ {command:?}")?;
        command.stdin(Stdio::null());
        Ok(log)
    }

    /// Runs `command` with one pipe for both streams, so that errors keep their order among the
    /// other lines.
    fn stream(&self, command: &mut Command, line: &mut dyn FnMut(&str)) -> io::Result<ExitStatus> {
        let mut log = self.begin(command)?;
        let (output, end) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let mut child = command.stdout(end.try_clone()?).stderr(end).spawn()?;
        // The parent must close its write ends. Reading ends when the last write end is closed.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let logged = pass_on(File::from(output), &mut log, line);
        let status = child.wait()?;
        logged.map(|()| status)
    }

    fn check(&self, what: &str, status: ExitStatus) -> Result<(), SourcesError> {
        if status.success() { Ok(()) } else { Err(self.failed(what, &status.to_string())) }
    }

    /// Returns the error of a failed step, with the end of the log.
    fn failed(&self, what: &str, status: &str) -> SourcesError {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        SourcesError::Command {
            what: what.into(),
            status: status.into(),
            log: self.log.clone(),
            tail,
        }
    }
}

/// Copies all lines to the log and passes them to `line`. If the log cannot be written, the
/// function still reads to the end. Otherwise the command would go on in a folder that the caller
/// is removing.
fn pass_on(output: impl Read, log: &mut File, line: &mut dyn FnMut(&str)) -> io::Result<()> {
    let mut logged = Ok(());
    for bytes in BufReader::new(output).split(b'\n') {
        // Compilers may print bytes that are not UTF-8.
        let text = String::from_utf8_lossy(&bytes?).into_owned();
        logged = logged.and_then(|()| writeln!(log, "{text}"));
        line(&text);
    }
    logged
}

fn not_run(command: &Command, error: io::Error) -> SourcesError {
    SourcesError::io("run", command.get_program(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_logs_end() {
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner::new(folder.path().join("log")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "seq 100; echo broken >&2; exit 3"]);
        let error = runner.run("counting", &mut command, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("counting failed") && error.contains("broken"), "{error}");
        assert!(error.contains("\n100") && !error.contains("\n50\n"), "{error}");
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
    }

    #[test]
    fn lines_are_read_and_logged_as_they_come() {
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner::new(folder.path().join("log")).unwrap();
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", r"printf 'a\n'; printf 'e\n' >&2; printf 'b\377\n'"]);
        runner.run("sh", &mut command, &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["a", "e", "b\u{fffd}"]);
        assert!(std::fs::read_to_string(runner.log()).unwrap().ends_with("a\ne\nb\u{fffd}\n"));
    }

    #[test]
    fn lines_are_read_to_the_end_on_a_full_disk() {
        let mut log = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut lines = Vec::new();
        let error = pass_on(&b"a\nb\n"[..], &mut log, &mut |line| lines.push(line.to_owned()));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(lines, ["a", "b"]);
    }

    #[test]
    fn output_has_no_warnings() {
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner::new(folder.path().join("log")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo warning >&2; echo result"]);
        assert_eq!(runner.output("sh", &mut command).unwrap(), "result\n");
        assert!(std::fs::read_to_string(runner.log()).unwrap().ends_with("warning\n"));
    }

    #[test]
    fn nothing_is_built_where_make_would_split_the_path() {
        buildable(Path::new("/home/me/.cache")).unwrap();
        for folder in ["/home/m e/.cache", "/home/a:b", "/home/m\te"] {
            let error = buildable(Path::new(folder)).unwrap_err().to_string();
            assert!(error.contains(folder) && error.contains("UNSPIN_CACHE"), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let tools = [("sh", "dash"), ("no-such-flex", "flex"), ("no-such-lex", "flex")];
        let error = need("build a kernel", &tools).unwrap_err().to_string();
        assert!(
            error.ends_with("no-such-flex, no-such-lex; install with: apt install flex"),
            "{error}"
        );
    }
}

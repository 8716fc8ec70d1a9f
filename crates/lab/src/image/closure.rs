//! The shared libraries that a program needs.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

use super::ImageError;

/// Returns the shared libraries of a program, and the loader, under the names that the loader uses.
/// The list is empty for a static program or a script. ldd runs the loader itself, so the answer
/// comes from the code that will look for these libraries in the guest.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let failed =
        |detail: String| ImageError::Libraries { program: program.display().to_string(), detail };
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    read(&output).map_err(failed)
}

/// Reads the libraries from ldd's output. Returns an error if a signal ended ldd or a library was
/// not found. ldd also exits with an error for a program without libraries; that is not an error
/// here.
fn read(output: &Output) -> Result<Vec<PathBuf>, String> {
    if let Some(signal) = ended_by(output.status) {
        return Err(format!("signal {signal} ended ldd; run the same command again"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find(|line| line.contains("not found")) {
        Some(line) => Err(line.trim().to_owned()),
        None => Ok(parse(&text)),
    }
}

/// Returns the signal that ended ldd, or the program that ldd ran. ldd is a shell script, and
/// shells report a child's signal as exit status 128 plus the signal's number.
fn ended_by(status: ExitStatus) -> Option<i32> {
    let of_child = status.code().filter(|code| *code > 128).map(|code| code - 128);
    status.signal().or(of_child)
}

fn parse(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "=>", path, ..] if path.starts_with('/') => Some(PathBuf::from(path)),
            [path, address] if path.starts_with('/') && address.starts_with('(') => {
                Some(path.into())
            }
            _ => None,
        }
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ldd_that_was_ended_early_does_not_pass_for_one_without_output() {
        let of = |status| {
            let status = ExitStatus::from_raw(status);
            read(&Output { status, stdout: Vec::new(), stderr: Vec::new() })
        };
        let exit = |code| code << 8;
        assert_eq!(of(exit(1)), Ok(Vec::new()), "not a dynamic executable");
        for interrupted in [2, exit(130)] {
            assert!(of(interrupted).unwrap_err().starts_with("signal 2 ended ldd"));
        }
    }

    #[test]
    fn ldd_output_gives_libraries_and_loader() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = parse(text);
        assert_eq!(
            found,
            [
                Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert!(parse("\tnot a dynamic executable\n").is_empty());
    }
}

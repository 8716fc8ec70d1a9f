//! The shared libraries that a program needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::ImageError;

/// The libraries (and the loader) of a program, as the loader names them; none
/// for a static program or a script. ldd runs the loader, so this asks the very
/// code that will look for them in the guest.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let failed =
        |detail: String| ImageError::Libraries { program: program.display().to_string(), detail };
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(failed(line.trim().to_owned()));
    }
    Ok(parse(&text))
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

//! The evidence about a failure in a guest's console log and QEMU's last messages. Results never
//! come from here; only the reasons of failures do.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use unspin_model::FailureKind;
use unspin_wire::Failure;

const TAIL_BYTES: u64 = 64 << 10;
/// Lines of a log that a failure shows.
const LINES_SHOWN: usize = 40;

/// A failure that left evidence in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The int3 oops of live-patched code under emulation.
    Int3Oops,
    /// The guest ran out of memory, or QEMU could not allocate its memory.
    OutOfMemory,
    /// The kernel panicked.
    Panic,
}

impl Verdict {
    /// Returns the failure kind that this verdict means.
    pub fn kind(self) -> FailureKind {
        match self {
            Verdict::Int3Oops => FailureKind::Int3Oops,
            Verdict::OutOfMemory => FailureKind::OutOfMemory,
            Verdict::Panic => FailureKind::GuestPanic,
        }
    }
}

/// Refines a failure by the ends of the console log and of QEMU's own log.
pub fn explain(failure: Failure, console: &Path, folder: &Path) -> Failure {
    let (log, qemu) = (tail(console), tail(&folder.join("qemu.log")));
    let kind = match classify(&log, &qemu) {
        Some(verdict) => verdict.kind(),
        None => failure.kind,
    };
    let mut detail = match reason(&log) {
        Some(reason) if !failure.detail.contains(reason) => format!("{reason}\n{}", failure.detail),
        _ => failure.detail,
    };
    for (name, text) in [("QEMU", &qemu), ("console", &log)] {
        let text = last_lines(text, LINES_SHOWN).trim();
        if !text.is_empty() && !detail.contains(text) {
            detail.push_str(&format!("\n{name}:\n{text}"));
        }
    }
    Failure { kind, detail }
}

/// Finds the reason of a failure in the console log and in QEMU's output.
pub fn classify(console: &str, qemu: &str) -> Option<Verdict> {
    if console.contains("int3: 0000") || console.contains("int3: ") && console.contains("Oops") {
        return Some(Verdict::Int3Oops);
    }
    let memory = [
        "Out of memory and no killable",
        "System is deadlocked on memory",
        "Initramfs unpacking failed: write error",
    ];
    let qemu_memory = ["cannot set up guest memory", "Cannot allocate memory"];
    if memory.iter().any(|m| console.contains(m)) || qemu_memory.iter().any(|m| qemu.contains(m)) {
        return Some(Verdict::OutOfMemory);
    }
    let panic = console.contains("Kernel panic - not syncing") || console.contains("Oops: ");
    panic.then_some(Verdict::Panic)
}

/// Returns the line with the reason for which the kernel gave up.
pub fn reason(log: &str) -> Option<&str> {
    let marks = ["Kernel panic - not syncing", "int3: ", "Oops: ", "BUG: "];
    let line = marks.iter().find_map(|mark| log.lines().find(|line| line.contains(mark)))?;
    Some(line.split_once("] ").map_or(line, |(_, text)| text).trim())
}

/// Returns the end of a log file. The text is empty if the file cannot be read.
pub fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// Returns the last `n` lines of a text.
pub fn last_lines(text: &str, n: usize) -> &str {
    let start =
        text.trim_end().rmatch_indices('\n').nth(n.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart() {
        let int3 = "[ 1.2] int3: 0000 [#1] PREEMPT SMP\n[ 1.3] Kernel panic - not syncing: Fatal exception";
        assert_eq!(classify(int3, ""), Some(Verdict::Int3Oops));
        let panic = "[ 1.3] Kernel panic - not syncing: sysrq triggered crash";
        assert_eq!(classify(panic, ""), Some(Verdict::Panic));
        assert_eq!(reason(panic), Some("Kernel panic - not syncing: sysrq triggered crash"));
        let oom = "Kernel panic - not syncing: System is deadlocked on memory";
        assert_eq!(classify(oom, ""), Some(Verdict::OutOfMemory));
        let qemu =
            "qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory";
        assert_eq!(classify("", qemu), Some(Verdict::OutOfMemory));
        assert_eq!(classify("Linux version 6.18", ""), None);
    }

    #[test]
    fn a_failure_shows_the_ends_of_both_logs() {
        let folder = tempfile::tempdir().unwrap();
        let (console, qemu) = (folder.path().join("console.log"), folder.path().join("qemu.log"));
        std::fs::write(&console, "Linux version 6.18\n").unwrap();
        let flood = "warning\n".repeat(100_000);
        let end = b"\xff\nCannot allocate memory\n";
        std::fs::write(&qemu, [flood.as_bytes(), end].concat()).unwrap();
        let died = Failure::new(FailureKind::QemuDied, "QEMU: exit status: 1");
        let failure = explain(died, &console, folder.path());
        assert_eq!(failure.kind, FailureKind::OutOfMemory);
        assert!(failure.detail.starts_with("QEMU: exit status: 1\nQEMU:\nwarning"), "{failure}");
        assert!(failure.detail.contains("Cannot allocate memory\nconsole:\nLinux version"));
        assert!(failure.detail.lines().count() < 2 * LINES_SHOWN);
    }

    #[test]
    fn last_lines_are_the_last() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a", 5), "a");
    }
}

//! Lines in which the tracer reports that it lost events, because its buffer was full.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Name of the lost events in the output of `perf script --show-lost-events`.
static RECORD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"PERF_RECORD_LOST"));

/// Returns the number of events lost before this line, or 1 if the line does not give it. Returns
/// `None` if the line does not report a loss. The lines that do are
/// - tracefs: `CPU:3 [LOST 12 EVENTS]` or `CPU:3 [LOST EVENTS]`,
/// - trace-cmd report: `CPU:3 [12 EVENTS DROPPED]` or `CPU:3 [EVENTS DROPPED]`,
/// - perf script: `... PERF_RECORD_LOST lost 12`.
pub(super) fn events(line: &[u8]) -> Option<u64> {
    let says = match line.strip_prefix(b"CPU:") {
        Some(rest) => {
            let says = &rest[memchr::memchr(b'[', rest)? + 1..];
            let says = says.trim_ascii_end().strip_suffix(b"]")?;
            let (begin, end) = (b"LOST ".as_slice(), b"EVENTS DROPPED".as_slice());
            says.strip_prefix(begin).or_else(|| says.strip_suffix(end))?
        }
        None => &line[RECORD.find(line)?..],
    };
    let number = says.split(|byte| !byte.is_ascii_digit()).find(|digits| !digits.is_empty());
    let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Some(number.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_its_words_for_what_it_lost() {
        for (line, lost) in [
            ("CPU:3 [LOST 12 EVENTS]", Some(12)),
            ("CPU:3 [LOST EVENTS]", Some(1)),
            ("CPU:7 [204600 EVENTS DROPPED]", Some(204_600)),
            ("CPU:7 [EVENTS DROPPED]\r", Some(1)),
            ("CPU 2/KVM 2679 [006] 276.731784: PERF_RECORD_LOST lost 42", Some(42)),
            ("CPU:7 [99999999999999999999 EVENTS DROPPED]", Some(1)),
            ("CPU:7", None),
            ("CPU:7 [", None),
            ("CPU:7 [buffer]", None),
            ("cpus=8", None),
            ("", None),
        ] {
            assert_eq!(events(line.as_bytes()), lost, "{line}");
        }
    }
}

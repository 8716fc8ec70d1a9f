//! Tables of claims within a Markdown text, kept up to date by name.
//!
//! ```text
//! <!-- claims: lab.loss.* -->
//! (the table)
//! <!-- /claims -->
//! ```

use unspin_model::Claim;

const OPEN: &str = "<!-- claims:";
const CLOSE: &str = "<!-- /claims -->";

/// Why a text's tables could not be rendered. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// A block is not closed.
    #[error("line {line}: no `{CLOSE}` follows; add it after the table")]
    Unclosed {
        /// The line of its opening mark.
        line: usize,
    },
    /// A closing mark without its opening one.
    #[error("line {line}: `{CLOSE}` without `{OPEN} PATTERN -->` before it")]
    Unopened {
        /// Its line.
        line: usize,
    },
    /// The opening mark holds no pattern or goes on after it.
    #[error("line {line}: write `{OPEN} PATTERN -->` on a line of its own")]
    Malformed {
        /// Its line.
        line: usize,
    },
}

/// The text with the content of each block replaced by the table of the claims
/// whose ids match its pattern. To do so twice changes nothing more.
///
/// # Errors
/// [`BlockError`] with the line: an unclosed or unopened block, or a mark
/// without a pattern. A pattern that matches no claim says so in the text.
pub fn render_blocks(text: &str, claims: &[Claim]) -> Result<String, BlockError> {
    let mut out = String::new();
    let mut open: Option<usize> = None;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let (line, content) = (index + 1, whole.trim());
        if content.starts_with(OPEN) {
            if let Some(line) = open {
                return Err(BlockError::Unclosed { line });
            }
            open = Some(line);
            out += whole.trim_end();
            out += &format!("\n\n{}\n", table(content, line, claims)?);
        } else if content == CLOSE {
            open.take().ok_or(BlockError::Unopened { line })?;
            out += whole;
        } else if open.is_none() {
            out += whole;
        }
    }
    open.map_or(Ok(out), |line| Err(BlockError::Unclosed { line }))
}

fn table(mark: &str, line: usize, claims: &[Claim]) -> Result<String, BlockError> {
    let pattern = mark
        .strip_prefix(OPEN)
        .and_then(|rest| rest.strip_suffix("-->"))
        .map(str::trim)
        .filter(|pattern| !pattern.is_empty() && !pattern.contains(char::is_whitespace))
        .ok_or(BlockError::Malformed { line })?;
    let chosen: Vec<_> = claims.iter().filter(|c| matches(pattern, &c.id)).collect();
    if chosen.is_empty() {
        return Ok(format!("*Not measured yet: no claim is named `{pattern}`.*\n"));
    }
    Ok(super::markdown(&chosen))
}

/// Whether an id matches a pattern, in which `*` stands for any text.
pub fn matches(pattern: &str, id: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == id };
    let Some(mut left) = id.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, id, expected) in [
            ("lab.start_s", "lab.start_s", true),
            ("lab.start_s", "lab.start", false),
            ("*", "", true),
            ("lab.loss.*", "lab.loss.rename.2:1", true),
            ("lab.loss.*", "lab.oracle.rename.2:1", false),
            ("lab.*.rename.*", "lab.loss.rename.4:1", true),
            ("*.4:1", "lab.loss.rename.4:1", true),
            ("*.4:1", "lab.loss.rename.4:10", false),
            ("a*a", "a", false),
            ("a**b", "ab", true),
            ("a*b*b", "ab", false),
        ] {
            assert_eq!(matches(pattern, id), expected, "{pattern} {id}");
        }
    }
}

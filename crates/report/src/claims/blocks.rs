//! Tables of claims within a Markdown text, kept up to date by name.
//!
//! ```text
//! <!-- claims: lab.loss.* -->
//! (the table)
//! <!-- /claims -->
//! ```
//!
//! `<!-- beside: lab.gain.* | vt.gain.* -->` has a row for each pair of claims whose ids differ
//! only in the text before the `*`.

use unspin_model::Claim;

const OPEN: &str = "<!-- claims:";
const BESIDE: &str = "<!-- beside:";
const CLOSE: &str = "<!-- /claims -->";

/// Reasons why a text's tables cannot be rendered. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// A block is not closed.
    #[error("line {line}: no `{CLOSE}` follows; add it after the table")]
    Unclosed {
        /// Line of the opening mark.
        line: usize,
    },
    /// A closing mark has no opening mark.
    #[error("line {line}: `{CLOSE}` without `{OPEN} PATTERN -->` before it")]
    Unopened {
        /// Line of the closing mark.
        line: usize,
    },
    /// The opening mark has no pattern, or text follows it.
    #[error(
        "line {line}: write `{OPEN} PATTERN -->`, or `{BESIDE} A.* | B.* -->` with a `*` in each, on a \
         line of its own"
    )]
    Malformed {
        /// Line of the opening mark.
        line: usize,
    },
}

/// Returns the text, in which tables of the claims whose ids match each block's pattern replace the
/// content of the blocks. A second call changes nothing more.
///
/// # Errors
/// Returns [`BlockError`] with the line: an unclosed or unopened block, or a mark without a
/// pattern. A pattern that matches no claim is not an error; the text says so.
pub fn render_blocks(text: &str, claims: &[Claim]) -> Result<String, BlockError> {
    let mut out = String::new();
    let mut open: Option<usize> = None;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let (line, content) = (index + 1, whole.trim());
        if content.starts_with(OPEN) || content.starts_with(BESIDE) {
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
    if let Some(patterns) = mark.strip_prefix(BESIDE) {
        return beside(patterns, claims).ok_or(BlockError::Malformed { line });
    }
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

/// Returns the table of two patterns' pairs; `None` if the mark does not have two patterns.
fn beside(patterns: &str, claims: &[Claim]) -> Option<String> {
    let (left, right) = patterns.strip_suffix("-->")?.split_once('|')?;
    let [left, right] = [left, right].map(str::trim);
    let named =
        |pattern| Some(claims.iter().filter_map(move |c| Some((starred(pattern, &c.id)?, c))));
    let is_one = |pattern: &str| pattern.matches('*').count() == 1;
    if !is_one(left) || !is_one(right) {
        return None;
    }
    let rights: Vec<(&str, &Claim)> = named(right)?.collect();
    let pair = |(name, left): (&str, &'_ Claim)| {
        let with = rights.iter().find(|(other, _)| *other == name)?;
        Some((name.to_owned(), left.clone(), with.1.clone()))
    };
    let pairs: Vec<_> = named(left)?.filter_map(|(name, claim)| pair((name, claim))).collect();
    if pairs.is_empty() {
        return Some(format!("*Not measured yet: no claims are named `{left}` and `{right}`.*\n"));
    }
    Some(super::beside(&pairs))
}

/// Returns the part of an id that the `*` of a pattern matches, if the id matches.
fn starred<'a>(pattern: &str, id: &'a str) -> Option<&'a str> {
    let (head, tail) = pattern.split_once('*')?;
    id.strip_prefix(head)?.strip_suffix(tail)
}

/// Returns whether an id matches a pattern, in which `*` matches any text.
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

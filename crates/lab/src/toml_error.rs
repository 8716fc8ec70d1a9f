//! Errors in hand-written TOML files. Each names the file, the line and the values that would be
//! valid.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use unspin_model::class::{Class, Classified};

/// An error in a configuration file, with its position.
///
/// Prints as `FILE:LINE:COLUMN: MESSAGE`, which editors and terminals can jump to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as the caller named it.
    pub file: PathBuf,
    /// Line from 1; 0 when the error is about the file as a whole.
    pub line: usize,
    /// Column from 1, in characters; 0 when the error is about the file as a whole.
    pub column: usize,
    /// The fault, and the remedy.
    pub message: String,
}

impl ConfigError {
    /// Returns an error at a byte range of the file's text, such as the range of a `toml::Spanned`.
    pub fn at(file: &Path, text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let (line, column) = position(text, span.start);
        Self { file: file.into(), line, column, message: message.into() }
    }

    /// Returns an error about the file as a whole, for example if it cannot be read.
    pub fn file(file: &Path, message: impl Into<String>) -> Self {
        Self { file: file.into(), line: 0, column: 0, message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

impl Classified for ConfigError {
    fn class(&self) -> Class {
        Class::Usage
    }
}

/// Parses a file's text.
///
/// # Errors
/// Returns syntax errors, unknown keys, missing keys and wrong types, with their line.
pub fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().trim().replace('\n', ", ");
        match error.span() {
            Some(span) => ConfigError::at(file, text, span, message),
            None => ConfigError::file(file, message),
        }
    })
}

/// Reads and parses a file. Returns the value together with the file's text.
///
/// # Errors
/// The errors of [`parse`], and an error if the file cannot be read.
pub fn load<T: DeserializeOwned>(file: &Path) -> Result<(T, String), ConfigError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| ConfigError::file(file, format!("cannot read it: {error}")))?;
    Ok((parse(file, &text)?, text))
}

/// Formats valid choices for a message, as in `a`, `b`, `c`.
pub fn choices<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|n| format!("`{}`", n.as_ref())).collect();
    quoted.join(", ")
}

fn position(text: &str, byte: usize) -> (usize, usize) {
    // A span may point past the end of the text, but never into the middle of a character.
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Sample {
        name: String,
        count: u32,
    }

    fn error_of(text: &str) -> String {
        parse::<Sample>(Path::new("x.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_names_its_line_and_the_valid_keys() {
        let message = error_of("name = \"a\"\ncount = 1\ncolour = 2\n");
        assert!(message.starts_with("x.toml:3:1: unknown field `colour`"), "{message}");
        assert!(message.contains("`name`") && message.contains("`count`"), "{message}");
    }

    #[test]
    fn wrong_types_missing_keys_and_syntax_errors_are_placed() {
        let message = error_of("name = \"a\"\ncount = \"one\"\n");
        assert!(message.starts_with("x.toml:2:9: invalid type"), "{message}");
        assert!(error_of("name = \"a\"\n").contains("missing field `count`"));
        assert!(error_of("name = \"a\"\ncount = \n").starts_with("x.toml:2:"));
    }

    #[test]
    fn columns_count_characters_and_spans_may_end_the_text() {
        assert_eq!(position("ä = 1\nö = x", 12), (2, 5));
        assert_eq!(position("a\n", 2), (2, 1));
        assert_eq!(position("a", 99), (1, 2));
    }

    #[test]
    fn a_missing_file_is_named_without_a_line() {
        let error = load::<Sample>(Path::new("/nonexistent/x.toml")).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/x.toml: cannot read it"));
    }
}

//! Which figures of an experiment's summary are claims: `claims/EXPERIMENT.toml`. They have
//! files of their own, so that to reword a claim leaves the experiment as it is.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use unspin_model::ClaimSpec;

use crate::shipped::{self, CLAIMS};
use crate::toml_error::{self, ConfigError};

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "claim")]
    claims: Vec<Spanned<ClaimSpec>>,
}

/// The claims of an experiment: of `claims/NAME.toml` in the working directory, else of the
/// shipped file; none where there is neither.
///
/// # Errors
/// A file that cannot be read, or says what has no effect; names the line.
pub fn load(experiment: &str) -> Result<Vec<ClaimSpec>, ConfigError> {
    let path = PathBuf::from(format!("claims/{experiment}.toml"));
    if path.is_file() {
        let text = std::fs::read_to_string(&path)
            .map_err(|error| ConfigError::file(&path, format!("cannot read it: {error}")))?;
        return parse(&path, &text);
    }
    shipped::text(&CLAIMS, experiment).map_or(Ok(Vec::new()), |text| parse(&path, text))
}

/// Reads the text of a file of claims.
///
/// # Errors
/// As [`load`].
pub fn parse(file: &Path, text: &str) -> Result<Vec<ClaimSpec>, ConfigError> {
    let raw: Raw = toml_error::parse(file, text)?;
    let mut claims: Vec<ClaimSpec> = Vec::new();
    for spanned in raw.claims {
        let start = spanned.span().start;
        let claim = spanned.into_inner();
        let checked = match claims.iter().any(|other| other.id == claim.id) {
            true => Err(("id", format!("`{}` is there twice", claim.id))),
            false => claim.check(),
        };
        checked.map_err(|(key, message)| {
            let at = start + place(&text[start..], key);
            ConfigError::at(file, text, at..at, message)
        })?;
        claims.push(claim);
    }
    Ok(claims)
}

/// Where the line of a key begins in a table's text; 0 where it is not found.
fn place(table: &str, key: &str) -> usize {
    let mut at = 0;
    for line in table.split_inclusive('\n') {
        let name = line.split('=').next().unwrap_or_default().trim();
        if name == key {
            return at;
        }
        at += line.len();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    const GOOD: &str = r#"[[claim]]
id = "a.{workload}"
what = "speed"
from = "speed-ratio"
scheduler = "unspin"

[[claim]]
id = "b"
what = "seconds"
from = "elapsed-s"
target = "<= 8"
"#;

    #[test]
    fn what_has_no_effect_is_an_error_with_its_line() {
        let parse = |text: &str| super::parse(Path::new("x.toml"), text);
        assert_eq!(parse(GOOD).unwrap().len(), 2);
        for (from, to, expected) in [
            ("\"<= 8\"", "\"about 8\"", "x.toml:11:1: target `about 8`: write"),
            ("<= 8", "<= x", "x.toml:11:1: target `<= x`: "),
            ("elapsed-s\"", "elapsed-s\"\nworkload = \"w\"", "x.toml:11:1: this source does not"),
            ("\"b\"", "\"b.{workload}\"", "x.toml:8:1: this source does not fill in"),
            ("\"b\"", "\"a.{workload}\"", "x.toml:8:1: `a.{workload}` is there twice"),
            ("scheduler = \"unspin\"\n", "", "x.toml:4:1: this source needs a `scheduler`"),
            ("target =", "goal =", "x.toml:11:1: unknown field `goal`"),
        ] {
            let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{to}: {error}");
        }
    }

    #[test]
    fn shipped_claims_are_right_and_of_shipped_experiments() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../claims");
        let files = std::fs::read_dir(folder).unwrap();
        assert_eq!(
            files.count(),
            shipped::names(&CLAIMS).count(),
            "every file of claims/ is shipped"
        );
        for name in shipped::names(&CLAIMS) {
            assert!(Experiment::builtin_names().any(|other| other == name), "{name}");
            let path = PathBuf::from(format!("claims/{name}.toml"));
            let text = shipped::text(&CLAIMS, name).expect("a file of that name");
            let claims = parse(&path, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!claims.is_empty(), "{name}");
        }
    }
}

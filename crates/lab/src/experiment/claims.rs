//! Which figures of an experiment's summary are claims: `claims/EXPERIMENT.toml`. They have
//! files of their own, so that to reword a claim leaves the experiment as it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use unspin_model::{Cell, ClaimSpec};

use crate::shipped::{self, CLAIMS};
use crate::toml_error::{self, ConfigError};

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "claim")]
    claims: Vec<Spanned<ClaimSpec>>,
}

/// What is wrong with a claim: a key, and what to say of it.
type Wrong = (&'static str, String);

/// The claims of an experiment with these cells: of `claims/NAME.toml` in the working directory,
/// else of the shipped file; none where there is neither.
///
/// # Errors
/// A file that cannot be read, says what has no effect, or names what no cell has; names the
/// line.
pub fn load(experiment: &str, cells: &BTreeSet<Cell>) -> Result<Vec<ClaimSpec>, ConfigError> {
    let path = PathBuf::from(format!("claims/{experiment}.toml"));
    let names = |claim: &ClaimSpec| check_names(claim, cells);
    if path.is_file() {
        let text = std::fs::read_to_string(&path)
            .map_err(|error| ConfigError::file(&path, format!("cannot read it: {error}")))?;
        return checked(&path, &text, names);
    }
    let shipped = shipped::text(&CLAIMS, experiment);
    shipped.map_or(Ok(Vec::new()), |text| checked(&path, text, names))
}

/// Reads the text of a file of claims, whatever cells they name.
///
/// # Errors
/// As [`load`].
pub fn parse(file: &Path, text: &str) -> Result<Vec<ClaimSpec>, ConfigError> {
    checked(file, text, |_| Ok(()))
}

fn checked(
    file: &Path,
    text: &str,
    check: impl Fn(&ClaimSpec) -> Result<(), Wrong>,
) -> Result<Vec<ClaimSpec>, ConfigError> {
    let raw: Raw = toml_error::parse(file, text)?;
    let mut claims: Vec<ClaimSpec> = Vec::new();
    for spanned in raw.claims {
        let start = spanned.span().start;
        let claim = spanned.into_inner();
        let checked = match claims.iter().any(|other| other.id == claim.id) {
            true => Err(("id", format!("`{}` is there twice", claim.id))),
            false => claim.check().and_then(|()| check(&claim)),
        };
        checked.map_err(|(key, message)| {
            let at = start + place(&text[start..], key);
            ConfigError::at(file, text, at..at, message)
        })?;
        claims.push(claim);
    }
    Ok(claims)
}

/// A claim about what no cell has would never have a figure, however often the experiment runs.
fn check_names(claim: &ClaimSpec, cells: &BTreeSet<Cell>) -> Result<(), Wrong> {
    let topologies: BTreeSet<&str> = cells.iter().map(|cell| cell.topology.as_str()).collect();
    let schedulers: BTreeSet<&str> = cells.iter().map(|cell| cell.scheduler.as_str()).collect();
    let workloads: BTreeSet<&str> = cells.iter().map(|cell| cell.workload.as_str()).collect();
    // The oracle has no cell of its own.
    let against = claim.against.as_ref().filter(|name| *name != "oracle");
    for (key, name, known) in [
        ("topology", claim.topology.as_ref(), &topologies),
        ("against_topology", claim.against_topology.as_ref(), &topologies),
        ("scheduler", claim.scheduler.as_ref(), &schedulers),
        ("against", against, &schedulers),
        ("workload", claim.workload.as_ref(), &workloads),
        ("without", claim.without.as_ref(), &workloads),
    ] {
        if let Some(name) = name.filter(|name| !known.contains(name.as_str())) {
            let known = toml_error::choices(known);
            return Err((key, format!("the experiment has no `{name}`; it has {known}")));
        }
    }
    Ok(())
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
    use crate::experiment::{Experiment, plan};

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
    fn what_no_cell_has_is_an_error_with_its_line() {
        let cell = |scheduler: &str| Cell {
            topology: "2:1".into(),
            kernel: "lab".into(),
            boot_params: String::new(),
            scheduler: scheduler.into(),
            workload: "rename".into(),
        };
        let cells = BTreeSet::from([cell("stock"), cell("unspin")]);
        let check = |more: &str| {
            let text = GOOD.replacen("scheduler = \"unspin\"", more, 1);
            checked(Path::new("x.toml"), &text, |claim| check_names(claim, &cells))
        };
        assert!(check("scheduler = \"unspin\"\nagainst = \"oracle\"").is_ok());
        for (key, name) in [
            ("topology", "2:l"),
            ("against_topology", "1:1"),
            ("against", "stok"),
            ("workload", "renames"),
            ("without", "dbench"),
        ] {
            let more = format!("scheduler = \"unspin\"\n{key} = \"{name}\"");
            let error = check(&more).unwrap_err().to_string();
            let expected = format!("x.toml:6:1: the experiment has no `{name}`; it has `");
            assert!(error.starts_with(&expected), "{key}: {error}");
        }
        let error = check("scheduler = \"unspn\"").unwrap_err().to_string();
        assert!(error.ends_with("no `unspn`; it has `stock`, `unspin`"), "{error}");
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
            let experiment = Experiment::load(name).unwrap_or_else(|error| panic!("{error}"));
            let runs = plan(&experiment).into_iter().flat_map(|boot| boot.runs);
            let cells: BTreeSet<Cell> = runs.map(|run| run.cell).collect();
            let claims = load(name, &cells).unwrap_or_else(|error| panic!("{error}"));
            assert!(!claims.is_empty(), "{name}");
        }
    }
}

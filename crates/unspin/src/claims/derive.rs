//! Claims out of an output folder, or out of a file that a script wrote.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use unspin_analysis::evaluate::{Origin, evaluate};
use unspin_lab::experiment::claims;
use unspin_model::Claim;

use super::file;
use crate::lab::report;

/// The claims that these folders and files support. Where there are several, folders that hold no
/// experiment, or one without claims, are left out.
pub fn from_all(sources: &[PathBuf]) -> anyhow::Result<Vec<Claim>> {
    if let [source] = sources {
        return from(source);
    }
    let mut found = Vec::new();
    for source in sources {
        match source.is_dir() {
            true if !source.join("experiment.json").is_file() => {}
            true => found.extend(of_folder(source)?),
            false => found.extend(from(source)?),
        }
    }
    Ok(found)
}

/// The claims that a folder or a file supports.
fn from(source: &Path) -> anyhow::Result<Vec<Claim>> {
    let found = if source.is_dir() { of_folder(source)? } else { of_file(source)? };
    if found.is_empty() {
        bail!("{}: no claims; list them in claims/EXPERIMENT.toml", source.display());
    }
    Ok(found)
}

/// The claims that an output folder supports.
pub fn of_folder(out: &Path) -> anyhow::Result<Vec<Claim>> {
    let summary = report::summarize(out)?;
    let loaded = unspin_lab::run::load(out)?;
    let name = &summary.experiment.name;
    let last = loaded.records.iter().map(|record| record.started.as_str()).max();
    let origin = Origin {
        experiment: loaded.file.display().to_string(),
        command: format!("make experiment NAME={name}"),
        date: last
            .and_then(|started| started.get(..10))
            .with_context(|| format!("{}: no runs yet", out.display()))?
            .to_owned(),
    };
    Ok(evaluate(&claims::load(name)?, &summary, &origin)?)
}

/// The claims of a file that a script wrote.
fn of_file(path: &Path) -> anyhow::Result<Vec<Claim>> {
    let mut claims = file::load(path)?;
    for claim in claims.iter_mut().filter(|claim| claim.not_derived.is_empty()) {
        "a script measures it and keeps no runs".clone_into(&mut claim.not_derived);
    }
    Ok(claims)
}

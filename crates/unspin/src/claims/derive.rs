//! Derives claims from an output folder, or reads them from a file that a script wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use unspin_analysis::evaluate::{Origin, evaluate};
use unspin_lab::experiment::{Experiment, claims, plan};
use unspin_model::{Cell, Claim, Summary};

use super::file;
use crate::lab::report;

/// What becomes of a folder that lacks planned runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gaps {
    /// It is refused: carrying them out may give more claims.
    Refused,
    /// The claims that its runs give are taken.
    Allowed,
}

/// Returns the claims that these folders and files support. If there are several sources, folders
/// without an experiment or without claims are skipped.
pub fn from_all(sources: &[PathBuf], gaps: Gaps) -> anyhow::Result<Vec<Claim>> {
    if let [source] = sources {
        return from(source, gaps);
    }
    let mut found = Vec::new();
    let mut origins: BTreeMap<String, &Path> = BTreeMap::new();
    for source in sources {
        let claims = match source.is_dir() {
            true if !source.join("experiment.json").is_file() => Vec::new(),
            true => of_folder(source, gaps)?,
            false => from(source, gaps)?,
        };
        for claim in &claims {
            if let Some(other) = origins.insert(claim.id.clone(), source) {
                let (id, one, other) = (&claim.id, other.display(), source.display());
                bail!("claim `{id}` follows from {one} and from {other}: record only one of them");
            }
        }
        found.extend(claims);
    }
    Ok(found)
}

/// Returns the claims that a folder or a file supports.
fn from(source: &Path, gaps: Gaps) -> anyhow::Result<Vec<Claim>> {
    let found = if source.is_dir() { of_folder(source, gaps)? } else { of_file(source)? };
    if found.is_empty() {
        bail!("{}: no claims follow; list them in claims/EXPERIMENT.toml", source.display());
    }
    Ok(found)
}

/// The claims that an output folder supports. Those of the experiment that its runs give no figure
/// for are named, and left out.
pub fn of_folder(out: &Path, gaps: Gaps) -> anyhow::Result<Vec<Claim>> {
    let summary = report::summarize(out)?;
    let loaded = unspin_lab::run::load(out)?;
    let name = &summary.experiment.name;
    let specs = claims::load(name, &known_cells(name, &loaded.cells))?;
    let missing = missing_runs(&summary);
    if missing > 0 && gaps == Gaps::Refused && !specs.is_empty() {
        let (out, file, planned) = (out.display(), loaded.file.display(), summary.planned);
        bail!(
            "{out}: {missing} of {planned} planned runs have no record: carry them out with \
             `unspin lab run {file} --out {out}`, or record with --partial what the others support"
        );
    }
    if let Some(failed) = failed_for_good(&summary).filter(|_| !specs.is_empty()) {
        note!("{}: {failed}", out.display());
    }
    let last = loaded.records.iter().map(|record| record.started.as_str()).max();
    let origin = Origin {
        experiment: loaded.file.display().to_string(),
        command: format!("make experiment NAME={name}"),
        date: last
            .and_then(|started| started.get(..10))
            .with_context(|| format!("{}: no runs yet", out.display()))?
            .to_owned(),
    };
    let (found, lacking) = evaluate(&specs, &summary, &loaded.cells, &origin)
        .with_context(|| format!("{}", out.display()))?;
    for claim in &lacking {
        note!("{}: {claim}", out.display());
    }
    Ok(found)
}

/// Returns the cells that a claim may be about: those of the folder, and those that the experiment
/// has gained since.
fn known_cells(experiment: &str, planned: &BTreeSet<Cell>) -> BTreeSet<Cell> {
    let boots = Experiment::load(experiment).map(|found| plan(&found)).unwrap_or_default();
    let cells = boots.into_iter().flat_map(|boot| boot.runs).map(|run| run.cell);
    cells.chain(planned.iter().cloned()).collect()
}

/// Returns the number of planned runs that have no result and did not fail permanently.
fn missing_runs(summary: &Summary) -> u64 {
    let failed: u64 = summary.cells.iter().map(|cell| u64::from(cell.failed)).sum();
    summary.planned.saturating_sub(summary.done + failed)
}

/// Returns a warning about runs that failed permanently. No claim includes them, so the others
/// flatter a scheduler that made them fail.
fn failed_for_good(summary: &Summary) -> Option<String> {
    let failed = summary.cells.iter().filter(|cell| cell.failed > 0);
    let failed: Vec<String> =
        failed.map(|cell| format!("{} of `{}`", cell.failed, cell.cell)).collect();
    let text = || format!("failed runs, which no claim counts: {}", failed.join(", "));
    (!failed.is_empty()).then(text)
}

/// Reads the claims of a file that a script wrote.
fn of_file(path: &Path) -> anyhow::Result<Vec<Claim>> {
    let mut claims = file::load(path)?;
    // Only a ratio with unfinished runs may lack a value, and scripts have no such ratio.
    let is_empty = |claim: &&Claim| claim.value.is_none() && !claim.experiment.ends_with(".toml");
    if let Some(claim) = claims.iter().find(is_empty) {
        bail!("{}: claim `{}` is not measured: it has no value", path.display(), claim.id);
    }
    let mut ids = BTreeSet::new();
    if let Some(claim) = claims.iter().find(|claim| !ids.insert(claim.id.clone())) {
        bail!("{}: claim `{}` is there twice", path.display(), claim.id);
    }
    for claim in claims.iter_mut().filter(|claim| claim.not_derived.is_empty()) {
        "a script measures it and keeps no runs".clone_into(&mut claim.not_derived);
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_runs_are_named_with_their_cell() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/truth");
        let mut summary = report::summarize(&folder).expect("committed runs");
        assert_eq!(failed_for_good(&summary), None);
        summary.cells[0].failed = 2;
        let text = failed_for_good(&summary).expect("two runs failed");
        let cell = &summary.cells[0].cell;
        assert_eq!(text, format!("failed runs, which no claim counts: 2 of `{cell}`"));
    }
}

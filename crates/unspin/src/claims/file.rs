//! The file of claims.

use std::path::Path;

use anyhow::Context;
use unspin_model::Claim;

/// Reads it; one that does not exist holds nothing.
pub fn load(path: &Path) -> anyhow::Result<Vec<Claim>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Replaces it in one step.
pub fn save(path: &Path, claims: &[Claim]) -> anyhow::Result<()> {
    let new = path.with_extension("json.new");
    std::fs::write(&new, serde_json::to_string_pretty(claims)? + "\n")
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("write {}", path.display()))
}

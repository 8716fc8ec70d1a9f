//! Reads and writes the file of claims.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, anyhow};
use unspin_model::Claim;
use unspin_model::class::Class;

use crate::failure::of_class;
use crate::new_file;

/// Reads `claims.json`.
pub fn load(path: &Path) -> anyhow::Result<Vec<Claim>> {
    match read(path)? {
        Some(claims) => Ok(claims),
        None => {
            let here = std::env::current_dir().unwrap_or_default();
            let text = format!(
                "{}: no such file in {}; run the command in a checkout of unspin, or name the file \
                 with --file",
                path.display(),
                here.display()
            );
            Err(of_class(Class::Usage, text))
        }
    }
}

/// Reads `claims.json`, or returns no claims if the file does not exist yet.
pub fn load_or_new(path: &Path) -> anyhow::Result<Vec<Claim>> {
    Ok(read(path)?.unwrap_or_default())
}

fn read(path: &Path) -> anyhow::Result<Option<Vec<Claim>>> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text).map(Some).with_context(|| format!("{}", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Parses claims. It judges each claim's target again, whatever the file says.
fn parse(text: &str) -> anyhow::Result<Vec<Claim>> {
    let mut claims: Vec<Claim> = serde_json::from_str(text)?;
    for claim in &mut claims {
        claim.judge().map_err(|error| anyhow!("claim `{}`: {error}", claim.id))?;
    }
    Ok(claims)
}

/// Replaces `claims.json` atomically.
pub fn save(path: &Path, claims: &[Claim]) -> anyhow::Result<()> {
    new_file::write(path, (serde_json::to_string_pretty(claims)? + "\n").as_bytes())
}

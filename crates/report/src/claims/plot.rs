//! Plots of claims: related ratios in one image.

use std::path::PathBuf;

use serde::Deserialize;
use unspin_model::Claim;
use unspin_model::summary::{Estimate, Verdict};

use crate::format;
use crate::svg::{ForestRow, forest_image};

/// One image.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Path of the image, relative to the checkout.
    pub file: PathBuf,
    /// Text for screen readers.
    pub label: String,
    /// Rows of the plot, from the top.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// One claim of a plot.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Group of the row; shown once for consecutive rows.
    pub group: String,
    /// Name that distinguishes the row within its group.
    pub name: String,
    /// Id of the claim, whose unit must be a ratio.
    pub claim: String,
}

/// Reasons why a plot cannot be drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlotError {
    /// No claim has this id.
    #[error("no claim is named `{0}`")]
    NoClaim(String),
    /// The claim is not a ratio.
    #[error("`{0}` is not a ratio: its unit is `{1}`")]
    NoRatio(String, String),
}

/// Returns the plot as SVG.
///
/// # Errors
/// Returns [`PlotError`] for a claim that does not exist, or that is not a ratio.
pub fn draw(plot: &Plot, claims: &[Claim]) -> Result<String, PlotError> {
    let rows = plot.rows.iter().map(|row| forest_row(row, claims));
    Ok(forest_image(&plot.label, &rows.collect::<Result<Vec<_>, _>>()?))
}

fn forest_row(row: &Row, claims: &[Claim]) -> Result<ForestRow, PlotError> {
    let claim = claims.iter().find(|claim| claim.id == row.claim);
    let claim = claim.ok_or_else(|| PlotError::NoClaim(row.claim.clone()))?;
    if claim.unit != "x" {
        return Err(PlotError::NoRatio(claim.id.clone(), claim.unit.clone()));
    }
    // A claim of few runs has no ends; one whose baseline may not finish has no upper end.
    let ratio = claim.value.map(|value| Estimate {
        value,
        lo: claim.lo.unwrap_or(f64::NAN),
        hi: claim.hi.unwrap_or(if claim.lo.is_some() { f64::INFINITY } else { f64::NAN }),
    });
    let verdict = match ratio {
        Some(ratio) if ratio.lo > 1.0 => Verdict::Better,
        Some(ratio) if ratio.hi < 1.0 => Verdict::Worse,
        _ => Verdict::NoDifferenceShown,
    };
    let text = ratio.map_or_else(|| "unbounded".to_owned(), |ratio| format::ratio(&ratio));
    Ok(ForestRow { group: row.group.clone(), name: row.name.clone(), ratio, verdict, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let row = |name: &str, claim: &str| Row {
            group: "rename".into(),
            name: name.into(),
            claim: claim.into(),
        };
        let rows = vec![row("nobody helps", "a"), row("unspin run", "b")];
        Plot { file: "a.svg".into(), label: "Speed".into(), rows }
    }

    fn claim(id: &str, value: f64, unit: &str) -> Claim {
        let text = format!(
            r#"{{"id": "{id}", "what": "", "value": {value}, "lo": {value}, "hi": {value}, "n": 10,
                "unit": "{unit}", "holds": true, "label": "", "experiment": "", "command": "",
                "date": "", "commit": ""}}"#
        );
        serde_json::from_str(&text).expect("a claim")
    }

    #[test]
    fn an_image_has_its_style_and_a_row_a_claim() {
        let claims = [claim("a", 0.17, "x"), claim("b", 1.2, "x")];
        let image = draw(&plot(), &claims).unwrap();
        assert!(image.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot wide\""));
        for part in ["<style>", "nobody helps", "dot worse", "unspin run", "dot better", "0.17x"] {
            assert!(image.contains(part), "{part}: {image}");
        }
    }

    #[test]
    fn what_is_no_ratio_is_not_drawn() {
        let error = draw(&plot(), &[claim("a", 3.0, "%")]).unwrap_err();
        assert_eq!(error, PlotError::NoRatio("a".into(), "%".into()));
        let error = draw(&plot(), &[claim("a", 3.0, "x")]).unwrap_err();
        assert_eq!(error, PlotError::NoClaim("b".into()));
    }
}

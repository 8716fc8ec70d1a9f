//! Compares the small costs in virtual time with the published ones of docs/data/micro.toml.

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The factor by which a cost may differ from the published range.
const FACTOR: f64 = 3.0;

#[derive(Deserialize)]
struct Published {
    micro: Vec<Micro>,
}

#[derive(Deserialize)]
struct Micro {
    what: String,
    /// The claim that states this cost in virtual time, if there is one.
    claim: Option<String>,
    ns_lo: f64,
    ns_hi: f64,
    /// Why the cost differs by more than the factor.
    beyond: Option<String>,
    source: String,
}

impl Micro {
    /// Returns by which factor a cost lies outside of the published range, or 1 within it.
    fn factor(&self, ns: f64) -> f64 {
        (ns / self.ns_hi).max(self.ns_lo / ns).max(1.0)
    }
}

#[test]
fn small_costs_are_near_published_ones_or_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file of the project");
    let Published { micro } = toml::from_str(&read("docs/data/micro.toml")).expect("TOML");
    let claims: Vec<unspin_model::Claim> =
        serde_json::from_str(&read("results/claims.json")).expect("JSON");
    let page = read("docs/micro-costs.md");
    let mut compared = 0;
    for micro in micro {
        assert!(!micro.source.is_empty() && micro.ns_lo <= micro.ns_hi, "{}", micro.what);
        let Some(id) = &micro.claim else { continue };
        let claim = claims.iter().find(|claim| claim.id == *id);
        let ns = claim.and_then(|claim| claim.value);
        let ns = ns.unwrap_or_else(|| panic!("no claim {id} has a value"));
        let factor = micro.factor(ns);
        assert_eq!(factor > FACTOR, micro.beyond.is_some(), "{id}: {ns} ns, factor {factor:.2}");
        let range = format!("| {} to {} |", micro.ns_lo, micro.ns_hi);
        let name = id.split('.').nth(2).expect("vt.micro.NAME.PRICES");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        assert!(row.is_some_and(|row| row.contains(&range)), "{id}: the page lacks {range}");
        compared += 1;
    }
    assert!(compared >= 12, "only {compared} costs were compared");
}

#[test]
fn a_cost_within_the_range_has_factor_1() {
    let micro = Micro {
        what: String::new(),
        claim: None,
        ns_lo: 50.0,
        ns_hi: 100.0,
        beyond: None,
        source: String::new(),
    };
    assert_eq!([25.0, 50.0, 80.0, 300.0].map(|ns| micro.factor(ns)), [2.0, 1.0, 1.0, 3.0]);
}

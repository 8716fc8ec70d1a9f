//! Selects the planned runs that a command carries out.

use std::fmt;
use std::str::FromStr;

/// A selection of planned runs, by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Selection {
    /// Every run of the plan.
    #[default]
    All,
    /// No run. The command only writes the plan.
    Nothing,
    /// The runs from the first to the last number, both included.
    Range(u64, u64),
}

impl Selection {
    /// Returns whether the run with this number is selected.
    pub fn contains(self, run: u64) -> bool {
        match self {
            Selection::All => true,
            Selection::Nothing => false,
            Selection::Range(first, last) => (first..=last).contains(&run),
        }
    }

    /// Returns how many of the planned runs are selected. Planned runs are numbered from 0.
    pub fn count(self, planned: u64) -> u64 {
        (0..planned).filter(|run| self.contains(*run)).count() as u64
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Selection::Range(first, last)),
            _ => Err("expected the number of a planned run, or two such as `0-7`".into()),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selection::All => f.write_str("all"),
            Selection::Nothing => f.write_str("none"),
            Selection::Range(first, last) => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_a_range_is_read() {
        assert_eq!("7".parse(), Ok(Selection::Range(7, 7)));
        assert_eq!("0-2".parse(), Ok(Selection::Range(0, 2)));
        for wrong in ["", "-", "2-1", "-1", "1-", "a", "1-2-3", "0x1"] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn runs_beyond_the_plan_do_not_count() {
        assert_eq!(Selection::All.count(5), 5);
        assert_eq!(Selection::Nothing.count(5), 0);
        assert_eq!(Selection::Range(1, 3).count(5), 3);
        assert_eq!(Selection::Range(4, 9).count(5), 1);
    }
}

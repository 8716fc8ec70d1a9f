//! Shows the progress of the comparison on a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use unspin_guest::ab::Place;
use unspin_lab::run::duration;
use unspin_model::ab::Arm;

/// Time between two updates.
const EVERY: Duration = Duration::from_secs(1);

/// A line on standard error. Dropping this value removes it.
pub struct Progress {
    terminal: bool,
    pairs: u32,
    round_s: Option<f64>,
    began: Instant,
    shown: Option<(Place, Instant)>,
}

impl Progress {
    /// Returns the progress of `pairs` pairs. `round_s` is a round's length in seconds, if it is
    /// known.
    pub fn new(pairs: u32, round_s: Option<f64>) -> Progress {
        let terminal = stderr().is_terminal();
        Progress { terminal, pairs, round_s, began: Instant::now(), shown: None }
    }

    /// Shows the current round.
    pub fn show(&mut self, place: Place) {
        let fresh = |(last, at): &(Place, Instant)| *last == place && at.elapsed() < EVERY;
        if !self.terminal || self.shown.as_ref().is_some_and(fresh) {
            return;
        }
        self.shown = Some((place, Instant::now()));
        let elapsed_s = self.began.elapsed().as_secs_f64();
        show!("\r\x1b[K{}", line(place, self.pairs, self.round_s, elapsed_s));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            show!("\r\x1b[K");
        }
    }
}

fn line(place: Place, pairs: u32, round_s: Option<f64>, elapsed_s: f64) -> String {
    let what = match (place.pair, place.arm) {
        (0, _) => "warming up".to_owned(),
        (pair, Arm::Stock) => format!("pair {pair} of {pairs}, without unspin"),
        (pair, Arm::Unspin) => format!("pair {pair} of {pairs}, with unspin"),
    };
    let mean_s = (place.done > 0).then(|| elapsed_s / f64::from(place.done)).or(round_s);
    let left = mean_s.map(|mean_s| {
        let rounds = f64::from(2 * pairs + 1);
        // `elapsed_s` includes the current round, so the mean has already grown with it.
        let left_s = match place.done {
            0 => mean_s * rounds - elapsed_s,
            done => mean_s * (rounds - f64::from(done)),
        };
        format!(", about {} left", duration(left_s.max(0.0)))
    });
    what + &left.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_left() {
        let place = |pair, arm, done| Place { pair, arm, done };
        assert_eq!(line(place(0, Arm::Stock, 0), 10, None, 3.0), "warming up");
        let known = line(place(0, Arm::Stock, 0), 10, Some(6.0), 3.0);
        assert_eq!(known, "warming up, about 2 min left");
        let unspin = line(place(3, Arm::Unspin, 5), 10, None, 25.0);
        assert_eq!(unspin, "pair 3 of 10, with unspin, about 80 s left");
    }
}

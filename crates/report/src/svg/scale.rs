//! From values to positions, and round values for an axis.

/// A scale from a range of values to a range of positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Whether the scale is logarithmic, which requires positive values.
    pub log: bool,
    /// Smallest and largest value.
    pub values: (f64, f64),
    /// Positions of these two values.
    pub positions: (f64, f64),
    /// Maximum number of ticks that do not crowd the axis.
    pub most_ticks: usize,
}

const MOST_TICKS: usize = 8;
/// Room for the label of a tick, in positions.
const LABEL: f64 = 40.0;

impl Scale {
    /// Returns a scale from 0 to a round value at or above `max`.
    pub fn linear(max: f64, positions: (f64, f64)) -> Self {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let step = linear_step(max);
        Scale {
            log: false,
            values: (0.0, (max / step).ceil() * step),
            positions,
            most_ticks: MOST_TICKS,
        }
    }

    /// Returns a logarithmic scale a little wider than from `min` to `max`, both positive.
    pub fn log(min: f64, max: f64, positions: (f64, f64)) -> Self {
        let margin = ((max / min).ln() * 0.04).exp().max(1.02);
        Scale { log: true, values: (min / margin, max * margin), positions, most_ticks: MOST_TICKS }
    }

    /// Returns the position of a value; values beyond the scale lie at its ends.
    pub fn at(&self, value: f64) -> f64 {
        let (min, max) = self.values;
        let share = if self.log {
            (value.max(min).min(max) / min).ln() / (max / min).ln()
        } else {
            (value.max(min).min(max) - min) / (max - min)
        };
        self.positions.0 + share * (self.positions.1 - self.positions.0)
    }

    /// Returns whether a value lies within the scale.
    pub fn holds(&self, value: f64) -> bool {
        (self.values.0..=self.values.1).contains(&value)
    }

    /// Returns round values within the scale.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let max = self.values.1;
        let step = linear_step(max);
        let steps = (max / step).round() as usize;
        // The scale ends on a whole number of steps, so the ticks can be thinned out evenly.
        let every = (1..=steps).find(|k| steps % k == 0 && steps / k < self.most_ticks);
        (0..=steps).step_by(every.unwrap_or(steps.max(1))).map(|k| k as f64 * step).collect()
    }

    /// Returns the finest set of round values that does not crowd the axis.
    fn log_ticks(&self) -> Vec<f64> {
        const SETS: [&[f64]; 6] = [
            &[
                1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0, 3.0, 5.0, 7.0, 8.0, 8.5, 9.0,
                9.5,
            ],
            &[1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 7.0, 8.0, 9.0],
            &[1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0],
            &[1.0, 2.0, 5.0],
            &[1.0, 3.0],
            &[1.0],
        ];
        let sets = SETS.iter().map(|set| self.decades(set, 1));
        let coarse = [2, 3, 5].into_iter().map(|every| self.decades(&[1.0], every));
        let mut last = Vec::new();
        for ticks in sets.chain(coarse) {
            if ticks.len() <= self.most_ticks && !self.crowded(&ticks) {
                return ticks;
            }
            last = ticks;
        }
        last
    }

    /// Returns whether labels of neighbouring ticks would touch.
    fn crowded(&self, ticks: &[f64]) -> bool {
        ticks.windows(2).any(|pair| self.at(pair[1]) - self.at(pair[0]) < LABEL)
    }

    fn decades(&self, mantissas: &[f64], every: usize) -> Vec<f64> {
        let first = self.values.0.log10().floor() as i32;
        let last = self.values.1.log10().ceil() as i32;
        (first..=last)
            .filter(|exponent| exponent.rem_euclid(every as i32) == 0)
            .flat_map(|exponent| mantissas.iter().map(move |m| m * 10f64.powi(exponent)))
            .filter(|value| self.holds(*value))
            .collect()
    }
}

/// Returns 1, 2 or 5 times a power of ten, so that 0 to `max` takes 3 to 7 steps.
fn linear_step(max: f64) -> f64 {
    let rough = max / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|m| m * power >= rough * 0.999);
    step.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_scales_start_at_zero_and_end_round() {
        let scale = Scale::linear(57_065.0, (100.0, 700.0));
        assert_eq!(scale.values, (0.0, 60_000.0));
        assert_eq!(scale.ticks(), [0.0, 1e4, 2e4, 3e4, 4e4, 5e4, 6e4]);
        assert_eq!(scale.at(30_000.0), 400.0);
        assert_eq!(scale.at(-1.0), 100.0);
        assert_eq!(scale.at(f64::INFINITY), 700.0);
    }

    #[test]
    fn log_scales_have_round_ticks_whatever_their_span() {
        for (min, max) in [(0.97, 1.04), (0.5, 2.4), (0.1, 3.0), (0.01, 70.0), (1e-9, 1e9)] {
            let ticks = Scale::log(min, max, (0.0, 500.0)).ticks();
            assert!((2..=MOST_TICKS).contains(&ticks.len()), "{min} {max}: {ticks:?}");
            assert!(ticks.contains(&1.0), "{ticks:?}");
        }
    }

    #[test]
    fn degenerate_values_make_no_panic_and_finite_positions() {
        for max in [0.0, -1.0, f64::INFINITY, f64::NAN, 1e-300] {
            let scale = Scale::linear(max, (0.0, 10.0));
            assert!(scale.at(0.5).is_finite() && !scale.ticks().is_empty());
        }
    }
}

//! Formats numbers for people.
//!
//! Figures have three significant digits: more would claim a precision that no lab run has. A
//! narrow no-break space separates thousands; the terminal replaces it by a plain space.

use unspin_model::summary::{Estimate, Verdict};

/// Narrow no-break space, between groups of three digits.
pub const GROUP: char = '\u{202f}';

/// Returns a figure with three significant digits: `23 000`, `5.10`, `0.0123`, `1.20e-5`.
pub fn number(value: f64) -> String {
    number_with(value, 0)
}

/// Returns the same with `more` additional digits.
pub fn number_with(value: f64, more: u8) -> String {
    if value.is_nan() {
        return "not a number".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "-∞".into() };
    }
    if value == 0.0 {
        return "0".into();
    }
    let after_first = 2 + i32::from(more);
    let magnitude = magnitude(value, after_first);
    if !(-4..15).contains(&magnitude) {
        return format!("{value:.*e}", after_first as usize);
    }
    if magnitude > after_first {
        let step = 10f64.powi(magnitude - after_first);
        return grouped(&format!("{:.0}", (value / step).round() * step));
    }
    let text = format!("{value:.*}", (after_first - magnitude) as usize);
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    grouped(whole) + fraction
}

/// Returns the number of a formatted figure.
pub fn parse(figure: &str) -> Option<f64> {
    figure.replace(GROUP, "").parse().ok()
}

/// Returns the power of ten of the first digit after rounding to `after_first` digits behind it.
fn magnitude(value: f64, after_first: i32) -> i32 {
    let text = format!("{:.*e}", after_first as usize, value.abs());
    text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0)
}

/// Returns an exact count: `1 234 567`.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// Separates groups of three digits from the right; four digits stay together.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    if digits.len() <= 4 {
        return format!("{sign}{digits}");
    }
    let mut out = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(GROUP);
        }
        out.push(digit);
    }
    out
}

/// Returns an estimate with its interval: `23 000 [22 100, 23 900]`.
pub fn estimate(estimate: &Estimate) -> String {
    with_interval(number(estimate.value), &interval(estimate, number))
}

/// Returns whether an estimate has an interval; that of a single run has none.
pub fn has_interval(estimate: &Estimate) -> bool {
    !estimate.lo.is_nan()
}

/// Returns an interval: `[22 100, 23 900]`; an empty string if the estimate has none.
pub fn interval(estimate: &Estimate, text: impl Fn(f64) -> String) -> String {
    match has_interval(estimate) {
        true => format!("[{}, {}]", text(estimate.lo), text(estimate.hi)),
        false => String::new(),
    }
}

/// Returns a figure with its interval, if it has one.
pub fn with_interval(figure: String, interval: &str) -> String {
    if interval.is_empty() { figure } else { format!("{figure} {interval}") }
}

/// Returns the interval of a ratio: `[2.10, 2.38]`.
pub fn ratio_interval(estimate: &Estimate) -> String {
    interval(estimate, ratio_number)
}

/// Returns a ratio with its interval: `2.24x [2.10, 2.38]`.
pub fn ratio(estimate: &Estimate) -> String {
    with_interval(format!("{}x", ratio_number(estimate.value)), &ratio_interval(estimate))
}

/// Returns a ratio's figure: two decimals near 1, fewer digits far from it.
pub fn ratio_number(value: f64) -> String {
    ratio_number_with(value, 0)
}

/// Returns the same with `more` additional digits.
pub fn ratio_number_with(value: f64, more: u8) -> String {
    let digits = |usual: usize| usual + usize::from(more);
    match value {
        _ if (0.0995..9.995).contains(&value) => format!("{value:.*}", digits(2)),
        // Two significant digits, because no run measures a loss of 50 times to a hundredth.
        _ if value > 0.0 && value < 0.0995 => match (1 - magnitude(value, 2)).max(2) as usize {
            decimals @ ..=6 => format!("{value:.*}", digits(decimals)),
            _ => format!("{value:.*e}", digits(1)),
        },
        _ if (9.995..99.95).contains(&value) => format!("{value:.*}", digits(1)),
        _ => number_with(value, more),
    }
}

/// Returns a share in percent: `12 %`, `0.4 %`, with a narrow no-break space.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent.fract().abs() < 1e-9 || percent.abs() >= 9.95 {
        format!("{percent:.0}{GROUP}%")
    } else if percent.abs() >= 0.095 {
        format!("{percent:.1}{GROUP}%")
    } else {
        format!("< 0.1{GROUP}%")
    }
}

/// Returns a p value: `< 0.001`, `0.032`, `1`.
pub fn p_value(p: f64) -> String {
    match p {
        _ if p < 0.001 => "< 0.001".into(),
        _ if p < 0.1 => format!("{p:.3}"),
        _ if p < 0.995 => format!("{p:.2}"),
        _ => "1".into(),
    }
}

/// Returns a duration in seconds as words: `0.80 s`, `45 s`, `3 min 20 s`, `1 h 12 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 10.0 => format!("{} s", number(seconds)),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Returns a time in a suitable unit: `67.9 us`, `9.26 ms`, `3.25 s`, `3 min 20 s`; with a narrow
/// no-break space before the unit.
pub fn time(seconds: f64) -> String {
    let in_unit = |value: f64, unit: &str| format!("{}{GROUP}{unit}", number(value));
    match seconds.abs() {
        0.0 => in_unit(0.0, "s"),
        s if s < 999.5e-6 => in_unit(1e6 * seconds, "us"),
        s if s < 0.9995 => in_unit(1e3 * seconds, "ms"),
        s if s < 99.95 => in_unit(seconds, "s"),
        _ => duration(seconds),
    }
}

/// Returns the verdict in words.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifferenceShown => "no difference shown",
        Verdict::TooFewRuns => "too few runs",
    }
}

/// Returns a count with its noun: `1 run`, `2 runs`.
pub fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", self::count(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (23_016.0, "23\u{202f}000"),
            (578_001.0, "578\u{202f}000"),
            (1_234_567.0, "1\u{202f}230\u{202f}000"),
            (-23_016.0, "-23\u{202f}000"),
            (1992.0, "1990"),
            (999.6, "1000"),
            (99.96, "100"),
            (5.1, "5.10"),
            (0.0123, "0.0123"),
            (0.000_012, "1.20e-5"),
            (3e20, "3.00e20"),
            (f64::INFINITY, "∞"),
            (f64::NAN, "not a number"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn more_digits_say_the_same_number_more_exactly() {
        for (value, more, text) in [
            (0.968_745, 1, "0.9687"),
            (1992.4, 1, "1992"),
            (12_345.678, 1, "12\u{202f}350"),
            (12_345.678, 2, "12\u{202f}346"),
            (12_345.678, 4, "12\u{202f}345.68"),
            (-12_345.678, 4, "-12\u{202f}345.68"),
            (0.000_012_346, 1, "1.235e-5"),
        ] {
            assert_eq!(number_with(value, more), text);
            assert!(parse(text).is_some_and(|parsed| (parsed / value - 1.0).abs() < 1e-3));
        }
        for (value, text) in [
            (0.999_08, "0.999"),
            (0.016_42, "0.0164"),
            (63.25, "63.25"),
            (123.44, "123.4"),
            (0.000_000_123, "1.23e-7"),
        ] {
            assert_eq!(ratio_number_with(value, 1), text);
        }
    }

    #[test]
    fn ratios() {
        let ratio_of = |value, lo, hi| ratio(&Estimate { value, lo, hi });
        assert_eq!(ratio_of(2.2402, 2.1, 2.38), "2.24x [2.10, 2.38]");
        assert_eq!(ratio_of(0.0164, 0.011, 0.1), "0.016x [0.011, 0.10]");
        assert_eq!(ratio_of(63.25, 51.0, f64::INFINITY), "63.2x [51.0, ∞]");
        assert_eq!(ratio_of(2.2402, f64::NAN, f64::NAN), "2.24x", "a single run");
        let alone = Estimate { value: 5.1, lo: f64::NAN, hi: f64::NAN };
        assert_eq!(estimate(&alone), "5.10");
    }

    #[test]
    fn shares_times_and_p_values() {
        assert_eq!(percent(0.494), "49\u{202f}%");
        assert_eq!(percent(0.0042), "0.4\u{202f}%");
        assert_eq!(percent(0.0), "0\u{202f}%");
        assert_eq!(percent(0.05), "5\u{202f}%");
        assert_eq!(percent(0.000_8), "< 0.1\u{202f}%");
        assert_eq!(duration(0.8), "0.800 s");
        assert_eq!(duration(59.7), "1 min 0 s");
        assert_eq!(duration(45.2), "45 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(4321.0), "1 h 12 min");
        for (seconds, text) in [
            (0.0, "0 s"),
            (6.79e-5, "67.9 us"),
            (0.000_999_7, "1.00 ms"),
            (0.009_26, "9.26 ms"),
            (0.999_7, "1.00 s"),
            (3.25, "3.25 s"),
            (200.0, "3 min 20 s"),
        ] {
            assert_eq!(time(seconds).replace(GROUP, " "), text);
        }
        assert_eq!(p_value(0.0004), "< 0.001");
        assert_eq!(p_value(0.0321), "0.032");
        assert_eq!(p_value(0.412), "0.41");
        assert_eq!(p_value(1.0), "1");
        assert_eq!(plural(1, "run", "runs"), "1 run");
        assert_eq!(plural(12_345, "run", "runs"), "12\u{202f}345 runs");
    }
}

//! Parses times on the command line: `3`, `3s`, `500ms`, `2m`, `1.5h`.

use std::time::Duration;

/// Units and their nanoseconds. A unit that ends like another one comes first.
const UNITS: [(&str, f64); 7] =
    [("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("min", 60e9), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
/// Longest time, in nanoseconds. More than a year is a mistake.
const LONGEST_NS: f64 = 365.0 * 24.0 * 3600e9;

/// Parses a time above 0. A number without a unit counts seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match parse(text, 1e9)? {
        Duration::ZERO => Err("a time above 0 is needed, such as 10s".into()),
        span => Ok(span),
    }
}

/// Parses a time up to a second. A number without a unit counts microseconds.
pub fn microseconds(text: &str) -> Result<Duration, String> {
    match parse(text, 1e3)? {
        span if span > Duration::from_secs(1) => Err("at most a second makes sense".into()),
        span => Ok(span),
    }
}

/// Parses the time between two heartbeats, or 0 for none. Each heartbeat can cost the guest a VM
/// exit.
pub fn beat(text: &str) -> Result<Duration, String> {
    match microseconds(text)? {
        span if !span.is_zero() && span < Duration::from_micros(100) => {
            Err("at least 100us, or 0 for none; a number without a unit is microseconds".into())
        }
        span => Ok(span),
    }
}

fn parse(text: &str, bare_ns: f64) -> Result<Duration, String> {
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, ns) =
        unit.map_or((text, bare_ns), |(unit, ns)| (&text[..text.len() - unit.len()], *ns));
    let value: Option<f64> = number.trim().parse().ok();
    let in_range = |ns: &f64| (0.0..=LONGEST_NS).contains(ns);
    let ns = value.map(|value| value * ns).filter(in_range);
    let ns = ns.ok_or("a time is a number with a unit of us, ms, s, m or h: 500ms, 10s, 2m")?;
    Ok(Duration::from_nanos(ns.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_the_usual_one() {
        for (text, ms) in [
            ("1", 1_000),
            ("1s", 1_000),
            ("0.5", 500),
            ("500ms", 500),
            ("2m", 120_000),
            ("2 min", 120_000),
            ("1.5h", 5_400_000),
            ("3000us", 3),
        ] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(microseconds("200"), Ok(Duration::from_micros(200)));
        assert_eq!(microseconds("0"), Ok(Duration::ZERO));
        assert_eq!(microseconds("1ms"), microseconds("1000"));
    }

    #[test]
    fn what_is_no_time_is_an_error() {
        for text in
            ["", "s", "ten", "-1", "0", "0s", "1d", "nan", "inf", "1e30", "1x s", "9999999h"]
        {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert!(microseconds("2s").is_err());
    }
}

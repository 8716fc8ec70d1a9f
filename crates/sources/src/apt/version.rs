//! Debian version numbers.
//!
//! Source of the ordering: Debian Policy Manual, section 5.6.12.

use std::cmp::Ordering;

/// Compares two versions `[EPOCH:]UPSTREAM[-REVISION]`.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (parts(a), parts(b));
    a.0.cmp(&b.0).then_with(|| alternate(a.1, b.1)).then_with(|| alternate(a.2, b.2))
}

/// Splits a version into epoch, upstream version and revision.
fn parts(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch.parse().unwrap_or(0), upstream, revision)
}

/// Compares non-digit and digit parts alternately.
fn alternate(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let ((text_a, rest_a), (text_b, rest_b)) = (text(a), text(b));
        let ((number_a, after_a), (number_b, after_b)) = (number(rest_a), number(rest_b));
        let order = texts(text_a, text_b).then_with(|| numbers(number_a, number_b));
        if order.is_ne() {
            return order;
        }
        (a, b) = (after_a, after_b);
    }
    Ordering::Equal
}

fn text(s: &str) -> (&str, &str) {
    s.split_at(s.find(|c: char| c.is_ascii_digit()).unwrap_or(s.len()))
}

fn number(s: &str) -> (&str, &str) {
    s.split_at(s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len()))
}

/// Compares non-digit parts. `~` sorts before the end, and letters sort before other characters.
fn texts(a: &str, b: &str) -> Ordering {
    let rank = |byte: Option<&u8>| match byte {
        Some(b'~') => -1,
        None => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(other) => i32::from(*other) + 256,
    };
    (0..a.len().max(b.len()))
        .map(|i| rank(a.as_bytes().get(i)).cmp(&rank(b.as_bytes().get(i))))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Compares numbers of any length. Without leading zeros, the longer number is larger.
fn numbers(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_dpkg_does() {
        let rising = [
            "6.12~rc1-1",
            "6.12-1~exp1",
            "6.12-1",
            "6.12a-1",
            "6.12+dfsg-1",
            "6.12.9-1",
            "6.12.10-1~bpo12+1",
            "6.12.10-1",
            "6.12.10-1+deb13u1",
            "6.12.10-2",
            "7.3.4-1~bpo13+1",
            "7.3.12-1~bpo13+1",
            "1:5.0-1",
        ];
        for pair in rising.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
    }

    #[test]
    fn leading_zeros_do_not_count() {
        assert_eq!(compare("1.05-1", "1.5-1"), Ordering::Equal);
        assert_eq!(compare("1.010", "1.9"), Ordering::Greater);
    }
}

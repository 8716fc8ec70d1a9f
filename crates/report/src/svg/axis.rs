//! The horizontal axis of a plot.

use super::canvas::{Anchor, Canvas};
use super::scale::Scale;
use crate::format;

/// Draws grid lines from `top` to `bottom` with their values below; adds `unit` to each value.
pub fn draw(canvas: &mut Canvas, scale: &Scale, (top, bottom): (f64, f64), unit: &str) {
    for value in scale.ticks().into_iter().filter(|value| scale.holds(*value)) {
        let x = scale.at(value);
        canvas.line("grid", (x, top), (x, bottom));
        let text = format!("{}{unit}", tick_text(value));
        canvas.text("tick", (x, bottom + 15.0), Anchor::Middle, &text);
    }
}

/// Returns a round value without trailing zeros.
fn tick_text(value: f64) -> String {
    let text = format::number(value);
    match text.split_once('.') {
        Some((_, fraction)) if !fraction.contains('e') => {
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::tick_text;

    #[test]
    fn ticks_have_no_trailing_zeros() {
        for (value, text) in [(0.5, "0.5"), (2.0, "2"), (20.0, "20"), (0.0, "0"), (100.0, "100")] {
            assert_eq!(tick_text(value), text);
        }
        assert_eq!(tick_text(20_000.0), "20\u{202f}000");
    }
}

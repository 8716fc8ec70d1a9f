//! A writer of SVG elements.

use std::fmt::Write;

/// An SVG image under construction. Lengths are in its own units.
pub struct Canvas {
    class: &'static str,
    width: f64,
    height: f64,
    label: String,
    body: String,
}

/// Alignment of a text at its point.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// The text starts at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

impl Canvas {
    /// Returns an empty image of a class; `label` is the text for screen readers.
    pub fn new(class: &'static str, width: f64, height: f64, label: &str) -> Self {
        Canvas { class, width, height, label: label.into(), body: String::new() }
    }

    /// Draws a line from one point to another.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (n(from.0), n(from.1), n(to.0), n(to.1));
        let class = escape(class);
        self.push(&format!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    /// Draws a rectangle with rounded corners and a tooltip.
    pub fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), round: f64, tip: &str) {
        let open = format!(
            r#"<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="{}""#,
            escape(class),
            n(at.0),
            n(at.1),
            n(size.0.max(0.0)),
            n(size.1),
            n(round)
        );
        self.push(&with_tip("rect", &open, tip));
    }

    /// Draws a circle with a tooltip.
    pub fn circle(&mut self, class: &str, at: (f64, f64), radius: f64, tip: &str) {
        let (x, y, r) = (n(at.0), n(at.1), n(radius));
        let open = format!(r#"<circle class="{}" cx="{x}" cy="{y}" r="{r}""#, escape(class));
        self.push(&with_tip("circle", &open, tip));
    }

    /// Draws a closed shape through some points, with a tooltip.
    pub fn shape(&mut self, class: &str, points: &[(f64, f64)], tip: &str) {
        let open = format!(r#"<path class="{}" d="{}Z""#, escape(class), through(points));
        self.push(&with_tip("path", &open, tip));
    }

    /// Draws a line through some points, with a tooltip.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)], tip: &str) {
        let open = format!(r#"<path class="{}" d="{}""#, escape(class), through(points));
        self.push(&with_tip("path", &open, tip));
    }

    /// Writes a text.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(&format!(
            r#"<text class="{}" x="{}" y="{}" text-anchor="{anchor}">{}</text>"#,
            escape(class),
            n(at.0),
            n(at.1),
            escape(text)
        ));
    }

    /// Writes a text cut to a number of characters; if it is cut, the whole text is its tooltip.
    pub fn label(&mut self, class: &str, at: (f64, f64), text: &str, characters: usize) {
        let shown = crate::columns::cut(text, characters);
        if shown == text {
            return self.text(class, at, Anchor::Start, text);
        }
        self.push(&format!(
            r#"<text class="{}" x="{}" y="{}">{}<title>{}</title></text>"#,
            escape(class),
            n(at.0),
            n(at.1),
            escape(&shown),
            escape(text)
        ));
    }

    /// Returns the finished image.
    pub fn finish(self) -> String {
        let (width, height, label) = (n(self.width), n(self.height), escape(&self.label));
        format!(
            "<svg class=\"plot {}\" role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {width} \
             {height}\" width=\"{width}\" height=\"{height}\">\n{}</svg>\n",
            self.class, self.body
        )
    }

    fn push(&mut self, element: &str) {
        self.body += element;
        self.body.push('\n');
    }
}

fn through(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, point) in points.iter().enumerate() {
        let verb = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{verb}{} {}", n(point.0), n(point.1));
    }
    path
}

fn with_tip(name: &str, open: &str, tip: &str) -> String {
    match tip {
        "" => format!("{open}/>"),
        tip => format!("{open}><title>{}</title></{name}>", escape(tip)),
    }
}

/// Returns a coordinate with a tenth of a unit: finer differences are not visible.
fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(String::from).unwrap_or(text)
}

/// Escapes text for element content and quoted attributes. Characters that XML forbids become a
/// replacement character.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

//! Text in aligned columns.

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For figures.
    Right,
}

/// Number of spaces between columns.
const GAP: usize = 2;

/// Returns the width in terminal columns. Control characters count as one, because they are printed
/// as a replacement character, see [`printable`].
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Returns the text without control characters, so that a hostile name cannot send escape sequences
/// to the terminal, and with plain spaces between digit groups.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            crate::format::GROUP => ' ',
            c if c.is_control() => '\u{fffd}',
            // Marks that change the writing direction could fake a table.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Returns the text cut to a number of columns, with an ellipsis if something is missing.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the width of every column: that of its widest cell.
pub fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| width(c)).max();
    (0..columns).map(|column| widest(column).unwrap_or(0)).collect()
}

/// Returns the length of a line of columns of these widths; empty columns take no room.
pub fn line_width(widths: &[usize]) -> usize {
    let used = widths.iter().filter(|w| **w > 0);
    used.clone().sum::<usize>() + GAP * used.count().saturating_sub(1)
}

/// Returns one line, without trailing blanks.
pub fn line(cells: &[String], widths: &[usize], align: &[Align]) -> String {
    let mut out = String::new();
    for (index, (cell, columns)) in cells.iter().zip(widths).enumerate() {
        if *columns == 0 {
            continue;
        }
        let fill = " ".repeat(columns.saturating_sub(width(cell)));
        let right = align.get(index) == Some(&Align::Right);
        let (before, after) = if right { (fill.as_str(), "") } else { ("", fill.as_str()) };
        out += &format!("{before}{cell}{after}{}", " ".repeat(GAP));
    }
    out.trim_end().to_string()
}

/// Returns a [`printable`] table with a closing newline. The first column and those named in
/// `words` are aligned left, figures right.
pub fn table(head: &[&str], words: &[&str], rows: Vec<Vec<String>>) -> String {
    let columns = head.iter().enumerate();
    let align: Vec<Align> = columns
        .map(
            |(index, name)| {
                if index == 0 || words.contains(name) { Align::Left } else { Align::Right }
            },
        )
        .collect();
    let all: Vec<Vec<String>> =
        [vec![head.iter().map(|name| (*name).to_owned()).collect()], rows].concat();
    let widths = widths(&all);
    all.iter().map(|row| printable(&line(row, &widths, &align)) + "\n").collect()
}

/// Returns a [`printable`] paragraph in lines of at most `columns`.
pub fn paragraph(text: &str, columns: usize) -> String {
    // Wrapping comes first, because a line must not break at the space within a number.
    let lines = wrap(text, columns);
    lines.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Returns the words in lines of at most `columns`.
fn wrap(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split([' ', '\n', '\r', '\t']).filter(|word| !word.is_empty()) {
        if used > 0 && used + 1 + width(word) > columns {
            out.push('\n');
            used = 0;
        }
        if used > 0 {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += width(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_empty_ones_vanish() {
        let rows = vec![
            vec!["a".to_string(), String::new(), "1".into()],
            vec!["bcd".to_string(), String::new(), "1000".into()],
        ];
        let widths = widths(&rows);
        assert_eq!(line_width(&widths), 9);
        let align = [Align::Left, Align::Left, Align::Right];
        assert_eq!(line(&rows[0], &widths, &align), "a       1");
        assert_eq!(line(&rows[1], &widths, &align), "bcd  1000");
    }

    #[test]
    fn escape_sequences_are_disarmed() {
        assert_eq!(printable("a\u{1b}[31mb\u{202e}"), "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn long_text_is_cut_and_wrapped() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(wrap("one two three", 8), "one two\nthree");
        assert_eq!(paragraph("about 23\u{202f}000", 8), "about\n23 000");
    }
}

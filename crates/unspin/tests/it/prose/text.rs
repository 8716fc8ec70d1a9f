//! Finds the parts of a file that are prose.

/// The context of a passage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A paragraph or list item of a page.
    Prose,
    /// A heading or a row of a table.
    Row,
    /// A doc comment.
    Doc,
    /// Another comment, or a field of a TOML file.
    Note,
}

/// Words that belong together, each with its line, from 1.
#[derive(Debug)]
pub struct Passage {
    pub kind: Kind,
    pub words: Vec<(usize, String)>,
}

/// Returns the passages of a file. The file's name decides how it is read.
pub fn passages(path: &str, text: &str) -> Vec<Passage> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ends = |kinds: &[&str]| kinds.iter().any(|kind| name.ends_with(kind));
    let mut reader = Reader::default();
    if ends(&[".md"]) {
        markdown(&mut reader, text);
    } else if ends(&[".rs"]) {
        docs(&mut reader, text);
    } else if ends(&[".toml"]) {
        fields(&mut reader, text);
    } else if ends(&[".sh", ".py", ".in"]) || name == "Makefile" || text.starts_with("#!") {
        comments(&mut reader, text);
    }
    reader.flush();
    reader.done
}

/// Collects words into passages.
#[derive(Default)]
struct Reader {
    done: Vec<Passage>,
    words: Vec<(usize, String)>,
    kind: Option<Kind>,
}

impl Reader {
    /// Adds a line to the open passage, or opens a new one if the kind differs.
    fn add(&mut self, kind: Kind, line: usize, text: &str) {
        if self.kind.is_some_and(|open| open != kind) {
            self.flush();
        }
        self.kind = Some(kind);
        let text = without_code(text);
        self.words.extend(text.split_whitespace().map(|word| (line, word.to_owned())));
    }

    fn alone(&mut self, kind: Kind, line: usize, text: &str) {
        self.flush();
        self.add(kind, line, text);
        self.flush();
    }

    fn flush(&mut self) {
        let words = std::mem::take(&mut self.words);
        if let Some(kind) = self.kind.take().filter(|_| !words.is_empty()) {
            self.done.push(Passage { kind, words });
        }
    }
}

/// Replaces code with one word, and removes the targets of links.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    let plain: String = parts.map(|(i, part)| if i % 2 == 0 { part } else { "CODE" }).collect();
    let mut out = String::new();
    let mut rest = plain.as_str();
    while let Some((text, target)) = rest.split_once("](") {
        out += text;
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    out + rest
}

fn markdown(reader: &mut Reader, text: &str) {
    let (mut fenced, mut generated) = (false, false);
    for (index, whole) in text.lines().enumerate() {
        let (line, content) = (index + 1, whole.trim());
        if content.starts_with("```") {
            fenced = !fenced;
            reader.flush();
        } else if content.starts_with("<!--") {
            generated = content.starts_with("<!-- claims:");
            reader.flush();
        } else if fenced || generated {
            continue;
        } else if content.is_empty() {
            reader.flush();
        } else if content.starts_with(['|', '#']) {
            reader.alone(Kind::Row, line, content);
        } else if whole.starts_with("    ") && reader.words.is_empty() && !is_item(content) {
            continue;
        } else {
            if is_item(content) {
                reader.flush();
            }
            reader.add(Kind::Prose, line, content);
        }
    }
}

/// Returns whether a line begins a list item.
fn is_item(content: &str) -> bool {
    let number = content.split_once(". ").map_or("", |(number, _)| number);
    let numbered = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    numbered || content.starts_with("- ") || content.starts_with("* ")
}

fn docs(reader: &mut Reader, text: &str) {
    let mut fenced = false;
    for (index, whole) in text.lines().enumerate() {
        let content = whole.trim_start();
        let doc = content.strip_prefix("///").or_else(|| content.strip_prefix("//!"));
        let doc = doc.filter(|doc| !doc.starts_with('/')).map(str::trim);
        match doc {
            Some(doc) if doc.starts_with("```") => fenced = !fenced,
            Some(doc) if !doc.is_empty() && !fenced => reader.add(Kind::Doc, index + 1, doc),
            Some(_) => reader.flush(),
            None => {
                fenced = false;
                reader.flush();
            }
        }
    }
}

/// The fields of TOML files whose text people read.
const FIELDS: &[&str] = &["what", "about", "title", "reason", "stresses", "label"];

fn fields(reader: &mut Reader, text: &str) {
    let mut long = false;
    for (index, whole) in text.lines().enumerate() {
        let field = whole.split_once(" = ").filter(|(name, _)| FIELDS.contains(&name.trim()));
        let value = match field {
            Some((_, value)) if !long => {
                reader.flush();
                long = value.starts_with("\"\"\"");
                value
            }
            _ if long => whole,
            _ => {
                comment(reader, index + 1, whole);
                continue;
            }
        };
        let starts = field.is_some() && value.starts_with("\"\"\"");
        reader.add(Kind::Note, index + 1, value.trim_matches('"'));
        long = long && (starts || !value.contains("\"\"\""));
        if !long {
            reader.flush();
        }
    }
}

fn comments(reader: &mut Reader, text: &str) {
    text.lines().enumerate().for_each(|(index, line)| comment(reader, index + 1, line));
}

/// Reads a comment on its own line, or a target's help in a Makefile.
fn comment(reader: &mut Reader, line: usize, whole: &str) {
    let content = whole.trim_start();
    if let Some((_, help)) = whole.split_once(" ## ") {
        reader.alone(Kind::Note, line, help);
    } else if content.starts_with('#') && !content.starts_with("#!") {
        let words = content.trim_start_matches('#');
        if words.trim().is_empty() {
            reader.flush();
        } else {
            reader.add(Kind::Note, line, words);
        }
    } else {
        reader.flush();
    }
}

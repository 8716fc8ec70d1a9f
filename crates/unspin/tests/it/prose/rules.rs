//! The language rules.

use super::text::{Kind, Passage, passages};

const SENTENCE_WORDS_MAX: usize = 40;
const PAGE_LINES_MAX: usize = 200;
/// Limit of the README, which people read first.
const README_LINES_MAX: usize = 120;

/// Violations: line, from 1, and the reason.
pub type Violations = Vec<(usize, String)>;

/// A phrase that reads as if translated, and its replacement.
struct Phrase {
    words: &'static [&'static str],
    /// Words before the phrase that make it good English.
    unless_after: &'static [&'static str],
    /// Words after the phrase that make it good English.
    unless_before: &'static [&'static str],
    instead: &'static str,
}

const fn phrase(words: &'static [&'static str], instead: &'static str) -> Phrase {
    Phrase { words, unless_after: &[], unless_before: &[], instead }
}

const NAME_IT: &str = "name the thing";
const REPORTS: &str = "reports, says, shows, or the actor's own verb";
const COMPARED: &str = "compared with";

const PHRASES: &[Phrase] = &[
    Phrase { unless_before: &["apart"], ..phrase(&["tells"], REPORTS) },
    Phrase { unless_before: &["apart"], ..phrase(&["told"], REPORTS) },
    Phrase { unless_before: &["for"], ..phrase(&["stands"], "is, or the exact verb") },
    phrase(&["stand", "beside"], "appear next to"),
    phrase(&["held", "against"], COMPARED),
    phrase(&["hold", "against"], COMPARED),
    phrase(&["anew"], "again"),
    phrase(&["by", "turns"], "alternating"),
    phrase(&["what", "of"], NAME_IT),
    phrase(&["is", "another", "matter"], "does not count, or the exact consequence"),
    phrase(&["it", "is", "what"], NAME_IT),
    Phrase {
        unless_after: &["there"],
        unless_before: &["longer", "more", "better", "worse"],
        ..phrase(&["is", "no"], "is not a, or has no")
    },
    Phrase {
        unless_after: &["there"],
        unless_before: &["longer", "more", "better", "worse"],
        ..phrase(&["are", "no"], "are not, or have no")
    },
    Phrase {
        unless_before: &["most", "least"],
        ..phrase(&["is", "at"], "reaches, or the exact verb")
    },
    Phrase {
        unless_before: &["most", "least"],
        ..phrase(&["are", "at"], "reach, or the exact verb")
    },
];

/// Words with a full stop that do not end a sentence.
const ABBREVIATIONS: &[&str] = &["al.", "e.g.", "i.e.", "vs.", "vol.", "etc.", "..."];

/// Returns all violations in a file.
pub fn broken(path: &str, text: &str) -> Violations {
    let mut found = long_page(path, text);
    for passage in passages(path, text) {
        found.extend(phrases(&passage));
        found.extend(long_sentences(&passage));
        found.extend(says_nothing(&passage));
    }
    found
}

/// Checks the length of a page. Generated tables have no limit.
fn long_page(path: &str, text: &str) -> Violations {
    let lines = text.lines().count();
    let is_page = path.ends_with(".md") && !path.starts_with("results/tables/");
    let max = if path == "README.md" { README_LINES_MAX } else { PAGE_LINES_MAX };
    if !is_page || lines <= max {
        return Violations::new();
    }
    vec![(lines, format!("{lines} lines, more than {max}: split the page"))]
}

fn phrases(passage: &Passage) -> Violations {
    // Trailing punctuation stays with its word, so no phrase spans it.
    let word =
        |(_, word): &(usize, String)| word.trim_start_matches(['*', '_', '(', '[']).to_lowercase();
    let words: Vec<String> = passage.words.iter().map(word).collect();
    let bare = |index: usize| words.get(index).map_or("", |word| stripped(word));
    let mut found = Violations::new();
    for index in 0..words.len() {
        for Phrase { words: wanted, unless_after, unless_before, instead } in PHRASES {
            let last = index + wanted.len() - 1;
            let is_it = (index..=last).zip(*wanted).all(|(at, wanted)| {
                words
                    .get(at)
                    .is_some_and(|word| if at == last { stripped(word) } else { word } == *wanted)
            });
            let excused = unless_before.contains(&bare(last + 1))
                || index > 0 && unless_after.contains(&bare(index - 1));
            if is_it && !excused {
                let phrase = wanted.join(" ");
                found.push((passage.words[index].0, format!("\"{phrase}\": write {instead}")));
            }
        }
    }
    found
}

/// Strips trailing punctuation from a word.
fn stripped(word: &str) -> &str {
    word.trim_end_matches(|c: char| !c.is_alphanumeric())
}

fn long_sentences(passage: &Passage) -> Violations {
    let mut found = Violations::new();
    if passage.kind != Kind::Prose {
        return found;
    }
    let mut count = 0;
    for (index, (line, word)) in passage.words.iter().enumerate() {
        count += usize::from(word.contains(char::is_alphanumeric));
        let is_last = index + 1 == passage.words.len();
        if !is_last && !ends_sentence(word) {
            continue;
        }
        if count > SENTENCE_WORDS_MAX {
            found.push((*line, format!("a sentence of {count} words ends here: split it")));
        }
        count = 0;
    }
    found
}

fn ends_sentence(word: &str) -> bool {
    let end = word.trim_end_matches(['*', ')', '"', ']']);
    end.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&end)
}

/// Finds doc comments such as "Does it.", which only repeat that the function exists.
fn says_nothing(passage: &Passage) -> Violations {
    let empty = passage.kind == Kind::Doc
        && matches!(&passage.words[..], [_, (_, it)] if stripped(it) == "it");
    let violation = |(line, _): &(usize, String)| {
        (*line, "a comment that says nothing: say what, in which unit, or delete it".to_owned())
    };
    passage.words.first().filter(|_| empty).map(violation).into_iter().collect()
}

#[test]
fn each_rule_catches_what_it_is_for() {
    let long = format!("{}end.", "word ".repeat(SENTENCE_WORDS_MAX));
    let samples = [
        ("a.md", "Good.\n\nIt tells\nthe user.\n".to_owned(), 3),
        ("a.md", "| a | is told |\n".to_owned(), 1),
        ("a.md", "It stands\nbeside it.\n".to_owned(), 1),
        ("a.md", "Both are held\nagainst the truth.\n".to_owned(), 1),
        ("a.md", "# Made anew\n".to_owned(), 1),
        ("a.md", "It is **no error**.\n".to_owned(), 1),
        ("a.md", "- It is at 0.9x.\n".to_owned(), 1),
        ("a.md", "Run by turns.\n".to_owned(), 1),
        ("a.md", "What of it is left.\n".to_owned(), 1),
        ("a.md", format!("Short.\n{long}\n"), 2),
        ("a.md", format!("- An item.\n\n  {long}\n"), 3),
        ("README.md", "x\n\n".repeat(README_LINES_MAX / 2) + "x\n", README_LINES_MAX + 1),
        ("docs/a.md", "x\n\n".repeat(PAGE_LINES_MAX / 2) + "x\n", PAGE_LINES_MAX + 1),
        ("a.rs", "/// Reads.\n///\n/// Tells why.\nfn f() {}\n".to_owned(), 3),
        ("a.rs", "    /// Does it.\n    fn f() {}\n".to_owned(), 1),
        ("a.rs", "//! It stands.\n".to_owned(), 1),
        ("a.toml", "what = \"it is told\"\n".to_owned(), 1),
        ("a.toml", "about = \"\"\"\nIt is\nmade anew.\n\"\"\"\nx = 1\n".to_owned(), 3),
        ("a.toml", "# By turns.\n".to_owned(), 1),
        ("a.sh", "#!/bin/sh\n# Who is told.\ntrue\n".to_owned(), 2),
        ("Makefile", "all: a ## tells why\n".to_owned(), 1),
        ("run", "#!/bin/sh\n# It is no test.\n".to_owned(), 2),
    ];
    for (path, text, line) in samples {
        let lines: Vec<usize> = broken(path, &text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [line], "{path}: {text:?}");
    }
}

#[test]
fn good_text_passes() {
    let short = "word ".repeat(SENTENCE_WORDS_MAX - 6);
    let samples = [
        (
            "a.md",
            "There is no disk. It is no longer there. It is at most 3. It is \"no one\".\n"
                .to_owned(),
        ),
        ("a.md", "`it tells` stands for itself.\n\n```\ntold\n```\n".to_owned()),
        ("a.md", "<!-- claims: a -->\n\n| told |\n\n<!-- /claims -->\n".to_owned()),
        ("a.md", "    what of it\n".to_owned()),
        ("a.md", format!("{short}end. unspin {short}by one et al. [x](told)\n")),
        ("a.md", format!("| {short} | {short} |\n")),
        ("results/tables/a.md", "x\n\n".repeat(PAGE_LINES_MAX)),
        ("a.rs", "// Not a doc comment: told.\nlet tells = \"told\";\n".to_owned()),
        ("a.rs", "/// ```\n/// told();\n/// ```\nfn f() {}\n".to_owned()),
        ("a.toml", "name = \"told\"\n".to_owned()),
        ("a.c", "/* told */\n".to_owned()),
    ];
    for (path, text) in samples {
        assert_eq!(broken(path, &text), [], "{path}: {text:?}");
    }
}

//! Finds the addresses of Debian's archives in this system's apt sources.
//!
//! Source of the formats: sources.list(5).

use std::fs;
use std::path::Path;

/// Debian's name for the nearest mirror. Systems without a Debian source, such as Ubuntu, use this
/// fallback.
const FALLBACK: &str = "http://deb.debian.org";

/// Debian's archive of debug symbols. It is signed with the same key but has none of the packages
/// that the lab needs.
const DEBUG: &str = "debian-debug";

/// The values of `Enabled` with which apt disables a stanza.
const NO: [&str; 6] = ["no", "false", "without", "off", "disable", "0"];

/// A source of binary packages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AptSource {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: String,
}

/// Base addresses of Debian's archives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirrors {
    /// Holds releases, updates and backports.
    pub(super) main: String,
    /// Holds security updates.
    pub(super) security: String,
}

impl Mirrors {
    /// Returns the mirrors that the system's sources below `etc` (`/etc/apt`) name.
    pub(super) fn of_system(etc: &Path) -> Self {
        Self::of_sources(&system_sources(etc))
    }

    fn of_sources(sources: &[AptSource]) -> Self {
        let find = |archive: &str| {
            let found: Vec<&str> = sources.iter().flat_map(|one| one.debian(archive)).collect();
            // One key signs several archives. The customary path identifies the archive.
            let named = found.iter().find(|uri| is_named(uri, archive));
            let uri = named.or(found.first()).copied().map(str::to_owned);
            uri.unwrap_or_else(|| format!("{FALLBACK}/{archive}"))
        };
        Self { main: find("debian"), security: find("debian-security") }
    }
}

impl AptSource {
    /// Returns this source's addresses if it is Debian's archive of that name.
    ///
    /// Suite names don't identify the archive, because others use Debian's. Vendors also use its
    /// customary path. The archive's key therefore decides, or the customary path if no vendor's
    /// key is given.
    fn debian(&self, archive: &str) -> Vec<&str> {
        let security = self.suites.iter().any(|suite| suite.ends_with("-security"));
        let main = self.components.iter().any(|component| component == "main");
        if !main || security != (archive == "debian-security") {
            return Vec::new();
        }
        let keyed = self.signed_by.contains("debian-archive-");
        let vendors = !self.signed_by.is_empty() && !self.signed_by.contains("debian");
        let uris = self.uris.iter().map(|uri| uri.trim_end_matches('/'));
        let fits = |uri: &&str| {
            let network = uri.starts_with("http://") || uri.starts_with("https://");
            network && !is_named(uri, DEBUG) && (keyed || !vendors && is_named(uri, archive))
        };
        uris.filter(fits).collect()
    }
}

/// Returns whether an address ends in the archive's customary path.
fn is_named(uri: &str, archive: &str) -> bool {
    uri.rsplit('/').next() == Some(archive)
}

/// Returns all sources below `etc`. An unreadable file counts as absent.
fn system_sources(etc: &Path) -> Vec<AptSource> {
    let mut files = vec![etc.join("sources.list")];
    let parts = fs::read_dir(etc.join("sources.list.d")).into_iter().flatten().flatten();
    let mut parts: Vec<_> = parts.map(|part| part.path()).collect();
    parts.sort();
    files.extend(parts);
    let parse = |file: &Path| {
        let text = fs::read_to_string(file).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => deb822(&text),
            Some("list") => one_line(&text),
            _ => Vec::new(),
        }
    };
    files.iter().flat_map(|file| parse(file)).collect()
}

/// Parses lines of the form `deb [option=value ...] URI SUITE COMPONENT...`.
fn one_line(text: &str) -> Vec<AptSource> {
    text.lines().filter_map(one_source).collect()
}

fn one_source(line: &str) -> Option<AptSource> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t', '[']))?.trim();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let signed = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(AptSource {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by: signed.unwrap_or_default().into(),
    })
}

/// Parses stanzas of `Field: values`. A line that begins with a blank continues a field's values.
fn deb822(text: &str) -> Vec<AptSource> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.trim().is_empty()).filter_map(stanza).collect()
}

fn stanza(lines: &[&str]) -> Option<AptSource> {
    let field = |name| words(lines, name);
    let is_no = |word: &String| NO.iter().any(|no| word.eq_ignore_ascii_case(no));
    let enabled = !field("Enabled").first().is_some_and(is_no);
    let binary = field("Types").iter().any(|word| word == "deb");
    (enabled && binary).then(|| AptSource {
        uris: field("URIs"),
        suites: field("Suites"),
        components: field("Components"),
        signed_by: field("Signed-By").join(" "),
    })
}

/// Returns the words of a field. Field names are case-insensitive.
fn words(lines: &[&str], name: &str) -> Vec<String> {
    let value = |line: &&str| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then(|| value.to_owned())
    };
    let Some((at, mut all)) =
        lines.iter().enumerate().find_map(|(at, line)| value(line).map(|value| (at, value)))
    else {
        return Vec::new();
    };
    for line in lines[at + 1..].iter().take_while(|line| line.starts_with([' ', '\t'])) {
        all.push_str(line);
    }
    all.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;

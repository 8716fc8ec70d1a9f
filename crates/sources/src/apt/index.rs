//! apt's index of packages.

use super::version;

/// A package in apt's index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Size of the archive in bytes.
    pub(crate) size: u64,
    /// Names of the packages in its dependencies, with all alternatives.
    pub(crate) depends: Vec<String>,
}

/// Parses the output of `apt-cache dumpavail`.
pub(crate) fn parse(text: &str) -> Vec<Package> {
    text.split("\n\n").filter_map(package).collect()
}

fn package(stanza: &str) -> Option<Package> {
    let field = |name: &str| {
        stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::trim)
    };
    let depends = field("Depends").unwrap_or_default();
    let names = depends.split([',', '|']).filter_map(|one| one.split_whitespace().next());
    Some(Package {
        name: field("Package")?.into(),
        version: field("Version")?.into(),
        size: field("Size").and_then(|size| size.parse().ok()).unwrap_or(0),
        depends: names.map(str::to_owned).collect(),
    })
}

/// Returns the newest version of the package `name`.
pub(crate) fn newest<'a>(packages: &'a [Package], name: &str) -> Option<&'a Package> {
    let named = packages.iter().filter(|package| package.name == name);
    named.max_by(|a, b| version::compare(&a.version, &b.version))
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;

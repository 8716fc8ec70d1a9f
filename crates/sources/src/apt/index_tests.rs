use super::*;

/// Shortened from `apt-cache dumpavail` for trixie-backports.
const INDEX: &str = include_str!("golden/dumpavail.txt");

#[test]
fn the_newest_source_package_is_found() {
    let packages = parse(INDEX);
    let found = newest(&packages, "linux-source-7.3").map(|p| p.version.as_str());
    assert_eq!(found, Some("7.3.4-1~bpo13+1"));
    assert_eq!(newest(&packages, "linux-source-9.9"), None);
}

use super::*;

const DEB822: &str = "\
Types: deb
# a comment inside a stanza
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
uris: http://mirror.example/updates
Suites:
 bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";

const ONE_LINE: &str = "\
# deb http://old.example/debian buster main
deb-src http://src.example/debian bookworm main
deb [arch=amd64 signed-by=/k/docker.gpg] https://docker.example/linux/debian bookworm stable
deb [ arch=amd64 ] https://php.example/php/ bookworm main
deb\thttps://one.example/debian bookworm main contrib # nearest
deb http://one.example/debian-security bookworm-security main
";

fn mirrors(main: &str, security: &str) -> Mirrors {
    Mirrors { main: main.into(), security: security.into() }
}

#[test]
fn deb822_sources_name_the_mirror() {
    let expected = mirrors("http://mirror.example/debian", "http://mirror.example/updates");
    assert_eq!(Mirrors::of_sources(&deb822(DEB822)), expected);
}

#[test]
fn one_line_sources_name_the_mirror() {
    let expected = mirrors("https://one.example/debian", "http://one.example/debian-security");
    assert_eq!(Mirrors::of_sources(&one_line(ONE_LINE)), expected);
}

#[test]
fn a_customary_path_comes_before_a_mere_key() {
    let stanza = |path: &str, suite: &str| {
        let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
        format!(
            "Types: deb\nURIs: http://m.example/{path}\nSuites: {suite}\nComponents: main\n\
             Signed-By: {key}\n\n"
        )
    };
    let debug = stanza("debian-debug/", "trixie-debug");
    let own = stanza("own", "trixie");
    let main = |text: String| Mirrors::of_sources(&deb822(&text)).main;
    assert_eq!(main(debug.clone()), format!("{FALLBACK}/debian"));
    assert_eq!(main(debug.clone() + &own), "http://m.example/own");
    assert_eq!(main(debug + &own + &stanza("debian/", "trixie")), "http://m.example/debian");
}

#[test]
fn disabled_and_source_only_stanzas_are_none() {
    assert_eq!(deb822(&DEB822.replace("Types: deb\n", "Types: deb-src\n")).len(), 1);
    for (word, sources) in [("no", 0), ("False", 0), ("0", 0), ("yes", 2)] {
        let enabled = format!("Components: main\nEnabled: {word}\n");
        assert_eq!(deb822(&DEB822.replace("Components: main\n", &enabled)).len(), sources);
    }
}

#[test]
fn another_distribution_gets_the_fallback() {
    let ubuntu =
        "Types: deb\nURIs: http://archive.example/ubuntu/\nSuites: noble\nComponents: main\n";
    let found = Mirrors::of_sources(&deb822(ubuntu));
    assert_eq!(found.main, format!("{FALLBACK}/debian"));
    assert_eq!(found.security, format!("{FALLBACK}/debian-security"));
}

#[test]
fn a_vendors_archive_is_not_debians_whatever_its_path() {
    let vendor = "deb [signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example/deb/debian \
                  any-version main\n";
    let main = |text: &str| Mirrors::of_sources(&one_line(text)).main;
    assert_eq!(main(vendor), format!("{FALLBACK}/debian"));
    assert_eq!(main(&(vendor.to_owned() + ONE_LINE)), "https://one.example/debian");
}

#[test]
fn both_forms_are_read_from_the_systems_folder() {
    let etc = tempfile::tempdir().unwrap();
    fs::create_dir(etc.path().join("sources.list.d")).unwrap();
    fs::write(etc.path().join("sources.list"), "deb cdrom:[Debian]/ bookworm main\n").unwrap();
    fs::write(etc.path().join("sources.list.d/debian.sources"), DEB822).unwrap();
    fs::write(etc.path().join("sources.list.d/a.list.disabled"), ONE_LINE).unwrap();
    assert_eq!(Mirrors::of_system(etc.path()).main, "http://mirror.example/debian");
}

use std::fs;
use std::path::Path;

use super::*;

static LAB: Source = Source::Lab;

fn wanted<'a>(home: &Path, source: &'a Source, compiler: &str) -> Wanted<'a> {
    Wanted { home: home.into(), source, recipe: Recipe::of(source), compiler: compiler.into() }
}

fn offer(version: &str) -> Origin {
    Origin::Offer(Offer::at(PINNED, version, Path::new("/nonexistent")))
}

/// Puts a kernel into the cache that was built from a source with this identity.
fn publish(wanted: &Wanted, identity: &str) -> Kernel {
    let kernel = Kernel {
        spec: wanted.source.spec(),
        id: format!("lab-6.12.1-{}", wanted.key(identity)),
        release: "6.12.1-unspin".into(),
        image: "bzImage".into(),
        config: None,
        modules: None,
        source: identity.into(),
    };
    let staging = Staging::begin(&wanted.home, &mut || ()).unwrap();
    fs::create_dir(staging.entry()).unwrap();
    staging.publish(&Entry { kernel, recipe: Some(wanted.recipe.digest()) }).unwrap().kernel
}

#[test]
fn only_the_same_version_and_compiler_are_cached() {
    let home = tempfile::tempdir().unwrap();
    let lab = wanted(home.path(), &LAB, "gcc 12");
    let made = publish(&lab, &format!("{PINNED} 6.12.1-1"));
    assert_eq!(lab.cached(&offer("6.12.1-1")).unwrap(), Some(made));
    assert_eq!(lab.cached(&offer("6.12.2-1")).unwrap(), None);
    assert_eq!(lab.cached(&Origin::Archive(PINNED.into())).unwrap(), None);
    let other = wanted(home.path(), &LAB, "gcc 14");
    assert_eq!(other.cached(&offer("6.12.1-1")).unwrap(), None);
}

#[test]
fn an_edited_folder_is_not_cached() {
    let (home, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("Kconfig"), "a").unwrap();
    let source = Source::parse(&folder.path().display().to_string()).unwrap();
    let wanted = wanted(home.path(), &source, "gcc 12");
    let Origin::Folder(tree) = wanted.origin().unwrap() else { panic!("a folder") };
    let made = publish(&wanted, &tree.identity);
    assert_eq!(wanted.cached(&wanted.origin().unwrap()).unwrap(), Some(made));
    fs::write(folder.path().join("Kconfig"), "ab").unwrap();
    assert_eq!(wanted.cached(&wanted.origin().unwrap()).unwrap(), None);
}

#[test]
fn what_was_built_before_needs_no_archive() {
    let home = tempfile::tempdir().unwrap();
    let offline = || KernelError::from(SourcesError::Keyring("/keyring".into()));
    let lab = wanted(home.path(), &LAB, "gcc 12");
    assert!(lab.instead(offline()).is_err());
    let made = publish(&lab, &format!("{PINNED} 6.12.1-1"));
    assert_eq!(lab.instead(offline()).unwrap(), made);
    for source in [Source::LabCvm, Source::Dir("/src".into())] {
        assert!(wanted(home.path(), &source, "gcc 12").instead(offline()).is_err());
    }
    let error = wanted(home.path(), &LAB, "gcc 14").instead(offline()).unwrap_err();
    assert!(error.to_string().contains("/keyring"), "{error}");
}

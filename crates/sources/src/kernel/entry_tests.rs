use std::fs;

use super::*;
use crate::cache::Staging;

fn entry(id: &str, spec: &str, recipe: Option<&str>) -> Entry {
    let kernel = Kernel {
        spec: spec.into(),
        id: id.into(),
        release: "6.12.117-unspin".into(),
        image: "bzImage".into(),
        config: Some("config".into()),
        modules: None,
        source: "linux-source-6.12 6.12.117-1".into(),
    };
    Entry { kernel, recipe: recipe.map(str::to_owned) }
}

fn publish(home: &Path, entry: &Entry) -> Kernel {
    let staging = Staging::begin(home, &mut || panic!("locked")).unwrap();
    fs::create_dir(staging.entry()).unwrap();
    staging.publish(entry).unwrap().kernel
}

#[test]
fn metadata_survives_and_paths_become_absolute() {
    let home = tempfile::tempdir().unwrap();
    let made = publish(home.path(), &entry("lab-1", "lab", Some("r1")));
    assert_eq!(made.image, home.path().join("lab-1/bzImage"));
    assert_eq!(made.config, Some(home.path().join("lab-1/config")));
    let all: Vec<Entry> = entries(home.path()).unwrap();
    assert_eq!(all, [Entry { kernel: made, recipe: Some("r1".into()) }]);
}

#[test]
fn only_the_same_recipe_answers() {
    let home = tempfile::tempdir().unwrap();
    publish(home.path(), &entry("lab-1", "lab", Some("r1")));
    let find = |spec, recipe| newest(home.path(), spec, recipe).unwrap().map(|kernel| kernel.id);
    assert_eq!(find("lab", Some("r1")), Some("lab-1".into()));
    assert_eq!(find("lab", Some("r2")), None);
    assert_eq!(find("debian-cloud", None), None);
}

#[test]
fn what_is_cached_does_without_its_source() {
    let home = tempfile::tempdir().unwrap();
    let offline = || KernelError::from(crate::SourcesError::Keyring("/keyring".into()));
    let error = instead(None, offline()).unwrap_err().to_string();
    assert!(error.contains("/keyring"), "{error}");
    let made = publish(home.path(), &entry("debian-cloud-7.3.4", "debian-cloud", None));
    let found = newest(home.path(), "debian-cloud", None).unwrap();
    assert_eq!(instead(found, offline()).unwrap(), made);
}

#[test]
fn the_newest_made_comes_first() {
    let home = tempfile::tempdir().unwrap();
    for id in ["lab-b", "lab-a"] {
        publish(home.path(), &entry(id, "lab", Some("r1")));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let found = newest(home.path(), "lab", Some("r1")).unwrap();
    assert_eq!(found.map(|kernel| kernel.id), Some("lab-a".into()));
}

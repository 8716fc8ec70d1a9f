use super::*;

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
    staging.publish(entry).unwrap()
}

#[test]
fn metadata_survives_and_paths_become_absolute() {
    let home = tempfile::tempdir().unwrap();
    let made = publish(home.path(), &entry("lab-1", "lab", Some("r1")));
    assert_eq!(made.image, home.path().join("lab-1/bzImage"));
    assert_eq!(made.config, Some(home.path().join("lab-1/config")));
    let all = entries(home.path()).unwrap();
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
fn the_newest_made_comes_first() {
    let home = tempfile::tempdir().unwrap();
    for id in ["lab-b", "lab-a"] {
        publish(home.path(), &entry(id, "lab", Some("r1")));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let found = newest(home.path(), "lab", Some("r1")).unwrap();
    assert_eq!(found.map(|kernel| kernel.id), Some("lab-a".into()));
}

#[test]
fn interrupted_work_is_no_kernel_and_is_swept() {
    let home = tempfile::tempdir().unwrap();
    let left = home.path().join(".staging-1/entry");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join(METADATA), "{}").unwrap();
    assert_eq!(entries(home.path()).unwrap(), []);
    publish(home.path(), &entry("lab-1", "lab", None));
    assert!(!left.exists());
    assert_eq!(entries(home.path()).unwrap().len(), 1);
}

#[test]
fn unfinished_work_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let staging = Staging::begin(home.path(), &mut || ()).unwrap();
    fs::create_dir(staging.entry()).unwrap();
    drop(staging);
    let names: Vec<_> =
        fs::read_dir(home.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(names, [".lock"]);
}

#[test]
fn two_at_once_wait_for_each_other() {
    let home = tempfile::tempdir().unwrap();
    let first = Staging::begin(home.path(), &mut || ()).unwrap();
    let (told, waits) = std::sync::mpsc::channel();
    let path = home.path().to_owned();
    let second = std::thread::spawn(move || {
        Staging::begin(&path, &mut || told.send(()).unwrap()).map(|staging| staging.work())
    });
    waits.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    assert!(!second.is_finished());
    drop(first);
    second.join().unwrap().unwrap();
}

#[test]
fn damaged_metadata_is_named() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("lab-1")).unwrap();
    fs::write(home.path().join("lab-1").join(METADATA), "{").unwrap();
    let error = entries(home.path()).unwrap_err().to_string();
    assert!(error.contains("lab-1") && error.contains("build or fetch"), "{error}");
}

#[test]
fn an_empty_cache_has_no_kernels() {
    assert_eq!(entries(Path::new("/nonexistent/kernels")).unwrap(), []);
}

use serde::Deserialize;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Thing {
    id: String,
    file: PathBuf,
}

impl Cached for Thing {
    const METADATA: &'static str = "thing.json";

    fn id(&self) -> &str {
        &self.id
    }

    fn locate(&mut self, folder: &Path) {
        self.file = folder.join(&self.file);
    }
}

fn things(home: &Path) -> Result<Vec<Thing>, SourcesError> {
    entries(home)
}

fn publish(home: &Path, id: &str) -> Thing {
    let staging = Staging::begin(home, &mut || panic!("locked")).unwrap();
    fs::create_dir(staging.entry()).unwrap();
    staging.publish(&Thing { id: id.into(), file: "f".into() }).unwrap()
}

#[test]
fn a_published_entry_is_listed_with_absolute_paths() {
    let home = tempfile::tempdir().unwrap();
    let made = publish(home.path(), "lab-1");
    assert_eq!(made.file, home.path().join("lab-1/f"));
    assert_eq!(things(home.path()).unwrap(), [made]);
}

#[test]
fn interrupted_work_is_no_entry_and_is_swept() {
    let home = tempfile::tempdir().unwrap();
    let left = home.path().join(".staging-1/entry");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join(Thing::METADATA), "{}").unwrap();
    assert_eq!(things(home.path()).unwrap(), []);
    publish(home.path(), "lab-1");
    assert!(!left.exists());
    assert_eq!(things(home.path()).unwrap().len(), 1);
}

#[test]
fn unfinished_work_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let staging = Staging::begin(home.path(), &mut || ()).unwrap();
    fs::create_dir(staging.entry()).unwrap();
    drop(staging);
    assert_eq!(names(home.path()), [".lock"]);
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
fn damaged_metadata_is_named_and_hides_no_other_entry() {
    let home = tempfile::tempdir().unwrap();
    let damaged = home.path().join("lab-1");
    fs::create_dir(&damaged).unwrap();
    for text in [b"{".as_slice(), b"", b"\xff", b"{\"id\": \"lab-1\"}"] {
        fs::write(damaged.join(Thing::METADATA), text).unwrap();
        let made = publish(home.path(), "lab-2");
        assert_eq!(things(home.path()).unwrap(), [made]);
        let error = load::<Thing>(&damaged).unwrap_err().to_string();
        assert!(error.contains("lab-1") && error.contains("build or fetch"), "{error}");
    }
    publish(home.path(), "lab-1");
    assert_eq!(things(home.path()).unwrap().len(), 2);
}

#[test]
fn an_entry_replaces_all_of_an_earlier_one() {
    let home = tempfile::tempdir().unwrap();
    publish(home.path(), "lab-1");
    fs::write(home.path().join("lab-1/f"), "earlier").unwrap();
    let made = publish(home.path(), "lab-1");
    assert!(!made.file.exists());
    assert_eq!(names(home.path()), [".lock", "lab-1"]);
}

fn names(home: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(home).unwrap().map(|f| f.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn what_is_in_use_keeps_its_place_until_the_next_one_comes() {
    let home = tempfile::tempdir().unwrap();
    publish(home.path(), "lab-10");
    let first = publish(home.path(), "lab-1");
    fs::write(&first.file, "first").unwrap();
    let in_use = InUse::of::<Thing>(&home.path().join("lab-1")).unwrap();
    assert!(in_use.is_some());
    // Entries are in the order of their times, which may be some milliseconds coarse.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let second = publish(home.path(), "lab-1");
    assert_eq!(second.file, home.path().join("lab-1~1/f"));
    assert_eq!(fs::read_to_string(&first.file).unwrap(), "first");
    assert_eq!(things(home.path()).unwrap()[0], second);
    drop(in_use);
    publish(home.path(), "lab-1");
    assert_eq!(names(home.path()), [".lock", "lab-1", "lab-10"]);
    assert!(!first.file.exists());
}

#[test]
fn what_goes_cannot_be_used() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("lab-1");
    let is_there = || InUse::of::<Thing>(&folder).unwrap().is_some();
    assert!(!is_there());
    publish(home.path(), "lab-1");
    assert!(is_there());
    let goes = lock(File::open(folder.join(Thing::METADATA)), FlockArg::LockExclusive).unwrap();
    assert!(!is_there());
    drop(goes);
    assert!(is_there());
}

#[test]
fn an_absent_cache_has_no_entries() {
    assert_eq!(things(Path::new("/nonexistent/kernels")).unwrap(), []);
}

use super::*;

/// A folder that looks like a hierarchy with these cgroups and sets, and one for the journal.
struct Hierarchy {
    folder: PathBuf,
}

impl Hierarchy {
    fn new(name: &str, groups: &[(&str, &str)]) -> Hierarchy {
        let name = format!("unspin-cpusets-{name}-{}", std::process::id());
        let hierarchy = Hierarchy { folder: std::env::temp_dir().join(name) };
        let _ = fs::remove_dir_all(&hierarchy.folder);
        fs::create_dir_all(hierarchy.root()).unwrap();
        fs::write(hierarchy.root().join("cgroup.controllers"), "cpuset cpu\n").unwrap();
        fs::write(hierarchy.root().join(CONTROL), "cpu\n").unwrap();
        groups.iter().for_each(|(group, set)| hierarchy.add(group, set));
        hierarchy
    }

    fn root(&self) -> PathBuf {
        self.folder.join("cgroup")
    }

    fn add(&self, group: &str, set: &str) {
        fs::create_dir_all(self.root().join(group)).unwrap();
        self.set(group, set);
    }

    fn set(&self, group: &str, set: &str) {
        fs::write(self.root().join(group).join(CPUS), format!("{set}\n")).unwrap();
    }

    fn open(&self) -> Cpusets {
        Cpusets::open(&self.root(), &self.folder).unwrap()
    }

    fn says(&self, group: &str) -> String {
        fs::read_to_string(self.root().join(group).join(CPUS)).unwrap().trim().to_owned()
    }

    fn control(&self) -> String {
        fs::read_to_string(self.root().join(CONTROL)).unwrap()
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_limit_comes_and_goes_with_the_controller() {
    let hierarchy = Hierarchy::new("plain", &[("system.slice", ""), ("user.slice", "")]);
    let mut cpusets = hierarchy.open();
    assert_eq!(hierarchy.control(), "+cpuset");
    cpusets.limit("0-1").unwrap();
    assert_eq!((hierarchy.says("system.slice").as_str(), cpusets.limited()), ("0-1", 2));
    hierarchy.add("job", "");
    cpusets.limit("0-1").unwrap();
    assert_eq!(hierarchy.says("job"), "0-1");
    cpusets.limit("0").unwrap();
    assert_eq!(hierarchy.says("user.slice"), "0");
    cpusets.lift();
    assert_eq!((hierarchy.says("job").as_str(), cpusets.limited()), ("", 0));
    drop(cpusets);
    assert_eq!(hierarchy.control(), "-cpuset");
    assert!(!hierarchy.folder.join("cpuset.json").exists());
}

#[test]
fn what_somebody_else_set_is_left_alone() {
    let hierarchy = Hierarchy::new("foreign", &[("mine", ""), ("theirs", "2-3"), ("later", "")]);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1").unwrap();
    assert_eq!(hierarchy.says("theirs"), "2-3");
    hierarchy.set("later", "1-3");
    cpusets.limit("0").unwrap();
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["later", "theirs"]);
    hierarchy.set("mine", "3");
    cpusets.lift();
    drop(cpusets);
    let says = ["mine", "theirs", "later"].map(|group| hierarchy.says(group));
    assert_eq!(says, ["3", "2-3", "1-3"]);
    assert_eq!(hierarchy.control(), "+cpuset", "sets of others need it");
}

#[test]
fn the_next_process_lifts_what_a_killed_one_left() {
    let hierarchy = Hierarchy::new("killed", &[("a", ""), ("b", "")]);
    let mut killed = hierarchy.open();
    killed.limit("0-2").unwrap();
    killed.limit("0-1").unwrap();
    let taken = Cpusets::open(&hierarchy.root(), &hierarchy.folder).err().expect("it runs");
    assert!(matches!(taken, CpusetError::Taken(_)), "{taken}");
    // What a kill leaves: the file, and no lock.
    let journal = fs::read(hierarchy.folder.join("cpuset.json")).unwrap();
    let control = hierarchy.control();
    drop(killed);
    fs::write(hierarchy.folder.join("cpuset.json"), journal).unwrap();
    fs::write(hierarchy.root().join(CONTROL), control).unwrap();
    hierarchy.set("a", "0-1");
    hierarchy.set("b", "1");
    assert_eq!(restore_after_crash(&hierarchy.folder).unwrap(), 1);
    assert_eq!((hierarchy.says("a").as_str(), hierarchy.says("b").as_str()), ("", "1"));
    assert_eq!(restore_after_crash(&hierarchy.folder).unwrap(), 0);
}

#[test]
fn a_journal_that_was_left_is_held_by_nobody() {
    let hierarchy = Hierarchy::new("held", &[]);
    let folder = hierarchy.root().join("journal");
    let state = || (Journal::is_in(&folder), Journal::is_held(&folder));
    assert_eq!(state(), (false, false));
    let mut journal = Journal::open(&folder).unwrap();
    journal.begin(&hierarchy.root(), true).unwrap();
    assert_eq!(state(), (true, true));
    drop(journal);
    assert_eq!(state(), (true, false));
}

#[test]
fn a_hierarchy_without_the_controller_is_refused() {
    let hierarchy = Hierarchy::new("without", &[]);
    fs::write(hierarchy.root().join("cgroup.controllers"), "cpu memory\n").unwrap();
    let error = Cpusets::open(&hierarchy.root(), &hierarchy.folder).err().expect("refused");
    assert!(matches!(error, CpusetError::NoController(_)), "{error}");
}

#[test]
fn who_may_not_write_needs_root() {
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let journal = CpusetError::Journal(PathBuf::from("/run/unspin"), denied());
    let enable = CpusetError::Enable(PathBuf::from("/sys/fs/cgroup"), denied());
    assert!([journal, enable].iter().all(|error| error.class() == Class::NeedsRoot));
}

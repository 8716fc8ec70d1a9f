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
        self.try_open().unwrap()
    }

    /// Without kernel threads.
    fn try_open(&self) -> Result<Cpusets, CpusetError> {
        Cpusets::open(&self.root(), &self.folder, &self.folder.join("proc"), "0-3")
    }

    fn says(&self, group: &str) -> String {
        fs::read_to_string(self.root().join(group).join(CPUS)).unwrap().trim().to_owned()
    }

    fn set_quota(&self, quota: &str) {
        fs::write(self.root().join("mine/cpu.max"), format!("{quota}\n")).unwrap();
    }

    fn quota(&self) -> String {
        fs::read_to_string(self.root().join("mine/cpu.max")).unwrap().trim().to_owned()
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
    cpusets.limit("0-1", "2-3", false).unwrap();
    assert_eq!((hierarchy.says("system.slice").as_str(), cpusets.limited()), ("0-1", 2));
    hierarchy.add("job", "");
    cpusets.limit("0-1", "2-3", false).unwrap();
    assert_eq!(hierarchy.says("job"), "0-1");
    cpusets.limit("0", "1-3", false).unwrap();
    assert_eq!(hierarchy.says("user.slice"), "0");
    cpusets.lift().unwrap();
    assert_eq!((hierarchy.says("job").as_str(), cpusets.limited()), ("", 0));
    drop(cpusets);
    assert_eq!(hierarchy.control(), "-cpuset");
    assert!(!hierarchy.folder.join("cpuset.json").exists());
}

#[test]
fn what_somebody_else_set_is_left_alone() {
    let hierarchy = Hierarchy::new("foreign", &[("mine", ""), ("theirs", "2-3"), ("later", "")]);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", false).unwrap();
    assert_eq!(hierarchy.says("theirs"), "2-3");
    hierarchy.set("later", "1-3");
    cpusets.limit("0", "1-3", false).unwrap();
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["later", "theirs"]);
    hierarchy.set("mine", "3");
    cpusets.lift().unwrap();
    drop(cpusets);
    let says = ["mine", "theirs", "later"].map(|group| hierarchy.says(group));
    assert_eq!(says, ["3", "2-3", "1-3"]);
    assert_eq!(hierarchy.control(), "+cpuset", "sets of others need it");
}

#[test]
fn a_set_of_somebody_else_that_looks_like_ours_is_left_alone() {
    let groups = [("mine", ""), ("theirs", "0-1"), ("late", "")];
    let hierarchy = Hierarchy::new("alike", &groups);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", false).unwrap();
    hierarchy.add("new", "0-1");
    cpusets.limit("0-1", "2-3", false).unwrap();
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["new", "theirs"]);
    assert_eq!(cpusets.limited(), 2);
    cpusets.lift().unwrap();
    drop(cpusets);
    let says = ["mine", "theirs", "new", "late"].map(|group| hierarchy.says(group));
    assert_eq!(says, ["", "0-1", "0-1", ""]);
}

#[test]
fn all_vcpus_are_no_limit_and_partitions_are_left_alone() {
    let hierarchy = Hierarchy::new("free", &[("all", "0-3"), ("part", ""), ("wide", "0-7")]);
    let kind = hierarchy.root().join("part/cpuset.cpus.partition");
    fs::write(&kind, "root\n").unwrap();
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", false).unwrap();
    let says = ["all", "part", "wide"].map(|group| hierarchy.says(group));
    assert_eq!(says, ["0-1", "", "0-1"]);
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["part"]);
}

#[test]
fn a_controller_that_goes_comes_back() {
    let hierarchy = Hierarchy::new("taken", &[("mine", ""), ("gone", "")]);
    fs::write(hierarchy.root().join(CONTROL), "cpuset cpu\n").unwrap();
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", false).unwrap();
    fs::write(hierarchy.root().join(CONTROL), "cpu\n").unwrap();
    hierarchy.set("mine", "");
    fs::remove_dir_all(hierarchy.root().join("gone")).unwrap();
    cpusets.limit("0-1", "2-3", false).unwrap();
    assert_eq!((hierarchy.control().as_str(), hierarchy.says("mine").as_str()), ("+cpuset", "0-1"));
    assert_eq!(cpusets.limited(), 1);
    drop(cpusets);
    assert_eq!(hierarchy.control(), "-cpuset", "it was enabled here, in the end");
}

#[test]
fn nothing_is_limited_that_is_not_noted() {
    let hierarchy = Hierarchy::new("noted", &[("mine", "")]);
    let mut cpusets = hierarchy.open();
    // A folder in the place of the new journal: no write goes through, even root's.
    let place = hierarchy.folder.join("cpuset.new");
    fs::create_dir(&place).unwrap();
    for _ in 0..2 {
        let error = cpusets.limit("0-1", "2-3", false).expect_err("nothing can be noted");
        assert!(matches!(error, CpusetError::Journal(..)), "{error}");
        assert_eq!(hierarchy.says("mine"), "");
    }
    fs::remove_dir(&place).unwrap();
    cpusets.limit("0-1", "2-3", false).unwrap();
    assert_eq!(hierarchy.says("mine"), "0-1");
}

#[test]
fn a_containers_cgroups_are_refused() {
    let hierarchy = Hierarchy::new("container", &[]);
    fs::write(hierarchy.root().join("cgroup.type"), "domain\n").unwrap();
    let error = hierarchy.try_open().err().expect("refused");
    assert!(matches!(error, CpusetError::Container(_)), "{error}");
}

/// A kernel that throttles tasks in user space.
fn braking(name: &str) -> Hierarchy {
    let hierarchy = Hierarchy::new(name, &[("mine", "")]);
    fs::create_dir(hierarchy.folder.join("proc")).unwrap();
    let symbols = "0000000000000000 t throttle_cfs_rq_work\n";
    fs::write(hierarchy.folder.join("proc/kallsyms"), symbols).unwrap();
    hierarchy.set_quota("max 100000");
    hierarchy
}

#[test]
fn a_brake_is_released_and_needs_a_quota_elsewhere() {
    let hierarchy = braking("brake");
    let mut cpusets = hierarchy.open();
    let key = fs::read_to_string(hierarchy.root().join("unspin.spare/cpu.max")).unwrap();
    assert_eq!(key, "1000 100000");
    hierarchy.set_quota("50000 100000");
    cpusets.limit("0-1", "2-3", true).unwrap();
    assert_eq!(
        (hierarchy.quota().as_str(), hierarchy.says("mine").as_str()),
        ("50000 100000", "0-1")
    );
    // The other one is not named, whatever happens to it.
    assert_eq!(cpusets.limited(), 1);
}

#[test]
fn the_next_process_releases_what_a_killed_one_braked() {
    let hierarchy = braking("braked");
    for (left, then) in [("1000 100000", "70000 100000"), ("20000 100000", "20000 100000")] {
        hierarchy.set_quota("70000 100000");
        let mut killed = hierarchy.open();
        killed.limit("0-1", "2-3", true).unwrap();
        let journal = fs::read(hierarchy.folder.join("cpuset.json")).unwrap();
        drop(killed);
        fs::write(hierarchy.folder.join("cpuset.json"), journal).unwrap();
        hierarchy.set_quota(left);
        restore_after_crash(&hierarchy.folder, Duration::ZERO).unwrap();
        assert_eq!(hierarchy.quota(), then);
    }
}

#[test]
fn an_older_kernel_has_no_brake() {
    let hierarchy = braking("older");
    fs::write(hierarchy.folder.join("proc/kallsyms"), "0 t throttle_cfs_rq\n").unwrap();
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", true).unwrap();
    assert!(!fs::read_to_string(hierarchy.folder.join("cpuset.json")).unwrap().contains("max"));
}

#[test]
fn isolated_vcpus_are_refused() {
    let hierarchy = Hierarchy::new("isolated", &[]);
    assert!(check(&hierarchy.root(), "").is_ok());
    let error = check(&hierarchy.root(), "2-3").expect_err("refused");
    assert!(error.to_string().starts_with("isolcpus= keeps vCPUs 2-3 free"), "{error}");
}

#[test]
fn the_next_process_lifts_what_a_killed_one_left() {
    let hierarchy = Hierarchy::new("killed", &[("a", ""), ("b", "")]);
    let mut killed = hierarchy.open();
    killed.limit("0-2", "3", false).unwrap();
    killed.limit("0-1", "2-3", false).unwrap();
    let taken = hierarchy.try_open().err().expect("it runs");
    assert!(matches!(taken, CpusetError::Taken(_)), "{taken}");
    // What a kill leaves: the file, and no lock.
    let journal = fs::read(hierarchy.folder.join("cpuset.json")).unwrap();
    let control = hierarchy.control();
    drop(killed);
    fs::write(hierarchy.folder.join("cpuset.json"), journal).unwrap();
    fs::write(hierarchy.root().join(CONTROL), control).unwrap();
    hierarchy.set("a", "0-1");
    hierarchy.set("b", "1");
    assert_eq!(restore_after_crash(&hierarchy.folder, Duration::ZERO).unwrap(), 1);
    assert_eq!((hierarchy.says("a").as_str(), hierarchy.says("b").as_str()), ("", "1"));
    assert_eq!(restore_after_crash(&hierarchy.folder, Duration::ZERO).unwrap(), 0);
}

#[test]
fn a_journal_that_was_left_is_held_by_nobody() {
    let hierarchy = Hierarchy::new("held", &[]);
    let folder = hierarchy.root().join("journal");
    let state = || (Journal::is_in(&folder), Journal::is_held(&folder));
    assert_eq!(state(), (false, false));
    let mut journal = Journal::open(&folder, Duration::ZERO).unwrap();
    journal.begin(&hierarchy.root(), "0-3").unwrap();
    assert_eq!(state(), (true, true));
    drop(journal);
    assert_eq!(state(), (true, false));
}

#[test]
fn a_hierarchy_without_the_controller_is_refused() {
    let hierarchy = Hierarchy::new("without", &[]);
    fs::write(hierarchy.root().join("cgroup.controllers"), "cpu memory\n").unwrap();
    let error = hierarchy.try_open().err().expect("refused");
    assert!(matches!(error, CpusetError::NoController(_)), "{error}");
}

#[test]
fn who_may_not_write_needs_root() {
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let journal = CpusetError::Journal(PathBuf::from("/run/unspin"), denied());
    let enable = CpusetError::Enable(PathBuf::from("/sys/fs/cgroup"), denied());
    assert!([journal, enable].iter().all(|error| error.class() == Class::NeedsRoot));
}

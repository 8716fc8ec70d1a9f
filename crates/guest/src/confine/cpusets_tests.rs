use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;
use hierarchy::Hierarchy;

#[path = "cpusets_tests/hierarchy.rs"]
mod hierarchy;

const LIMIT: How = How { brake: false, part: true };
const BRAKED: How = How { brake: true, part: true };
const TRIAL: How = How { brake: false, part: false };

#[test]
fn a_limit_comes_and_goes_with_the_controller() {
    let hierarchy = Hierarchy::new("plain", &[("system.slice", ""), ("user.slice", "")]);
    let mut cpusets = hierarchy.open();
    assert_eq!(hierarchy.control(), "+cpuset");
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!((hierarchy.says("system.slice").as_str(), cpusets.limited()), ("0-1", 2));
    hierarchy.add("job", "");
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!(hierarchy.says("job"), "0-1");
    cpusets.limit("0", "1-3", LIMIT).unwrap();
    assert_eq!(hierarchy.says("user.slice"), "0");
    cpusets.lift(false).unwrap();
    assert_eq!((hierarchy.says("job").as_str(), cpusets.limited()), ("", 0));
    let begin = Instant::now();
    cpusets.guard = Some(Guard::that_waits());
    drop(cpusets);
    assert!(begin.elapsed() < Duration::from_secs(30), "the guard has nothing to lift");
    assert_eq!(hierarchy.control(), "-cpuset");
    assert!(!hierarchy.folder.join("cpuset.json").exists());
}

#[test]
fn a_partition_is_made_only_where_it_is_asked_for() {
    let hierarchy = Hierarchy::new("trial", &[("mine", "")]);
    hierarchy.add(spare::GROUP, "");
    let kind = hierarchy.root().join(spare::GROUP).join("cpuset.cpus.partition");
    fs::write(&kind, "member").unwrap();
    let is_partition = || fs::read_to_string(&kind).unwrap() == "isolated";
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", TRIAL).unwrap();
    assert_eq!((hierarchy.says("mine").as_str(), is_partition()), ("0-1", false));
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert!(is_partition() && hierarchy.says(spare::GROUP) == "2-3");
    cpusets.limit("0-1", "2-3", TRIAL).unwrap();
    assert!(is_partition(), "it was made for these");
    cpusets.limit("0-2", "3", TRIAL).unwrap();
    assert!(!is_partition(), "tasks may use more of them now");
}

#[test]
fn a_refused_partition_is_asked_for_again_after_the_limit() {
    let hierarchy = Hierarchy::new("refused", &[("mine", "")]);
    hierarchy.add(spare::GROUP, "");
    let kind = hierarchy.root().join(spare::GROUP).join("cpuset.cpus.partition");
    fs::create_dir(&kind).unwrap();
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!((hierarchy.says("mine").as_str(), cpusets.reaches_root()), ("0-1", false));
    assert!(cpusets.refused().is_some_and(|why| why.contains("directory")));
    fs::remove_dir(&kind).unwrap();
    fs::write(&kind, "member").unwrap();
    let says = || fs::read_to_string(&kind).unwrap();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!(says(), "member", "asked for again by each window");
    cpusets.lift(false).unwrap();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!((says().as_str(), cpusets.refused()), ("isolated", None));
    assert!(cpusets.reaches_root());
}

#[test]
fn a_set_of_somebody_else_s_stays_though_it_was_written_here_before() {
    let hierarchy = Hierarchy::new("again", &[("mine", "")]);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    cpusets.lift(false).unwrap();
    fs::write(hierarchy.root().join("mine").join(CPUS), "0-1").unwrap();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["mine"]);
    cpusets.lift(false).unwrap();
    drop(cpusets);
    assert_eq!(hierarchy.says("mine"), "0-1");
}

#[test]
fn a_set_of_somebody_else_s_stays_after_a_crash_as_well() {
    let hierarchy = Hierarchy::new("crash", &[("mine", "")]);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    cpusets.lift(false).unwrap();
    hierarchy.set("mine", "0-1");
    let journal = fs::read(hierarchy.folder.join("cpuset.json")).unwrap();
    drop(cpusets);
    // Restore the journal, as if the process had been killed.
    fs::write(hierarchy.folder.join("cpuset.json"), journal).unwrap();
    restore_after_crash(&hierarchy.folder, Duration::ZERO).unwrap();
    assert_eq!(hierarchy.says("mine"), "0-1");
}

#[test]
fn a_journal_that_cannot_be_read_is_not_taken_for_none() {
    let hierarchy = Hierarchy::new("torn", &[("mine", "0-1")]);
    fs::write(hierarchy.folder.join("cpuset.json"), "{\"root\":").unwrap();
    let error = hierarchy.try_open(false).err().expect("refused");
    assert!(matches!(error, CpusetError::Unreadable(..)), "{error}");
    let error = restore_after_crash(&hierarchy.folder, Duration::ZERO).expect_err("refused");
    assert!(matches!(error, CpusetError::Unreadable(..)), "{error}");
    assert!(hierarchy.folder.join("cpuset.json").exists(), "it is still there to be looked at");
}

#[test]
fn what_cannot_be_read_counts_as_limited() {
    let hierarchy = Hierarchy::new("unread", &[("mine", "")]);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    let file = hierarchy.root().join("mine").join(CPUS);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = cpusets.lift(false).expect_err("it may be limited");
    assert!(matches!(error, CpusetError::Lift(..)), "{error}");
    drop(cpusets);
    assert!(hierarchy.folder.join("cpuset.json").exists(), "the journal names it");
}

#[test]
fn nobody_else_may_keep_the_lock_or_change_the_journal() {
    let hierarchy = Hierarchy::new("lock", &[]);
    let lock = hierarchy.folder.join("cpuset.lock");
    fs::write(&lock, "").unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).unwrap();
    let _cpusets = hierarchy.open();
    for file in [lock, hierarchy.folder.join("cpuset.json")] {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
}

#[test]
fn what_somebody_else_set_is_left_alone() {
    let hierarchy = Hierarchy::new("foreign", &[("mine", ""), ("theirs", "2-3"), ("later", "")]);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!(hierarchy.says("theirs"), "2-3");
    hierarchy.set("later", "1-3");
    cpusets.limit("0", "1-3", LIMIT).unwrap();
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["later", "theirs"]);
    hierarchy.set("mine", "3");
    cpusets.lift(false).unwrap();
    drop(cpusets);
    let says = ["mine", "theirs", "later"].map(|group| hierarchy.says(group));
    assert_eq!(says, ["3", "2-3", "1-3"]);
    assert_eq!(hierarchy.control(), "+cpuset", "sets of others need it");
}

#[test]
fn a_set_that_somebody_else_takes_back_is_limited_again() {
    let hierarchy = Hierarchy::new("back", &[("user.slice", "")]);
    let mut cpusets = hierarchy.open();
    hierarchy.set("user.slice", "1-2");
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["user.slice"]);
    hierarchy.set("user.slice", "");
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!((hierarchy.says("user.slice").as_str(), cpusets.left_alone().count()), ("0-1", 0));
}

#[test]
fn a_set_of_somebody_else_that_looks_like_ours_is_left_alone() {
    let groups = [("mine", ""), ("theirs", "0-1"), ("late", "")];
    let hierarchy = Hierarchy::new("alike", &groups);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    hierarchy.add("new", "0-1");
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["new", "theirs"]);
    assert_eq!(cpusets.limited(), 2);
    cpusets.lift(false).unwrap();
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
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    let says = ["all", "part", "wide"].map(|group| hierarchy.says(group));
    assert_eq!(says, ["0-1", "", "0-1"]);
    assert_eq!(cpusets.left_alone().collect::<Vec<_>>(), ["part"]);
}

#[test]
fn a_controller_that_goes_comes_back() {
    let hierarchy = Hierarchy::new("taken", &[("mine", ""), ("gone", "")]);
    fs::write(hierarchy.root().join(CONTROL), "cpuset cpu\n").unwrap();
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    fs::write(hierarchy.root().join(CONTROL), "cpu\n").unwrap();
    hierarchy.set("mine", "");
    fs::remove_dir_all(hierarchy.root().join("gone")).unwrap();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!((hierarchy.control().as_str(), hierarchy.says("mine").as_str()), ("+cpuset", "0-1"));
    assert_eq!(cpusets.limited(), 1);
    drop(cpusets);
    assert_eq!(hierarchy.control(), "-cpuset", "it was enabled here, in the end");
}

#[test]
fn nothing_is_limited_that_is_not_noted() {
    let hierarchy = Hierarchy::new("noted", &[("mine", "")]);
    let mut cpusets = hierarchy.open();
    // A folder in place of the new journal makes every write fail, even root's.
    let place = hierarchy.folder.join("cpuset.new");
    fs::create_dir(&place).unwrap();
    for _ in 0..2 {
        let error = cpusets.limit("0-1", "2-3", LIMIT).expect_err("nothing can be noted");
        assert!(matches!(error, CpusetError::Journal(..)), "{error}");
        assert_eq!(hierarchy.says("mine"), "");
    }
    fs::remove_dir(&place).unwrap();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    assert_eq!(hierarchy.says("mine"), "0-1");
}

#[test]
fn a_containers_cgroups_are_refused() {
    let hierarchy = Hierarchy::new("container", &[]);
    fs::write(hierarchy.root().join("cgroup.type"), "domain\n").unwrap();
    let error = hierarchy.try_open(false).err().expect("refused");
    assert!(matches!(error, CpusetError::Container(_)), "{error}");
}

/// A hierarchy with a cgroup that has no quota.
fn without_quota(name: &str) -> Hierarchy {
    let hierarchy = Hierarchy::new(name, &[("mine", "")]);
    hierarchy.set_quota("max 100000");
    hierarchy
}

#[test]
fn a_brake_is_released_and_needs_a_quota_elsewhere() {
    let hierarchy = without_quota("brake");
    let mut cpusets = hierarchy.open_braking();
    let key = fs::read_to_string(hierarchy.root().join("unspin.spare/cpu.max")).unwrap();
    assert_eq!(key, "1001 100000");
    hierarchy.set_quota("50000 100000");
    cpusets.limit("0-1", "2-3", BRAKED).unwrap();
    assert_eq!(
        (hierarchy.quota().as_str(), hierarchy.says("mine").as_str()),
        ("50000 100000", "0-1")
    );
    // The other cgroup is not named, whatever happens to it.
    assert_eq!(cpusets.limited(), 1);
    hierarchy.set_quota("60000 100000");
    cpusets.lift(true).unwrap();
    assert_eq!((hierarchy.quota().as_str(), hierarchy.says("mine").as_str()), ("60000 100000", ""));
    let journal = fs::read_to_string(hierarchy.folder.join("cpuset.json")).unwrap();
    assert!(journal.contains("60000 100000"), "killed while it lifts: {journal}");
    cpusets.held = true;
    hierarchy.set_quota("1001 100000");
    cpusets.lift(false).unwrap();
    assert_eq!((hierarchy.quota().as_str(), cpusets.held), ("60000 100000", false));
}

#[test]
fn the_next_process_releases_what_a_killed_one_braked() {
    let hierarchy = without_quota("braked");
    for (left, then) in [("1001 100000", "70000 100000"), ("20000 100000", "20000 100000")] {
        hierarchy.set_quota("70000 100000");
        let mut killed = hierarchy.open_braking();
        killed.limit("0-1", "2-3", BRAKED).unwrap();
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
    let hierarchy = without_quota("older");
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", BRAKED).unwrap();
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
    killed.limit("0-2", "3", LIMIT).unwrap();
    killed.limit("0-1", "2-3", LIMIT).unwrap();
    let taken = hierarchy.try_open(false).err().expect("it runs");
    assert!(matches!(taken, CpusetError::Taken(_)), "{taken}");
    // A killed process leaves the file, and no lock.
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
    let error = hierarchy.try_open(false).err().expect("refused");
    assert!(matches!(error, CpusetError::NoController(_)), "{error}");
}

/// This happens, for example, when the system runs out of file descriptors.
#[test]
fn a_controller_that_cannot_be_read_is_not_taken_for_absent() {
    let hierarchy = Hierarchy::new("unread-control", &[("mine", "")]);
    let mut cpusets = hierarchy.open();
    cpusets.limit("0-1", "2-3", LIMIT).unwrap();
    let control = hierarchy.root().join(CONTROL);
    fs::remove_file(&control).unwrap();
    fs::create_dir(&control).unwrap();
    let error = cpusets.limit("0-1", "2-3", LIMIT).unwrap_err().to_string();
    assert!(error.contains(CONTROL) && cpusets.limited() == 1, "{error}");
    cpusets.lift(false).unwrap();
    assert_eq!(hierarchy.says("mine"), "");
}

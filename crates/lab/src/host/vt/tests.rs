//! Tests with a script in place of QEMU. It writes the files of a run and exits.

use std::process::Command;

use unspin_trace::virtual_time::{Event, Kind, Mark};
use unspin_wire::clock::Moment;
use unspin_wire::{CpuLimits, Fairness, Help, HostScheduler, Job, Marked, Prices, TruthMode};

use super::*;

struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    /// Makes a QEMU that copies these files into its run's folder and then runs the shell command
    /// `end`.
    fn new(files: &[(&str, &[u8])], end: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("files")).unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join("files").join(name), bytes).unwrap();
        }
        fs::write(folder.path().join("base.cpio"), b"").unwrap();
        let (text, program) = (folder.path().join("text"), folder.path().join("qemu"));
        let from = folder.path().join("files").display().to_string();
        fs::write(&text, format!("#!/bin/sh\ncp {from}/* .\n{end}\n")).unwrap();
        // A file that this process writes stays open in children that other tests start meanwhile,
        // so it could not be executed.
        let installed = Command::new("install").args(["-m", "755"]).args([text, program]).status();
        assert!(installed.unwrap().success());
        Stage { folder }
    }

    fn run(&self) -> Result<RunOutput, Failure> {
        self.run_host(false)
    }

    fn run_host(&self, twice: bool) -> Result<RunOutput, Failure> {
        let program = self.folder.path().join("qemu");
        let qemu = VtQemu { program, firmware: Vec::new(), behaviour: String::new() };
        let options = VtOptions { qemu, twice, reached: &|_| {} };
        let mut host = VtHost::new(self.folder.path().join("run"), options);
        let initramfs = self.folder.path().join("base.cpio").display().to_string();
        host.boot(&boot(initramfs)).unwrap();
        let job = Job { argv: vec!["true".into()], time_limit_s: 1.0, ..Job::default() };
        host.run(&RunSpec {
            job,
            neighbours: Vec::new(),
            truth: TruthMode::Events,
            injection: None,
        })
    }
}

fn boot(initramfs: String) -> BootSpec {
    let virtual_host = VirtualHost {
        pcpus: 1,
        instructions: 2,
        quantum_ns: 1_000,
        scheduler: HostScheduler::Eevdf,
        fairness: Fairness::PerThread,
        prices: Prices::Free,
        price_percent: 100,
        cpu: CpuLimits::default(),
        cvm: None,
        help: Help::default(),
        seed: 1,
        until_ns: 1_000_000_000,
        neighbours: Vec::new(),
    };
    BootSpec {
        vms: vec![VmSpec { vcpus: 1, initramfs, ..VmSpec::default() }],
        fairness: Fairness::PerThread,
        l1: None,
        virtual_host: Some(Box::new(virtual_host)),
    }
}

/// Returns a record in which one vCPU is on from 0 to 9,000 ns, with a job from 1,000 to 8,000 ns.
fn record(mutate: impl Fn(&mut Vec<Event>)) -> Vec<u8> {
    let event = |t_ns, kind, pcpu| Event { t_ns, kind, pcpu, entity: 0, offset: 0 };
    let mut events = vec![
        event(0, Kind::Wake, None),
        event(0, Kind::On, Some(0)),
        event(1_000, Kind::Mark(Mark::Begin), Some(0)),
        event(2_000, Kind::Exit { reason: 3, price_ns: 70 }, Some(0)),
        event(8_000, Kind::Mark(Mark::End), Some(0)),
        event(9_000, Kind::Idle, Some(0)),
        event(9_500, Kind::End, None),
    ];
    mutate(&mut events);
    let header = [1_u32, 1, 1, 1, 1_000, 0].into_iter().flat_map(u32::to_le_bytes);
    let mut bytes: Vec<u8> = b"UNSPINVT".iter().copied().chain(header).collect();
    events.iter().for_each(|event| bytes.extend(event.to_bytes()));
    bytes
}

fn line(id: u64, body: Reply) -> String {
    serde_json::to_string(&Envelope { id, body }).unwrap() + "\n"
}

fn hello() -> String {
    hello_of(PROTOCOL, 1)
}

fn hello_of(protocol: u32, vcpus: u32) -> String {
    let spinlock = "native qspinlock".into();
    line(0, Reply::Hello(Hello { protocol, vcpus, spinlock, ..Hello::default() }))
}

fn ran() -> String {
    let mark = |virtual_ns| Marked {
        virtual_ns,
        before: Moment { mono_ns: virtual_ns + 500, tsc: virtual_ns - 20, error_ns: 4 },
        after_ns: virtual_ns + 540,
    };
    let marks = vec![mark(1_000), mark(8_000)];
    line(1, Reply::Ran(JobResult { exit_code: Some(0), marks, ..JobResult::default() }))
}

#[test]
fn a_qemu_of_ones_own_is_found_from_the_folder_of_a_run() {
    let here = std::env::current_dir().unwrap();
    let qemu = own_qemu(Path::new("Cargo.toml"), OsStr::new("src:")).unwrap();
    assert_eq!((qemu.program, qemu.firmware), (here.join("Cargo.toml"), vec![here.join("src")]));
    assert!(own_qemu(Path::new("none"), OsStr::new("")).is_err());
}

#[test]
fn a_run_gives_result_truth_and_counters() {
    let results = hello() + &ran();
    let stage =
        Stage::new(&[(RESULTS_FILE, results.as_bytes()), (RECORD_FILE, &record(|_| {}))], "exit 0");
    let output = stage.run().unwrap();
    assert_eq!(output.job.unwrap().exit_code, Some(0));
    let booted = output.booted.unwrap();
    assert_eq!((booted.hellos[0].vcpus, booted.boot_s), (1, 1e-6));
    let truth = output.truth.unwrap();
    assert_eq!((truth.method.as_str(), truth.on_s, truth.off_s), ("virtual time", 7e-6, 0.0));
    let recording = output.recording.unwrap();
    // The time stamp counter was read 20 ns before the mark, when the clock was 500 ns ahead of the
    // mark.
    assert_eq!((recording.start_ns, recording.end_ns), (1_520, 8_520));
    assert_eq!(recording.alignment_error_ns, 4);
    assert_eq!((output.kvm["exit:cpuid"], output.kvm["exit-ns:cpuid"]), (1, 70));
}

#[test]
fn a_job_that_outlasts_virtual_time_did_not_finish() {
    let stage =
        Stage::new(&[(RESULTS_FILE, hello().as_bytes()), (RECORD_FILE, &record(|_| {}))], "exit 3");
    assert!(stage.run().unwrap().job.is_none());
}

#[test]
fn a_run_that_ends_before_its_job_begins_is_a_failure() {
    let no_mark = record(|events| events.retain(|event| !matches!(event.kind, Kind::Mark(_))));
    let stage =
        Stage::new(&[(RESULTS_FILE, hello().as_bytes()), (RECORD_FILE, &no_mark)], "exit 3");
    let failure = stage.run().unwrap_err();
    assert_eq!(failure.kind, FailureKind::GuestHang);
    assert!(failure.detail.contains("the job did not begin"), "{failure}");
}

#[test]
fn a_guest_of_another_protocol_or_without_all_vcpus_gives_no_result() {
    let record = record(|_| {});
    for (hello, said) in [
        (hello_of(PROTOCOL, 0), "brought up 0 of 1 vCPUs"),
        (hello_of(PROTOCOL + 1, 1), "speaks protocol"),
    ] {
        // The guest sends a result, or virtual time ends first.
        for (results, end) in [(hello.clone() + &ran(), "exit 0"), (hello, "exit 3")] {
            let files = [(RESULTS_FILE, results.as_bytes()), (RECORD_FILE, record.as_slice())];
            let failure = Stage::new(&files, end).run().unwrap_err();
            assert_eq!(failure.kind, FailureKind::BootTimeout, "{end}");
            assert!(failure.detail.contains(said), "{failure}");
        }
    }
}

#[test]
fn each_end_without_a_result_has_its_kind() {
    let panic = b"[ 1.0] Kernel panic - not syncing: no init\n".as_slice();
    let cut = &hello().into_bytes()[..20];
    type Files<'a> = &'a [(&'a str, &'a [u8])];
    let result = ran();
    let cases: [(Files, &str, FailureKind); 8] = [
        (&[], "exit 3", FailureKind::BootTimeout),
        (&[("console.log", panic)], "exit 0", FailureKind::GuestPanic),
        (&[(RESULTS_FILE, cut)], "exit 0", FailureKind::NoResult),
        (&[(RESULTS_FILE, b"nonsense\n")], "exit 0", FailureKind::BadReply),
        (&[(RESULTS_FILE, b"\xff\n")], "exit 0", FailureKind::BadReply),
        (&[(RESULTS_FILE, result.as_bytes())], "exit 0", FailureKind::BadReply),
        (&[], "echo no such device >&2; exit 1", FailureKind::QemuDied),
        (&[], "kill -9 $$", FailureKind::QemuDied),
    ];
    for (files, end, kind) in cases {
        let failure = Stage::new(files, end).run().unwrap_err();
        assert_eq!(failure.kind, kind, "{end}: {failure}");
    }
}

#[test]
fn a_broken_invariant_is_a_failed_run_with_its_place() {
    let results = hello() + &ran();
    let late = record(|events| events.insert(6, Event { t_ns: 9_100, ..events[5] }));
    let stage = Stage::new(&[(RESULTS_FILE, results.as_bytes()), (RECORD_FILE, &late)], "exit 0");
    let failure = stage.run().unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvariantBroken);
    assert!(
        failure.detail.contains("`states`") && failure.detail.contains("byte 128"),
        "{failure}"
    );
}

#[test]
fn a_qemu_that_is_killed_after_its_guests_reply_broke_no_invariant() {
    let (results, record) = (hello() + &ran(), record(|_| {}));
    let cut = &record[..record.len() - 16];
    let kind = |end: &str| {
        let files = [(RESULTS_FILE, results.as_bytes()), (RECORD_FILE, cut)];
        Stage::new(&files, end).run().unwrap_err().kind
    };
    assert_eq!(kind("kill -9 $$"), FailureKind::QemuDied);
    assert_eq!(kind("exit 0"), FailureKind::InvariantBroken);
}

#[test]
fn a_broken_invariant_explains_why_a_guest_did_not_answer() {
    let late = record(|events| events.insert(6, Event { t_ns: 9_100, ..events[5] }));
    let kind = |bytes: &[u8]| Stage::new(&[(RECORD_FILE, bytes)], "exit 3").run().unwrap_err().kind;
    assert_eq!(kind(&late), FailureKind::InvariantBroken);
    // A sound record does not explain the missing answer, and neither does a truncated record.
    assert_eq!(kind(&record(|_| {})), FailureKind::BootTimeout);
    assert_eq!(kind(&late[..late.len() - 7]), FailureKind::BootTimeout);
}

#[test]
fn an_initramfs_that_cannot_be_written_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let boot = boot("/no/such/base".into());
    let run = RunSpec {
        job: Job::default(),
        neighbours: Vec::new(),
        truth: TruthMode::Off,
        injection: None,
    };
    let failure = prepare(&boot.vms[0], &run, folder.path()).unwrap_err();
    assert!(failure.detail.contains("No such file"), "{failure}");
}

#[test]
fn a_second_vm_is_refused() {
    let mut boot = boot(String::new());
    boot.vms.push(VmSpec::default());
    assert!(subject(&boot).unwrap_err().detail.contains("a neighbour is a model"));
}

#[test]
fn runs_that_differ_fail_with_their_place() {
    let results = hello() + &ran();
    let record = record(|_| {});
    let files = [(RESULTS_FILE, results.as_bytes()), (RECORD_FILE, record.as_slice())];
    let output = Stage::new(&files, "exit 0").run_host(true).unwrap();
    assert_eq!(output.digest.map(|digest| digest.len()), Some(64));
    let second_differs = "case $PWD in *second) printf x >> results.jsonl; esac";
    let failure = Stage::new(&files, second_differs).run_host(true).unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvariantBroken);
    let place = format!("results.jsonl differs at byte {}", results.len());
    assert!(failure.detail.contains(&place), "{failure}");
}

#[test]
fn the_virtual_time_that_a_record_has_reached_is_read_from_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(RECORD_FILE);
    assert_eq!(last_event_ns(&path), None);
    let record = record(|_| {});
    fs::write(&path, &record[..record.len() - 5]).unwrap();
    assert_eq!(last_event_ns(&path), Some(9_000), "the end event is not whole yet");
}

#[test]
fn a_run_beyond_its_limit_shows_nothing_about_the_guest() {
    let folder = tempfile::tempdir().unwrap();
    let mut slow = Command::new("sleep").arg("600").spawn().unwrap();
    let failure = wait(&mut slow, Duration::ZERO, folder.path(), &|_| {}).unwrap_err();
    assert_eq!(failure.kind, FailureKind::TooSlow);
}

#[test]
fn a_record_that_grows_no_more_is_noticed_after_its_limit() {
    let mut growth = Growth::default();
    assert!(!growth.has_ended(0, STANDSTILL));
    assert!(!growth.has_ended(32, STANDSTILL + SHOW_AGAIN), "it grew late");
    assert!(!growth.has_ended(32, STANDSTILL * 2));
    assert!(growth.has_ended(32, STANDSTILL * 2 + SHOW_AGAIN * 2));
}

#[test]
fn guest_and_record_number_the_marks_alike() {
    use unspin_wire::Mark as Passed;
    let marks =
        [(Passed::Begin, Mark::Begin), (Passed::End, Mark::End), (Passed::Done, Mark::Done)];
    for (passed, read) in marks {
        assert_eq!(passed as u32, read.code(), "{read:?}");
    }
}

#[test]
fn replies_that_cannot_be_read_are_not_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Replies::read(folder.path()).is_ok_and(|replies| replies.hello.is_none()));
    // Root can read every file, so a folder takes the place of an unreadable file.
    fs::create_dir(folder.path().join(RESULTS_FILE)).unwrap();
    let failure = Replies::read(folder.path()).err().unwrap();
    assert_eq!(failure.kind, FailureKind::Unavailable);
    assert!(failure.detail.contains(RESULTS_FILE), "{failure}");
}

#[test]
fn replies_beyond_the_limit_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::File::create(folder.path().join(RESULTS_FILE)).unwrap();
    file.set_len(REPLIES_LIMIT + 1).unwrap();
    let failure = Replies::read(folder.path()).err().unwrap();
    assert_eq!(failure.kind, FailureKind::BadReply);
}

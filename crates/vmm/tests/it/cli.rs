//! The command line, and errors of the program.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use unspin_vmm::access::Policy;
use unspin_vmm::cli::parse;
use unspin_vmm::config::{Disk, Net, Source};
use unspin_vmm::ghcb::Way;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unspin-vmm");

fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn options_become_a_configuration() {
    let words = "unspin-vmm --kernel k --append a --vcpus 3 --memory 64 --disk a,b --disk c,ro \
                 --net queues=2,tap=t --net tap=123456789012345,mac=0a:B1:02:03:04:05 \
                 --console o --no-seccomp --no-ioeventfd \
                 --page-access pregrant=0x1000-0x3000 --revoke-per-s 9 --stats s";
    let config = parse(words.split_whitespace()).unwrap();
    let kernel = Path::new("k").to_owned();
    assert_eq!(config.source, Source::Linux { kernel, initramfs: None, append: "a".into() });
    assert_eq!((config.vcpus, config.memory_bytes), (3, 64 << 20));
    assert_eq!((config.seccomp, config.ioeventfd), (false, false));
    let disk = |path: &str, read_only| Disk { path: path.into(), read_only };
    assert_eq!(config.disks, [disk("a,b", false), disk("c", true)]);
    let net = |tap: &str, queue_pairs, mac| Net { tap: tap.into(), queue_pairs, mac };
    assert_eq!((config.access, config.revoke_per_s), (Policy::Pregrant(Some(0x1000..0x3000)), 9));
    assert_eq!(config.stats, Some("s".into()));
    let other = net("123456789012345", 1, Some([0xa, 0xb1, 2, 3, 4, 5]));
    assert_eq!(config.nets, [net("t", 2, None), other]);
}

#[test]
fn the_ghcb_is_the_kernels_by_default() {
    let way = |more: &str| {
        let words = format!("unspin-vmm --igvm f --emulated-sev-es {more}");
        parse(words.split_whitespace()).unwrap().ghcb
    };
    assert_eq!(way(""), Way::Kernel);
    assert_eq!(way("--ghcb mapped --stats s"), Way::Mapped);
    assert_eq!(way("--ghcb calls"), Way::Calls);
}

#[test]
fn wrong_command_lines_have_status_2() {
    for line in [
        "",
        "--igvm f --kernel k",
        "--igvm f --append a",
        "--kernel k --emulated-sev-es",
        "--kernel k --vcpus 0",
        "--kernel k --vcpus 255",
        "--kernel k --net queues=2",
        "--kernel k --net tap=t,queues=9",
        "--kernel k --net tap=1234567890123456",
        "--kernel k --net tap=t,mac=02:00:00:00:00",
        "--kernel k --net tap=t,mac=03:00:00:00:00:00",
        "--kernel k --net tap=t,mac=02:00:00:00:00:+1",
        "--kernel k --disk ,ro",
        "--kernel k --memory 0",
        "--kernel k --page-access some",
        "--kernel k --page-access pregrant=0x2000-0x1000",
        "--kernel k --page-access cache=0x1000-0x2000",
        "--kernel k --revoke-per-s 1",
        "--kernel k --stats s --page-access off",
        "--igvm f --ghcb mapped",
        "--igvm f --emulated-sev-es --ghcb some",
        "--igvm f --emulated-sev-es --ghcb kernel --stats s",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(run(&words).0, Some(2), "{line}");
    }
}

#[test]
fn more_devices_than_the_bus_has_are_wrong_usage() {
    let disks = ["--disk", "/nowhere"].repeat(31);
    let words = [&["--kernel", "/nowhere", "--console", "/nowhere"][..], &disks].concat();
    let (status, text) = run(&words);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("32 devices are too many"), "{text}");
    assert!(text.contains("room for 31"), "{text}");
    // The message cannot be written.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(PROGRAM).args(&words).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn examples_of_the_help_are_command_lines() {
    let (status, help) = run(&["--help"]);
    assert_eq!(status, Some(0));
    let lines = help.lines().filter_map(|line| line.strip_prefix("  unspin-vmm"));
    let mut count = 0;
    for line in lines {
        let line = line.replace("'console=ttyS0 root=/dev/vda'", "x");
        parse(format!("unspin-vmm{line}").split_whitespace()).unwrap();
        count += 1;
    }
    assert_eq!(count, 3);
}

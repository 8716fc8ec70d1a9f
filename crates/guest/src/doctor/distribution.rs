//! Explains how to get a kernel with sched_ext on each distribution.
//!
//! Only facts that could be checked are stated as known:
//! - Debian: its cloud kernels of 6.12 lack sched_ext and those from 6.18 on, of trixie-backports,
//!   have it (their configurations, and guests of the lab that boot them);
//! - Ubuntu: stock kernels of 25.04 and later (sched-ext/scx, INSTALL.md and change 2756);
//! - Fedora: enabled in its kernels (kernel-ark, merge request 3397), so from 6.12 on;
//! - RHEL 10: "Considerations in adopting RHEL 10", chapter on the kernel; what is built from
//!   it follows (kernel-ark, merge request 3447);
//! - Amazon Linux 2023: kernel6.12 is installed beside the default kernel, and grubby makes it the
//!   default (its user guide, "Updating the Linux kernel");
//! - openSUSE Tumbleweed and Arch package the schedulers (sched-ext/scx, INSTALL.md).
//!
//! For all others, the advice is a command that checks the installed kernels.

use std::collections::BTreeMap;

use unspin_model::diagnosis::{Hypervisor, KernelAdvice, State};

use super::help;
use crate::machine::{Facts, hypervisor};

/// The command that checks the installed kernels.
const CHECK: &str = "grep -s SCHED_CLASS_EXT=y /boot/config-* /lib/modules/*/config || zgrep SCHED_CLASS_EXT /proc/config.gz";
const REBOOT: &str = "sudo reboot";

/// Distributions with the same tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Debian,
    Ubuntu,
    Fedora,
    RedHat,
    Amazon,
    Tumbleweed,
    Suse,
    Arch,
    Other,
}

impl Family {
    /// Returns the family of ID or, if that is unknown, the first known family in ID_LIKE, which
    /// lists the nearest first.
    pub(super) fn of(os_release: &BTreeMap<String, String>) -> Family {
        let value = |key: &str| os_release.get(key).map_or("", String::as_str);
        let names = value("ID").split(' ').chain(value("ID_LIKE").split(' '));
        names.map(Family::named).find(|family| *family != Family::Other).unwrap_or(Family::Other)
    }

    fn named(id: &str) -> Family {
        match id {
            "debian" => Family::Debian,
            "ubuntu" => Family::Ubuntu,
            "fedora" => Family::Fedora,
            "rhel" | "centos" | "rocky" | "almalinux" | "ol" => Family::RedHat,
            "amzn" => Family::Amazon,
            "opensuse-tumbleweed" => Family::Tumbleweed,
            "suse" | "opensuse" | "sles" | "sled" | "opensuse-leap" => Family::Suse,
            "arch" => Family::Arch,
            _ => Family::Other,
        }
    }

    /// Returns the command that installs the packages for the lab.
    pub(super) fn lab_packages(self) -> &'static str {
        match self {
            Family::Debian | Family::Ubuntu => "sudo apt install qemu-system-x86 busybox-static",
            _ => "the lab is made for Debian and Ubuntu",
        }
    }
}

/// Returns the advice for this machine, whose kernel lacks sched_ext.
pub(super) fn advice(facts: &Facts) -> KernelAdvice {
    let value = |key: &str| facts.os_release.get(key).map_or("", String::as_str);
    let (known, commands) = match Family::of(&facts.os_release) {
        Family::Debian => debian(value("VERSION_ID"), value("VERSION_CODENAME"), &facts.kernel),
        Family::Ubuntu => ubuntu(value("ID"), value("VERSION_ID")),
        Family::Fedora => (
            "Fedora's kernels have sched_ext from 6.12 on.",
            vec!["sudo dnf upgrade --refresh kernel", REBOOT],
        ),
        Family::RedHat => red_hat(value("ID"), value("VERSION_ID")),
        Family::Amazon => amazon(value("VERSION_ID")),
        Family::Tumbleweed => (
            "Tumbleweed packages sched_ext schedulers, for its kernels from 6.12 on.",
            vec!["sudo zypper dup", REBOOT],
        ),
        Family::Suse => (
            "Whether this release's kernel has it was not checked; openSUSE \
             Tumbleweed packages sched_ext schedulers.",
            vec!["sudo zypper update", CHECK],
        ),
        Family::Arch => (
            "Arch packages sched_ext schedulers, for its kernels from 6.12 on.",
            vec!["sudo pacman -Syu", REBOOT],
        ),
        Family::Other => (
            "It is in Linux 6.12 and newer where the distribution turns it on. Check the \
             kernels that are installed:",
            vec![CHECK],
        ),
    };
    let name = value("PRETTY_NAME");
    KernelAdvice {
        distribution: if name.is_empty() { "this distribution".into() } else { name.into() },
        known: known.into(),
        commands: commands.into_iter().map(str::to_owned).collect(),
        without: without(facts),
    }
}

type Advice = (&'static str, Vec<&'static str>);

/// Returns the advice that works on any kernel.
fn without(facts: &Facts) -> Vec<String> {
    let mut ways = vec![
        "`unspin watch` and `record` work without it, and say whether vCPUs waste time at all."
            .to_owned(),
    ];
    ways.extend(fewer(facts.cpus).map(|vcpus| {
        format!(
            "Use fewer vCPUs for work that contends for locks: `taskset -c {vcpus} CMD`, or \
             AllowedCPUs= in a unit; compare with `unspin watch`."
        )
    }));
    let below = help::all(facts).iter().any(|help| help.state == State::Absent);
    ways.extend((hypervisor(facts) != Hypervisor::None).then(|| {
        let help = if below { "KVM's help that is listed as `no` below, or for " } else { "" };
        format!("Ask who runs the host for {help}as many pCPUs as the guest has busy vCPUs.")
    }));
    ways
}

/// Returns half of the vCPUs in taskset's notation; `None` for a single one.
fn fewer(vcpus: u32) -> Option<String> {
    match vcpus / 2 {
        0 => None,
        1 => Some("0".to_owned()),
        2 => Some("0,1".to_owned()),
        half => Some(format!("0-{}", half - 1)),
    }
}

fn debian(version: &str, codename: &str, kernel: &str) -> Advice {
    // The backports come from the mirror that this machine uses.
    const BACKPORTS: &str = "echo \"deb $(apt-get indextargets --format '$(SITE)' 'Codename: trixie' \
                             | head -n 1) trixie-backports main\" | \
                             sudo tee /etc/apt/sources.list.d/trixie-backports.list";
    const CLOUD: &str = "sudo apt install -t trixie-backports linux-image-cloud-amd64";
    const OTHER: &str = "sudo apt install -t trixie-backports linux-image-amd64";
    // The other flavour shares most of the configuration, but was not checked.
    let install = if kernel.contains("cloud") { vec![CLOUD] } else { vec![OTHER, CHECK] };
    let backports = [vec![BACKPORTS, "sudo apt update"], install, vec![REBOOT]].concat();
    match version.parse::<u32>() {
        Ok(release) if release < 13 => (
            "No kernel of this release or its backports has sched_ext. Upgrade to Debian 13 \
             first (https://www.debian.org/releases/trixie/release-notes/), then:",
            backports,
        ),
        Ok(13) => (
            "Debian 13's own kernel (6.12) has no sched_ext; the cloud kernels of \
             trixie-backports (6.18 and newer) have it.",
            backports,
        ),
        _ if codename == "trixie" => debian("13", "", kernel),
        _ => (
            "Debian's cloud kernels have it from 6.18 on.",
            vec!["sudo apt update", "sudo apt upgrade", CHECK, REBOOT],
        ),
    }
}

/// `id` differs from `ubuntu` if the distribution is derived from Ubuntu.
fn ubuntu(id: &str, version: &str) -> Advice {
    let release = version
        .split_once('.')
        .and_then(|(year, month)| Some((year.parse::<u32>().ok()?, month.parse::<u32>().ok()?)));
    match release.filter(|_| id == "ubuntu") {
        Some(release) if release >= (25, 4) => (
            "Ubuntu's own kernels have sched_ext from 25.04 on; this one is older, or of another \
             flavour.",
            vec!["sudo apt update", "sudo apt install linux-generic", REBOOT],
        ),
        Some((24, 4)) => (
            "Ubuntu's own kernels have sched_ext from 25.04 on. The hardware enablement kernel \
             of 24.04 is a later release's; whether it has it was not checked, so look before \
             you boot it.",
            vec!["sudo apt update", "sudo apt install linux-generic-hwe-24.04", CHECK, REBOOT],
        ),
        _ if id == "ubuntu" => (
            "Ubuntu's own kernels have sched_ext from 25.04 on. Upgrade the release:",
            vec!["sudo do-release-upgrade"],
        ),
        _ => (
            "Ubuntu's own kernels have sched_ext from 25.04 on, so it takes a release of this \
             distribution that is built on that. This looks at what is installed:",
            vec![CHECK],
        ),
    }
}

fn red_hat(id: &str, version: &str) -> Advice {
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    match (id, major) {
        ("ol", 10..) => (
            "Oracle's UEK was not checked; the kernel that is built from RHEL 10's has it.",
            vec!["sudo dnf upgrade kernel", CHECK],
        ),
        (_, 10..) => (
            "RHEL 10's kernel has sched_ext, and so has what is built from it. Red Hat gives no \
             support for schedulers that are loaded.",
            vec!["sudo dnf upgrade kernel", REBOOT],
        ),
        _ => (
            "RHEL 10's kernel is the first with sched_ext. Upgrade the release; this looks at \
             what is installed:",
            vec![CHECK],
        ),
    }
}

fn amazon(version: &str) -> Advice {
    const DEFAULT: &str = "sudo grubby --set-default \"$(ls -v /boot/vmlinuz-6.12.* | tail -n 1)\"";
    match version {
        "2" => {
            ("Amazon Linux 2 has no kernel of 6.12 or newer: move to Amazon Linux 2023.", vec![])
        }
        _ => (
            "Amazon Linux 2023 offers kernel 6.12; whether it has sched_ext was not checked, so \
             look before you boot it.",
            vec!["sudo dnf install kernel6.12", CHECK, DEFAULT, REBOOT],
        ),
    }
}

//! The command line.

use std::ops::Range;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::access::Policy;
use crate::config::{Config, Disk, Net, QUEUE_PAIRS_MAX, Source, VCPUS_MAX};
use crate::ghcb::Way;
use crate::virtio::tap::NAME_BYTES_MAX;

/// The text at the end of `--help`.
const ENDS: &str = "\
Examples:
  unspin-vmm --kernel vmlinuz --initramfs initrd.img --append console=ttyS0 --vcpus 2
      Linux on two vCPUs, with its console here
  unspin-vmm --kernel vmlinuz --append 'console=ttyS0 root=/dev/vda' --disk root.img
      the same with a disk
  unspin-vmm --igvm guest.igvm --vcpus 4 --memory 1024 --net tap=tap0,queues=2
      an IGVM file for the platform native, with a network interface

Exit status:
  0      the guest powered off
  1      failed; the message says what failed
  2      wrong usage
  3      the guest reset its machine: a reboot, or a panic with panic=-1
  4      a vCPU cannot go on, such as after a triple fault
  77     not possible on this machine; the message says what is missing and how to get it
  130    interrupted, by SIGINT, SIGTERM, SIGHUP or Ctrl-A x";

/// Run a VM on KVM from a Linux kernel or a native IGVM file, without firmware
///
/// The guest's serial port is standard input and output. On a terminal, Ctrl-A x ends the VM, and
/// Ctrl-A Ctrl-A is the guest's Ctrl-A. Devices are virtio's, on a PCI bus.
#[derive(Debug, Parser)]
#[command(name = "unspin-vmm", version, after_long_help = ENDS)]
pub struct Args {
    /// The kernel, a bzImage
    #[arg(long, value_name = "FILE", required_unless_present = "igvm")]
    kernel: Option<PathBuf>,
    /// The initramfs
    #[arg(long, value_name = "FILE", conflicts_with = "igvm")]
    initramfs: Option<PathBuf>,
    /// The kernel's command line
    #[arg(long, value_name = "TEXT", conflicts_with = "igvm")]
    append: Option<String>,
    /// An IGVM file for the platform native; --vcpus and --memory must be what it was built with
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    igvm: Option<PathBuf>,
    /// Number of vCPUs
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=i64::from(VCPUS_MAX)))]
    vcpus: u8,
    /// Memory of the guest, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    memory: u32,
    /// A raw disk image; the guest cannot write to it if `,ro` follows. Repeatable
    #[arg(long, value_name = "PATH[,ro]", value_parser = disk)]
    disk: Vec<Disk>,
    /// A network interface on a tap interface of the host, with 1 to 8 pairs of queues and the
    /// guest's hardware address, which follows from NAME by default. Repeatable
    #[arg(long, value_name = "tap=NAME[,queues=N][,mac=MAC]", value_parser = net)]
    net: Vec<Net>,
    /// A virtio console, whose output goes to that file
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
    /// How long devices may touch a page that the guest named: `off`, all of its memory at any
    /// time; `request`, a call for each descriptor, and one after it; `cache`, until the page is
    /// revoked; `batch`, the same with a call for the adjoining pages of a chain; `pregrant`, the
    /// same after a grant of all memory, or of guest-physical addresses, at the start
    #[arg(long, value_name = "POLICY[=START-END]", default_value = "off", value_parser = policy)]
    page_access: Policy,
    /// Pages that are revoked each second, as by a guest that takes them back; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    revoke_per_s: u32,
    /// The file that gets counters of page access and of GHCBs when the VM ends, a line of JSON
    /// each
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// The IGVM file is for sev-es, built with --cbit 47: on the lab's KVM (kernel/es-emu), which
    /// emulates the protocol of SEV-ES without its confidentiality
    #[arg(long, conflicts_with = "kernel")]
    emulated_sev_es: bool,
    /// Who reads the GHCB when a guest of --emulated-sev-es asks a device of this program
    #[arg(long, value_name = "WAY", default_value = "kernel", requires = "emulated_sev_es")]
    ghcb: Way,
    /// Answer each notification of a queue here, by an exit, as on a hypervisor that cannot raise
    /// an eventfd. By default KVM raises one
    #[arg(long)]
    no_ioeventfd: bool,
    /// Do not confine the threads by seccomp
    #[arg(long)]
    no_seccomp: bool,
}

/// Parses a command line into a configuration, or returns clap's error.
pub fn parse<I>(words: I) -> Result<Config, clap::Error>
where
    I: IntoIterator,
    I::Item: Into<std::ffi::OsString> + Clone,
{
    let matches = Args::command().try_get_matches_from(words)?;
    let args = Args::from_arg_matches(&matches)?;
    let linux = |kernel| Source::Linux {
        kernel,
        initramfs: args.initramfs.clone(),
        append: args.append.clone().unwrap_or_default(),
    };
    // clap requires exactly one of the two.
    let source = args.igvm.map(Source::Igvm).or(args.kernel.map(linux));
    let conflict = |what| Err(Args::command().error(ErrorKind::ArgumentConflict, what));
    if args.page_access == Policy::Off && args.revoke_per_s > 0 {
        return conflict("--revoke-per-s needs a --page-access other than off");
    }
    if args.page_access == Policy::Off && args.ghcb == Way::Kernel && args.stats.is_some() {
        return conflict("--stats needs a --page-access other than off, or --ghcb mapped or calls");
    }
    let missing = || Args::command().error(ErrorKind::MissingRequiredArgument, "");
    Ok(Config {
        source: source.ok_or_else(missing)?,
        vcpus: args.vcpus,
        memory_bytes: u64::from(args.memory) << 20,
        disks: args.disk,
        nets: args.net,
        console: args.console,
        access: args.page_access,
        revoke_per_s: args.revoke_per_s,
        stats: args.stats,
        es_emu: args.emulated_sev_es,
        ghcb: args.ghcb,
        ioeventfd: !args.no_ioeventfd,
        seccomp: !args.no_seccomp,
    })
}

fn policy(text: &str) -> Result<Policy, String> {
    match text.split_once('=') {
        None if text == "pregrant" => Ok(Policy::Pregrant(None)),
        Some(("pregrant", range)) => {
            let wrong = "START-END are addresses, such as 0x1000000-0x5000000";
            range_of(range).map(|range| Policy::Pregrant(Some(range))).ok_or(wrong.into())
        }
        _ => {
            let known = [Policy::Off, Policy::Request, Policy::Cache, Policy::Batch];
            let found = known.into_iter().find(|known| known.name() == text);
            found.ok_or("a policy is off, request, cache, batch or pregrant".into())
        }
    }
}

/// Parses two hexadecimal addresses, the smaller one first.
fn range_of(text: &str) -> Option<Range<u64>> {
    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (start, end) = text.split_once('-')?;
    let range = address(start)?..address(end)?;
    (!range.is_empty()).then_some(range)
}

fn disk(text: &str) -> Result<Disk, String> {
    let (path, read_only) = match text.strip_suffix(",ro") {
        Some(path) => (path, true),
        None => (text, false),
    };
    if path.is_empty() {
        Err("a path is missing".into())
    } else {
        Ok(Disk { path: path.into(), read_only })
    }
}

fn net(text: &str) -> Result<Net, String> {
    let mut net = Net { tap: String::new(), queue_pairs: 1, mac: None };
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("tap", name)) => net.tap = name.into(),
            Some(("queues", count)) => {
                let count =
                    count.parse().ok().filter(|count| (1..=QUEUE_PAIRS_MAX).contains(count));
                let wrong = || format!("queues is a number from 1 to {QUEUE_PAIRS_MAX}");
                net.queue_pairs = count.ok_or_else(wrong)?;
            }
            Some(("mac", text)) => {
                let wrong = "mac is an address of one host, such as 02:00:00:00:00:01";
                net.mac = Some(mac(text).ok_or(wrong)?);
            }
            _ => return Err(format!("{part:?} is none of tap=NAME, queues=N and mac=MAC")),
        }
    }
    match net.tap.len() {
        0 => Err("tap=NAME is missing".into()),
        1..=NAME_BYTES_MAX => Ok(net),
        _ => Err(format!("the name of an interface has at most {NAME_BYTES_MAX} bytes")),
    }
}

/// Parses a hardware address that is neither zero nor a group address.
fn mac(text: &str) -> Option<[u8; 6]> {
    let byte = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u8::from_str_radix(part, 16).ok())?
    };
    let bytes = text.split(':').map(byte).collect::<Option<Vec<u8>>>()?;
    let mac: [u8; 6] = bytes.try_into().ok()?;
    (mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

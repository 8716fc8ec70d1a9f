//! Prepares everything that an experiment needs before its first boot: kernels, programs, images
//! and the accelerator.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use unspin_host::vm::QEMU;
use unspin_model::Accel;
use unspin_model::identity::{Identity, VirtualTime};
use unspin_sources::kernel::{self, Kernel};
use unspin_sources::{InUse, cache_dir, qemu};
use unspin_wire::Agent;

use super::parts;
use super::scratch::{IMAGES, SOCKETS, Scratch};
use super::{Event, LabError, Options, Progress, kernels};
use crate::experiment::{Command, Experiment, PlannedBoot, Scheduler, Topology, plan};
use crate::host::{VtQemu, vt_qemu};
use crate::image::{Image, ImageError, OWN_NAME, OWN_PATH, Own, find_program, path_in_guest};
use crate::machine;

/// The kernel that every L1 boots.
const L1_KERNEL: &str = "lab";
/// Folders where QEMU looks for firmware, and the firmware of a guest that boots with `-kernel` and
/// has no other devices that need firmware.
const FIRMWARE_FOLDERS: [&str; 3] = ["/usr/share/seabios", "/usr/share/qemu", "/usr/lib/ipxe/qemu"];
const FIRMWARE: [&str; 4] =
    ["bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin", "multiboot_dma.bin"];

/// The program of a scheduler command on this machine.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Path of the program; `None` for `unspin` itself.
    pub program: Option<PathBuf>,
    /// The agent that the guest starts.
    pub agent: Agent,
}

/// A kernel, and the initramfs of its guests in real time, which contains everything that any of
/// their runs needs. Guests in virtual time have one initramfs per cell, see
/// [`Prepared::cell_initramfs`].
#[derive(Debug, Clone)]
pub struct Guest {
    /// The kernel.
    pub kernel: Kernel,
    /// Path of the initramfs.
    pub initramfs: PathBuf,
}

/// The prepared requirements of an experiment.
#[derive(Debug)]
pub struct Prepared {
    /// Kernel and image of the subject, in the order of the experiment's kernels.
    pub guests: Vec<Guest>,
    /// The L1, if a topology is nested. Its image contains QEMU and the guests.
    pub l1: Option<Guest>,
    /// The accelerator of flat guests and of the L1.
    pub accel: Accel,
    /// Whether nested topologies run on this machine's own KVM, without an L1.
    pub own_kvm: bool,
    /// The program of each scheduler command, by the scheduler's name.
    pub schedulers: BTreeMap<String, Installed>,
    /// unspin's own programs.
    pub own: Own,
    /// Ingredients of runs in virtual time besides the guest; empty in real time.
    pub virtual_time: VirtualTime,
    /// The QEMU of simulated hosts, if a topology has one.
    pub vt_qemu: Option<VtQemu>,
    /// Temporary folder for sockets, whose paths must be short.
    pub scratch: Scratch,
    /// Temporary folder for images, which can be large.
    images: Scratch,
    /// Until this is dropped, no later revision takes the place of a kernel or of QEMU.
    _in_use: Vec<InUse>,
}

impl Prepared {
    /// Prepares an experiment. Reports the steps that take long.
    pub fn new(
        experiment: &Experiment,
        options: &Options,
        progress: &mut dyn Progress,
    ) -> Result<Prepared, LabError> {
        check(experiment)?;
        let own = Own::find(&options.commit)?;
        let real_time = in_real_time(experiment);
        let simulates = experiment.topologies.iter().any(Topology::in_virtual_time);
        let (vt_qemu, qemu_in_use) = simulates.then(|| get_qemu(progress)).transpose()?.unzip();
        let virtual_time = vt_qemu.as_ref().map(virtual_time).unwrap_or_default();
        let (kernels, mut in_use) = kernels::all(&experiment.kernels, progress)?;
        in_use.extend(qemu_in_use.flatten());
        let schedulers = install_schedulers(experiment, progress)?;
        let images = Scratch::in_(&cache_dir(), IMAGES)?;
        let folder = images.path();
        let guests: Vec<Guest> = kernels.into_iter().map(|kernel| guest(kernel, folder)).collect();
        if real_time {
            progress.event(Event::Stage("writing the guests' images", None));
            let boots = plan(experiment);
            let boots = boots.iter().filter(|boot| !boot.virtual_time);
            let parts = parts::of_boots(experiment, &schedulers, boots);
            parts::each_has_its_place(&parts)?;
            for guest in &guests {
                parts::write(Image::base(&guest.kernel)?, &own, &parts, &guest.initramfs)?;
            }
        }
        let scratch = Scratch::in_(&std::env::temp_dir(), SOCKETS)?;
        let nested = experiment.topologies.iter().any(|topology| topology.nested.is_some());
        let first = &guests[0];
        let accel = match real_time {
            true => {
                progress.event(Event::Stage("choosing the accelerator", None));
                let wanted = options.accel.or(experiment.real_accel());
                let note = &mut |text: &str| progress.event(Event::Note(text));
                let (kernel, initramfs) = (&first.kernel, &first.initramfs);
                machine::accelerator(wanted, kernel, initramfs, scratch.path(), note)?
            }
            false => Accel::Vt,
        };
        let own_kvm = accel == Accel::Kvm;
        let (l1_kernel, l1_in_use) =
            (nested && !own_kvm).then(|| kernels::get(L1_KERNEL, progress)).transpose()?.unzip();
        in_use.extend(l1_in_use.flatten());
        let l1 = l1_kernel.map(|kernel| l1(&guests, kernel, &own, folder)).transpose()?;
        Ok(Prepared {
            guests,
            l1,
            accel,
            own_kvm,
            schedulers,
            own,
            virtual_time,
            vt_qemu,
            scratch,
            images,
            _in_use: in_use,
        })
    }
}

fn in_real_time(experiment: &Experiment) -> bool {
    experiment.topologies.iter().any(|topology| !topology.in_virtual_time())
}

/// Checks that this machine has the pCPUs and, in real time, QEMU. Preparation cannot provide them.
pub(super) fn check(experiment: &Experiment) -> Result<(), LabError> {
    if in_real_time(experiment) && machine::qemu_version().is_none() {
        return Err(LabError::Missing { program: QEMU, package: "qemu-system-x86" });
    }
    Ok(experiment.check_pcpus(&machine::allowed_cpus())?)
}

/// Returns the names of what [`Prepared::new`] would build, download or install. Doing so can take
/// many minutes.
pub(super) fn missing(experiment: &Experiment) -> Result<Vec<String>, LabError> {
    let mut missing = Vec::new();
    let simulates = experiment.topologies.iter().any(Topology::in_virtual_time);
    let has_qemu = || {
        std::env::var_os("UNSPIN_VT_QEMU").is_some()
            || qemu::resolve(&qemu::Source::Pinned).is_ok_and(|found| found.is_some())
    };
    if simulates && !has_qemu() {
        missing.push("the lab's QEMU".to_owned());
    }
    let nested = experiment.topologies.iter().any(|topology| topology.nested.is_some());
    let mut kernels: Vec<&str> = experiment.kernels.iter().map(String::as_str).collect();
    kernels.extend((nested && !kernels.contains(&L1_KERNEL)).then_some(L1_KERNEL));
    for spec in kernels {
        if kernel::resolve(spec)?.is_none() {
            missing.push(format!("kernel {spec}"));
        }
    }
    for scheduler in &experiment.schedulers {
        let Scheduler::Command(command) = scheduler else { continue };
        let program = command.argv.first();
        let installed = command.install_root().zip(program);
        if installed.is_some_and(|(root, program)| !root.join("bin").join(program).exists()) {
            missing.push(format!("guest scheduler {}", command.name));
        }
    }
    Ok(missing)
}

/// Returns the ingredients that QEMU contributes. Its program contains the tables of prices.
fn virtual_time(qemu: &VtQemu) -> VirtualTime {
    VirtualTime { qemu: qemu.behaviour.clone(), prices: qemu.behaviour.clone() }
}

impl Prepared {
    /// Returns the accelerator of a topology's outermost VM.
    pub fn accel_of(&self, topology: &Topology) -> Accel {
        if topology.in_virtual_time() { Accel::Vt } else { self.accel }
    }

    /// Returns the path of the initramfs for a boot in virtual time. It contains only what its run
    /// needs: unpacking takes virtual time, so every file in it affects the run.
    pub fn cell_initramfs(&self, experiment: &Experiment, boot: &PlannedBoot) -> PathBuf {
        let parts = parts::of_boots(experiment, &self.schedulers, [boot]);
        let name = Identity::of_bytes(format!("{parts:?}").as_bytes());
        self.images.path().join(format!("{}-{name}.cpio", self.guests[boot.kernel].kernel.id))
    }

    /// Writes the initramfs of a boot in virtual time, unless it exists.
    pub fn write_cell_initramfs(
        &self,
        experiment: &Experiment,
        boot: &PlannedBoot,
    ) -> Result<(), ImageError> {
        let path = self.cell_initramfs(experiment, boot);
        if path.exists() {
            return Ok(());
        }
        let base = Image::base(&self.guests[boot.kernel].kernel)?;
        let parts = parts::of_boots(experiment, &self.schedulers, [boot]);
        parts::write(base, &self.own, &parts, &path)
    }
}

/// Returns the path in the L1 of a guest's kernel or initramfs.
pub fn path_in_l1(guest: &Guest, what: &str) -> String {
    format!("/lab/{}/{what}", guest.kernel.id)
}

fn get_qemu(progress: &mut dyn Progress) -> Result<(VtQemu, Option<InUse>), LabError> {
    let mut report = |step: unspin_sources::Progress| {
        progress.event(Event::Stage(&format!("QEMU: {}", step.stage), step.fraction));
    };
    Ok(vt_qemu(&mut report)?)
}

fn guest(kernel: Kernel, folder: &Path) -> Guest {
    let initramfs = folder.join(format!("{}.cpio", kernel.id));
    Guest { kernel, initramfs }
}

/// Makes the image of an L1 without its init and its guests: the base image, and QEMU with its
/// firmware.
pub fn l1_base(kernel: &Kernel) -> Result<Image, ImageError> {
    let mut image = Image::base(kernel)?;
    image.add_program(QEMU, "qemu-system-x86")?;
    for name in FIRMWARE {
        let found = FIRMWARE_FOLDERS.iter().map(|f| Path::new(f).join(name)).find(|p| p.exists());
        if let Some(file) = found {
            image.add_file_as(&file, &format!("/usr/share/qemu/{name}"));
        }
    }
    Ok(image)
}

/// Writes the image of an L1, which contains the kernel and image of every guest.
fn l1(guests: &[Guest], kernel: Kernel, own: &Own, folder: &Path) -> Result<Guest, LabError> {
    let mut image = l1_base(&kernel)?;
    image.extend(own.init()?);
    for guest in guests {
        image.add_file_as(&guest.kernel.image, &path_in_l1(guest, "kernel"));
        image.add_file_as(&guest.initramfs, &path_in_l1(guest, "initramfs"));
    }
    let initramfs = folder.join(format!("l1-{}.cpio", kernel.id));
    image.write(&initramfs)?;
    Ok(Guest { kernel, initramfs })
}

fn install_schedulers(
    experiment: &Experiment,
    progress: &mut dyn Progress,
) -> Result<BTreeMap<String, Installed>, LabError> {
    let mut found = BTreeMap::new();
    for scheduler in &experiment.schedulers {
        if let Scheduler::Command(command) = scheduler {
            found.insert(command.name.clone(), install(command, progress)?);
        }
    }
    Ok(found)
}

/// Finds the program of a command, and runs `cargo install` if it is missing.
pub(super) fn install(
    command: &Command,
    progress: &mut dyn Progress,
) -> Result<Installed, LabError> {
    let failed = |detail: String| LabError::Scheduler { name: command.name.clone(), detail };
    let (program, args) =
        command.argv.split_first().ok_or_else(|| failed("argv is empty".into()))?;
    let agent = |program: &Path| {
        let program = program.display().to_string();
        let argv = [program].into_iter().chain(args.iter().cloned()).collect();
        Agent {
            argv,
            session: command.session.clone(),
            listens: command.listens,
            stats: command.stats.clone(),
        }
    };
    if program == OWN_NAME {
        return Ok(Installed { program: None, agent: agent(Path::new(OWN_PATH)) });
    }
    let installed = command.install_root().map(|root| root.join("bin").join(program));
    let path = match &installed {
        Some(path) if path.exists() => Some(path.clone()),
        Some(path) => {
            progress.event(Event::Stage(&format!("cargo install {program} (minutes)"), None));
            cargo_install(command).map_err(failed)?;
            Some(path.clone())
        }
        None => find_program(program),
    };
    let path = path.filter(|path| path.exists()).ok_or_else(|| {
        failed(format!(
            "`{program}` is not installed; install it, or name its `crate` and `version`"
        ))
    })?;
    let path = std::path::absolute(&path).unwrap_or(path);
    Ok(Installed { agent: agent(&path_in_guest(&path)), program: Some(path) })
}

fn cargo_install(command: &Command) -> Result<(), String> {
    let (Some(name), Some(root)) = (&command.crate_name, command.install_root()) else {
        return Err("no crate is named".into());
    };
    let mut cargo = std::process::Command::new("cargo");
    cargo.args(["install", "--locked", "--root"]).arg(&root).arg(name);
    if let Some(version) = &command.version {
        cargo.args(["--version", version]);
    }
    if let Some(clang) = find_program("clang-19") {
        cargo.env("BPF_CLANG", clang);
    }
    let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let tail: Vec<&str> = text.lines().rev().take(12).collect();
    Err(tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
impl Prepared {
    /// Returns what tests of plans need: one kernel, which never boots.
    pub fn of_kernel(kernel: Kernel, accel: Accel, own: Own) -> Prepared {
        let folder = std::env::temp_dir().join("unspin-tests");
        let scratch = |prefix| Scratch::in_(&folder, prefix).expect("a temporary folder");
        Prepared {
            guests: vec![Guest { kernel, initramfs: PathBuf::new() }],
            l1: None,
            accel,
            own_kvm: false,
            schedulers: BTreeMap::new(),
            own,
            virtual_time: VirtualTime { qemu: "q".into(), prices: "p".into() },
            vt_qemu: None,
            scratch: scratch(SOCKETS),
            images: scratch(IMAGES),
            _in_use: Vec::new(),
        }
    }
}

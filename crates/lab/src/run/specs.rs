//! From an experiment's cell to the VMs that it starts and the run in them.

use std::path::Path;

use unspin_model::{Accel, FailureKind};

use super::prepare::{Guest, Prepared, path_in_l1};
use crate::experiment::{
    Experiment, Neighbour, Nested, PlannedBoot, PlannedRun, Spinlock, Topology,
};
use crate::machine;
use crate::vm::cpu_model;
use crate::wire::{Failure, Job, RunSpec, TruthMode, VmSpec};

const FLAT_BOOT_LIMIT_S: f64 = 60.0;
const NESTED_BOOT_LIMIT_S: f64 = 90.0;
/// CPU of a nested machine's L1: without the extensions that make an L2 under
/// emulation die (XSAVE and what needs it).
const L1_CPU: &str = "max,-xsave,-avx,-avx2,-f16c,-fma";

/// The L1 of a nested topology.
pub fn l1(
    experiment: &Experiment,
    prepared: &Prepared,
    topology: &Topology,
) -> Result<VmSpec, Failure> {
    let missing = || Failure::new(FailureKind::BootTimeout, "no L1 was prepared");
    let guest = prepared.l1.as_ref().ok_or_else(missing)?;
    let nested = topology.nested.as_ref().ok_or_else(missing)?;
    let pcpus = pcpus(topology)?;
    Ok(VmSpec {
        name: "l1".into(),
        vcpus: pcpus.len() as u32,
        memory_mib: nested.memory_mib,
        kernel: guest.kernel.image.display().to_string(),
        initramfs: guest.initramfs.display().to_string(),
        boot_params: nested.l1_boot_params(),
        accel: prepared.accel,
        cpu: L1_CPU.into(),
        pcpus,
        pinned: true,
        pause_exits: None,
        boot_limit_s: experiment.boot_limit_s.unwrap_or(FLAT_BOOT_LIMIT_S),
    })
}

/// The VMs of a boot, the subject first. In an L1, its CPUs are the pCPUs.
pub fn vms(
    experiment: &Experiment,
    prepared: &Prepared,
    boot: &PlannedBoot,
    in_l1: bool,
) -> Result<Vec<VmSpec>, Failure> {
    let topology = &experiment.topologies[boot.topology];
    let count = topology.pcpus.get_ref().count();
    let own = if in_l1 { NESTED_BOOT_LIMIT_S } else { FLAT_BOOT_LIMIT_S };
    let params = &experiment.boot_params[boot.boot_params];
    let subject = VmSpec {
        pcpus: if in_l1 { (0..count).collect() } else { pcpus(topology)? },
        boot_limit_s: experiment.boot_limit_s.unwrap_or(own),
        ..subject(prepared.accel, &prepared.guests[boot.kernel], topology, in_l1, params)
    };
    let neighbours = topology.neighbours.iter().map(|neighbour| VmSpec {
        name: neighbour.name.clone(),
        vcpus: neighbour.vcpus,
        memory_mib: neighbour.memory_mib,
        pinned: false,
        ..subject.clone()
    });
    Ok([subject.clone()].into_iter().chain(neighbours).collect())
}

fn subject(
    flat_accel: Accel,
    guest: &Guest,
    topology: &Topology,
    in_l1: bool,
    params: &str,
) -> VmSpec {
    let accel = if topology.nested.is_some() { Accel::Kvm } else { flat_accel };
    let native = topology.spinlock == Spinlock::Native;
    let cpu = topology.nested.as_ref().map_or_else(|| cpu_model(accel, native), Nested::cpu);
    let own_params = match (&topology.nested, native && accel == Accel::Kvm) {
        (Some(nested), _) => nested.boot_params(),
        (None, true) => "nopvspin",
        (None, false) => "",
    };
    let path = |what: &str, here: &Path| {
        if in_l1 { path_in_l1(guest, what) } else { here.display().to_string() }
    };
    VmSpec {
        name: "subject".into(),
        vcpus: topology.vcpus,
        memory_mib: topology.memory_mib,
        kernel: path("kernel", &guest.kernel.image),
        initramfs: path("initramfs", &guest.initramfs),
        boot_params: format!("{own_params} {params}").trim().to_owned(),
        accel,
        cpu,
        pcpus: Vec::new(),
        pinned: topology.pinned,
        pause_exits: topology.nested.as_ref().map(|nested| nested.pause_exits),
        boot_limit_s: 0.0,
    }
}

/// One run, as a host carries it out.
pub fn run(
    experiment: &Experiment,
    prepared: &Prepared,
    boot: &PlannedBoot,
    run: &PlannedRun,
) -> RunSpec {
    let topology = &experiment.topologies[boot.topology];
    let workload = &experiment.workloads[run.workload];
    let scheduler = prepared.schedulers.get(&run.cell.scheduler).map(|one| one.agent.clone());
    let neighbour_job = |n: &Neighbour| Job {
        argv: n.workload.argv(n.vcpus),
        setup: n.workload.setup_argv(n.vcpus),
        ..Job::default()
    };
    RunSpec {
        job: Job {
            argv: workload.argv(topology.vcpus),
            setup: workload.setup_argv(topology.vcpus),
            cpus: run.scheduler.cpus(),
            time_limit_s: experiment.time_limit_s.unwrap_or(workload.time_limit_s),
            trace_idle: experiment.truth == TruthMode::Events
                && scheduler.as_ref().is_some_and(|agent| agent.session.is_some()),
            scheduler,
        },
        neighbours: topology.neighbours.iter().map(neighbour_job).collect(),
        truth: experiment.truth,
        injection: topology.injection.clone(),
    }
}

fn pcpus(topology: &Topology) -> Result<Vec<u32>, Failure> {
    let resolved = topology.pcpus.get_ref().resolve(&machine::allowed_cpus());
    resolved.map_err(|detail| Failure::new(FailureKind::QemuDied, detail))
}

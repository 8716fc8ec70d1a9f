//! Turns an experiment's plan into specifications for a host.

use unspin_host::vm::cpu_model;
use unspin_model::{Accel, FailureKind};
use unspin_wire::{
    BootSpec, Failure, Job, L1Spec, RunSpec, SETUP_LIMIT_S, TruthMode, VirtualHost, VmSpec,
};

use super::prepare::{Guest, Prepared, path_in_l1};
use crate::experiment::{
    Experiment, Neighbour, PlannedBoot, PlannedRun, Scheduler, Spinlock, Topology,
};
use crate::machine;
use crate::workload::Workload;

const FLAT_BOOT_LIMIT_S: f64 = 60.0;
const NESTED_BOOT_LIMIT_S: f64 = 90.0;
/// Virtual seconds that an unattended guest may take to start and stop an agent, and to shut down.
const AGENT_LIMIT_S: f64 = 80.0;
const END_LIMIT_S: f64 = 10.0;
/// CPU of a nested machine's L1. It lacks XSAVE and the extensions that need it, because these
/// crash an L2 under emulation.
const L1_CPU: &str = "max,-xsave,-avx,-avx2,-f16c,-fma";
/// Distance between the seeds of experiments, so that the blocks of two experiments share no seed.
const SEEDS_APART: u64 = 1_000_003;

/// Returns the specification of a planned boot.
pub fn boot(
    experiment: &Experiment,
    prepared: &Prepared,
    boot: &PlannedBoot,
) -> Result<BootSpec, Failure> {
    let topology = &experiment.topologies[boot.topology];
    let in_l1 = topology.nested.is_some() && !prepared.own_kvm;
    let l1 = in_l1.then(|| l1(experiment, prepared, topology)).transpose()?;
    Ok(BootSpec {
        vms: vms(experiment, prepared, boot, in_l1)?,
        fairness: topology.fairness,
        l1: l1.map(|vm| Box::new(L1Spec { block: boot.block, vm })),
        virtual_host: boot.virtual_time.then(|| Box::new(virtual_host(experiment, prepared, boot))),
    })
}

/// Returns the specification of a planned run.
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
            setup: setup(experiment, boot, run),
            cpus: run.scheduler.cpus(),
            time_limit_s: limit_s(experiment, workload),
            // The record of a simulated host contains the idle times already.
            trace_idle: experiment.truth == TruthMode::Events
                && !boot.virtual_time
                && scheduler.as_ref().is_some_and(|agent| agent.session.is_some()),
            scheduler,
        },
        neighbours: topology.neighbours.iter().map(neighbour_job).collect(),
        truth: experiment.truth,
        injection: topology.injection.clone(),
    }
}

/// Returns the commands before the job. Schedulers can share a guest, so its kernel is tuned before
/// each tuned run and reset before each other run.
fn setup(experiment: &Experiment, boot: &PlannedBoot, run: &PlannedRun) -> Vec<Vec<String>> {
    let vcpus = experiment.topologies[boot.topology].vcpus;
    let tuning = match (&run.scheduler, experiment.schedulers.contains(&Scheduler::Tuned)) {
        (Scheduler::Tuned, _) => Some(Scheduler::tune()),
        (_, true) if !boot.virtual_time => Some(Scheduler::undo_tune()),
        _ => None,
    };
    tuning.into_iter().chain(experiment.workloads[run.workload].setup_argv(vcpus)).collect()
}

/// Returns the time limit of a workload in seconds.
pub fn limit_s(experiment: &Experiment, workload: &Workload) -> f64 {
    experiment.time_limit_s.unwrap_or(workload.time_limit_s)
}

/// Returns the seed of a block's runs in virtual time. All cells of a block share it, so that
/// chance affects the compared cells alike.
pub fn seed(experiment: &Experiment, block: u32) -> u64 {
    experiment.seed.wrapping_mul(SEEDS_APART).wrapping_add(u64::from(block) + 1)
}

/// Returns the specification of a boot's simulated host.
fn virtual_host(experiment: &Experiment, prepared: &Prepared, boot: &PlannedBoot) -> VirtualHost {
    let topology = &experiment.topologies[boot.topology];
    let simulated = &topology.simulated;
    let boot_limit_s = experiment.boot_limit_s.unwrap_or(FLAT_BOOT_LIMIT_S);
    let jobs = boot.runs.iter().map(|planned| run(experiment, prepared, boot, planned).job);
    let limit_s = jobs.map(|job| boot_limit_s + job_limit_s(&job) + END_LIMIT_S);
    let until_s = limit_s.fold(boot_limit_s, f64::max);
    VirtualHost {
        pcpus: topology.pcpus.get_ref().count(),
        quantum_ns: simulated.quantum_ns,
        instructions: simulated.instructions,
        scheduler: simulated.host_scheduler,
        fairness: topology.fairness,
        prices: simulated.prices,
        price_percent: simulated.price_percent,
        help: simulated.offered(topology.spinlock),
        cpu: simulated.cpu,
        cvm: simulated.cvm,
        seed: seed(experiment, boot.block),
        until_ns: (until_s * 1e9) as u64,
        neighbours: simulated.neighbours.clone(),
    }
}

/// Returns the virtual seconds that a job may take, from its setup to the end of its agent.
fn job_limit_s(job: &Job) -> f64 {
    let agent_s = if job.scheduler.is_some() { AGENT_LIMIT_S } else { 0.0 };
    job.setup.len() as f64 * f64::from(SETUP_LIMIT_S) + agent_s + job.time_limit_s
}

/// Returns the specification of a nested topology's L1.
fn l1(
    experiment: &Experiment,
    prepared: &Prepared,
    topology: &Topology,
) -> Result<VmSpec, Failure> {
    let missing = || Failure::new(FailureKind::Unavailable, "no L1 was prepared");
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

/// Returns the VMs of a boot, the subject first. In an L1, the L1's CPUs are the pCPUs.
fn vms(
    experiment: &Experiment,
    prepared: &Prepared,
    boot: &PlannedBoot,
    in_l1: bool,
) -> Result<Vec<VmSpec>, Failure> {
    let topology = &experiment.topologies[boot.topology];
    let count = topology.pcpus.get_ref().count();
    let own = if in_l1 { NESTED_BOOT_LIMIT_S } else { FLAT_BOOT_LIMIT_S };
    let params = &experiment.boot_params[boot.boot_params];
    let accel = prepared.accel_of(topology);
    let pcpus = match (in_l1, boot.virtual_time) {
        (_, true) => Vec::new(),
        (true, _) => (0..count).collect(),
        (false, false) => pcpus(topology)?,
    };
    let guest = &prepared.guests[boot.kernel];
    let subject = VmSpec {
        initramfs: initramfs(experiment, prepared, boot, in_l1),
        pcpus,
        boot_limit_s: experiment.boot_limit_s.unwrap_or(own),
        ..subject(accel, guest, topology, in_l1, params)
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

/// Returns the path at which the boot's host finds the initramfs.
fn initramfs(
    experiment: &Experiment,
    prepared: &Prepared,
    boot: &PlannedBoot,
    in_l1: bool,
) -> String {
    let guest = &prepared.guests[boot.kernel];
    match (in_l1, boot.virtual_time) {
        (true, _) => path_in_l1(guest, "initramfs"),
        (false, true) => prepared.cell_initramfs(experiment, boot).display().to_string(),
        (false, false) => guest.initramfs.display().to_string(),
    }
}

fn subject(
    flat_accel: Accel,
    guest: &Guest,
    topology: &Topology,
    in_l1: bool,
    params: &str,
) -> VmSpec {
    let accel = if topology.nested.is_some() { Accel::Kvm } else { flat_accel };
    let native = topology.spinlock == Some(Spinlock::Native);
    let cpu = match (&topology.nested, accel) {
        (Some(nested), _) => nested.cpu(),
        (None, Accel::Vt) => topology.simulated.cpu(topology.spinlock),
        (None, _) => cpu_model(accel, native),
    };
    let declined =
        accel == Accel::Vt && topology.simulated.declines_pv_spinlocks(topology.spinlock);
    let own_params = match (&topology.nested, native && accel == Accel::Kvm || declined) {
        (Some(nested), _) => nested.boot_params(),
        (None, true) => "nopvspin",
        (None, false) => "",
    };
    let kernel = || guest.kernel.image.display().to_string();
    VmSpec {
        name: "subject".into(),
        vcpus: topology.vcpus,
        memory_mib: topology.memory_mib,
        kernel: if in_l1 { path_in_l1(guest, "kernel") } else { kernel() },
        initramfs: String::new(),
        boot_params: format!("{own_params} {params}").trim().to_owned(),
        accel,
        cpu,
        pcpus: Vec::new(),
        pinned: topology.pinned,
        pause_exits: topology.nested.as_ref().map(|nested| nested.pause_exits),
        boot_limit_s: 0.0,
    }
}

fn pcpus(topology: &Topology) -> Result<Vec<u32>, Failure> {
    let resolved = topology.pcpus.get_ref().resolve(&machine::allowed_cpus());
    resolved.map_err(|detail| Failure::new(FailureKind::Unavailable, detail))
}

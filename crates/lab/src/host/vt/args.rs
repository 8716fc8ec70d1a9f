//! The command line of a virtual-time run. Each argument describes the guest, counts virtual time,
//! or only takes output. The guest gets no input, no disk and no monitor.

use std::path::PathBuf;

use unspin_wire::{
    CpuMax, Critical, Cvm, Injection, NeighbourModel, OUT_PORT_NAME, PauseExits, VirtualHost,
    VirtualNeighbour, VmSpec, Vnae, option_name,
};

use unspin_host::vm::BOOT_PARAMS;

/// File with the guest's replies, one JSON value per line.
pub const RESULTS_FILE: &str = "results.jsonl";
/// File with the host's record; see [`unspin_trace::virtual_time`].
pub const RECORD_FILE: &str = "record.bin";
/// File with a confidential guest's initial memory and registers.
pub const IGVM_FILE: &str = "guest.igvm";
/// The number of the page table bit that makes a page private.
pub const CVM_C_BIT: u8 = 47;

/// Boot parameters of every guest in virtual time. Mitigations against speculation cost
/// instructions and protect nothing here, because the emulated CPU does not speculate. The
/// self-tests of the kernel's ciphers would run beside the job for seconds. `lpj` saves the guest
/// from calibrating its delay loop on each vCPU: the time stamp counter counts nanoseconds, and the
/// kernels of both Debian and the lab have ticks of 4 ms.
const VIRTUAL_PARAMS: &str = "mitigations=off cryptomgr.notests=1 lpj=4000000";
/// Features removed from the guest's CPU. KVM does not offer MWAIT. The kernel clears and copies
/// pages with fast string instructions, and each byte of them counts as an instruction.
const VIRTUAL_CPU: &str = "-monitor,-erms,-fsrm";

/// Returns QEMU's arguments for a guest whose files go to the current folder.
pub fn virtual_args(
    spec: &VmSpec,
    host: &VirtualHost,
    injection: Option<&Injection>,
    firmware: &[PathBuf],
) -> Vec<String> {
    let mut args = Vec::new();
    let mut add = |name: &str, value: String| args.extend([name.to_owned(), value]);
    for folder in firmware {
        add("-L", folder.display().to_string());
    }
    add("-machine", "q35".into());
    // The default size of the buffer depends on the machine's memory, so it is set here.
    add("-accel", "tcg,thread=single,tb-size=512".into());
    add("-icount", "shift=0,sleep=off".into());
    add("-rtc", "base=2020-01-01,clock=vm".into());
    add("-seed", host.seed.to_string());
    add("-object", host_object(host, spec.pinned));
    for (number, neighbour) in host.neighbours.iter().enumerate() {
        add("-object", neighbour_object(number, neighbour));
    }
    if let Some(injection) = injection {
        add("-object", injector_object(injection));
    }
    add("-cpu", format!("{},{VIRTUAL_CPU}", spec.cpu));
    add("-smp", spec.vcpus.to_string());
    add("-m", format!("{}M", spec.memory_mib));
    add("-display", "none".into());
    match host.cvm {
        Some(Cvm::SevEsEmulated) => {
            add("-object", format!("sev-es-emulated,id=cvm,igvm={IGVM_FILE},cbit={CVM_C_BIT}"));
        }
        None => {
            add("-kernel", spec.kernel.clone());
            add("-initrd", spec.initramfs.clone());
            add("-append", kernel_params(spec));
        }
    }
    add("-serial", "file:console.log".into());
    // With an ioeventfd, another thread of QEMU serves the queue whenever the machine schedules it.
    // Without one, the vCPU that kicks the queue serves it.
    let device = "virtio-serial-pci,ioeventfd=off";
    add(
        "-device",
        match host.cvm {
            // A device can access only the shared memory of a confidential guest. The guest's
            // drivers therefore insist on VIRTIO_F_ACCESS_PLATFORM.
            Some(_) => format!("{device},disable-legacy=on,iommu_platform=on"),
            None => device.into(),
        },
    );
    add("-chardev", format!("file,id=out,path={RESULTS_FILE}"));
    add("-device", format!("virtserialport,chardev=out,name={OUT_PORT_NAME}"));
    args.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    args
}

/// Returns the kernel's command line.
pub fn kernel_params(spec: &VmSpec) -> String {
    format!("{BOOT_PARAMS} {VIRTUAL_PARAMS} {}", spec.boot_params).trim().into()
}

fn host_object(host: &VirtualHost, pinned: bool) -> String {
    let mut object = format!(
        "virtual-host,id=host0,pcpus={},quantum={},instructions={},scheduler={},fairness={},prices={},seed={},\
         until={},record={RECORD_FILE},record-exits=on",
        host.pcpus,
        host.quantum_ns,
        host.instructions,
        option_name(&host.scheduler),
        option_name(&host.fairness),
        option_name(&host.prices),
        host.seed,
        host.until_ns,
    );
    if pinned {
        object.push_str(",pinned=on");
    }
    if host.price_percent != 100 {
        object.push_str(&format!(",price-percent={}", host.price_percent));
    }
    if let Some(weight) = host.cpu.weight {
        // A `cpu_weight` of 100 is 1024 in the scheduler.
        object.push_str(&format!(",weight={}", (weight * 1024 / 100).max(1)));
    }
    if let Some(CpuMax { quota_us, period_us }) = host.cpu.max {
        object.push_str(&format!(",quota={},period={}", quota_us * 1_000, period_us * 1_000));
    }
    let help = &host.help;
    let steal_time = ["steal-time", "pv-tlb-flush", "pv-sched-yield"];
    let offered = [(help.pv_unhalt, "pv-unhalt"), (help.pv_ipi, "pv-ipi")];
    let offered = offered.into_iter().chain(steal_time.map(|name| (help.steal_time, name)));
    for (_, name) in offered.filter(|(is_offered, _)| *is_offered) {
        object.push_str(&format!(",{name}=on"));
    }
    if help.pause_exits != PauseExits::Off {
        let [pauses, boost] = [option_name(&help.pause_exits), option_name(&help.boost)];
        let debooster = option_name(&help.debooster);
        object.push_str(&format!(",pause-exits={pauses},boost={boost},debooster={debooster}"));
        if let Some(window) = help.pause_window {
            object.push_str(&format!(",pause-window={window}"));
        }
    }
    if help.vnae != Vnae::Off {
        object.push_str(&format!(",vnae={}", option_name(&help.vnae)));
    }
    if help.critical != Critical::Off {
        object.push_str(&format!(",critical={}", option_name(&help.critical)));
    }
    object
}

/// Returns the QEMU object of a modelled neighbour. The neighbour starts with the job, so the guest
/// boots undisturbed and faster.
fn neighbour_object(number: usize, neighbour: &VirtualNeighbour) -> String {
    let mut object = format!(
        "virtual-neighbour,id=n{number},after-mark=on,vcpus={},kind={}",
        neighbour.vcpus,
        option_name(&neighbour.model)
    );
    match neighbour.model {
        NeighbourModel::Greedy => {}
        NeighbourModel::Periodic | NeighbourModel::Burst => object.push_str(&format!(
            ",work={},sleep={},phase={}",
            neighbour.work_ns, neighbour.sleep_ns, neighbour.phase_ns
        )),
        NeighbourModel::At => {
            let times = neighbour.times_ns.iter().map(|(from, to)| format!("{from}-{to}"));
            object.push_str(&format!(",times={}", times.collect::<Vec<_>>().join("/")));
        }
    }
    object
}

fn injector_object(injection: &Injection) -> String {
    let lengths = injection.lengths_us.iter().map(|us| (us * 1_000).to_string());
    let after_us = (injection.after_ms * 1_000).max(injection.gap_us);
    format!(
        "virtual-injector,id=injector,pcpu={},lengths={},gap={},after={},count={}",
        injection.pcpu,
        lengths.collect::<Vec<_>>().join("/"),
        injection.gap_us * 1_000,
        after_us * 1_000,
        injection.count
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspin_wire::{Boost, CpuLimits, Fairness, Help, HostScheduler, Prices};

    #[test]
    fn the_command_line_names_host_neighbours_and_files() {
        let spec = VmSpec {
            vcpus: 4,
            memory_mib: 768,
            cpu: "max".into(),
            pinned: true,
            ..VmSpec::default()
        };
        let neighbour = VirtualNeighbour {
            name: "neighbour1".into(),
            vcpus: 3,
            model: NeighbourModel::Greedy,
            work_ns: 5,
            sleep_ns: 6,
            phase_ns: 7,
            times_ns: vec![(1, 2), (3, 4)],
        };
        let host = VirtualHost {
            pcpus: 2,
            quantum_ns: 1_000,
            instructions: 1,
            scheduler: HostScheduler::Cfs,
            fairness: Fairness::PerVm,
            prices: Prices::SevEs,
            price_percent: 200,
            cpu: CpuLimits {
                weight: Some(50),
                max: Some(CpuMax { quota_us: 200_000, period_us: 100_000 }),
            },
            cvm: None,
            help: Help {
                pv_unhalt: true,
                pause_exits: PauseExits::Svm,
                boost: Boost::Y2019,
                ..Help::default()
            },
            seed: 7,
            until_ns: 9_000_000_000,
            neighbours: vec![
                VirtualNeighbour { model: NeighbourModel::Burst, ..neighbour.clone() },
                VirtualNeighbour { model: NeighbourModel::At, ..neighbour },
            ],
        };
        let injection =
            Injection { pcpu: 1, lengths_us: vec![300, 20], gap_us: 9, after_ms: 0, count: 4 };
        let line = virtual_args(&spec, &host, Some(&injection), &["/fw".into()]).join(" ");
        for part in [
            "-L /fw -machine q35 -accel tcg,thread=single,tb-size=512 -icount shift=0,sleep=off",
            "-seed 7 -object virtual-host,id=host0,pcpus=2,quantum=1000,instructions=1,\
             scheduler=cfs,fairness=per-vm,prices=sev-es,seed=7,until=9000000000,\
             record=record.bin,record-exits=on,pinned=on,price-percent=200,\
             weight=512,quota=200000000,period=100000000,pv-unhalt=on,pause-exits=svm,boost=2019,debooster=off",
            "virtual-neighbour,id=n0,after-mark=on,vcpus=3,kind=burst,work=5,sleep=6,phase=7 ",
            "virtual-neighbour,id=n1,after-mark=on,vcpus=3,kind=at,times=1-2/3-4 ",
            "virtual-injector,id=injector,pcpu=1,lengths=300000/20000,gap=9000,after=9000,count=4 ",
            "mitigations=off cryptomgr.notests=1 lpj=4000000 -serial file:console.log",
            "path=results.jsonl",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains("-qmp") && !line.contains("socket"), "{line}");
        assert!(!line.contains("vnae"), "{line}");
        assert!(!line.contains("pause-window"), "{line}");
        let help = Help { vnae: Vnae::Both, pause_window: Some(300), ..host.help };
        let cvm = VirtualHost { cvm: Some(Cvm::SevEsEmulated), help, ..host };
        let line = virtual_args(&spec, &cvm, None, &[]).join(" ");
        assert!(line.contains("-object sev-es-emulated,id=cvm,igvm=guest.igvm,cbit=47"), "{line}");
        assert!(line.contains(",boost=2019,debooster=off,pause-window=300,vnae=both"), "{line}");
        assert!(line.contains("iommu_platform=on") && !line.contains("-kernel"), "{line}");
    }
}

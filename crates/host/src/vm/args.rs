//! QEMU's command line.

use unspin_model::Accel;
use unspin_wire::{PORT_NAME, VmSpec};

use crate::clock_page;

/// Boot parameters of every guest: all messages go to the serial console, a panic does not reboot
/// (QEMU's `-no-reboot` then ends QEMU), and the start has no delays.
pub const BOOT_PARAMS: &str = "console=ttyS0 panic=-1 oops=panic quiet loglevel=4 \
                           random.trust_cpu=on no_timer_check tsc=reliable \
                           rcupdate.rcu_cpu_stall_timeout=60";

/// Returns the `-cpu` argument of a flat guest. Under emulation, the hypervisor bit decides the
/// guest's spinlock: with it, Linux takes the test-and-set lock.
pub fn cpu_model(accel: Accel, native_spinlock: bool) -> String {
    match (accel, native_spinlock) {
        (Accel::Tcg | Accel::Vt, false) => "max".into(),
        (Accel::Tcg | Accel::Vt, true) => "max,-hypervisor".into(),
        (Accel::Kvm, _) => "host".into(),
    }
}

/// Returns the arguments for a VM whose sockets and console log are in the current folder.
pub fn qemu_args(spec: &VmSpec) -> Vec<String> {
    let accel = match spec.accel {
        Accel::Kvm => "kvm".to_owned(),
        Accel::Tcg | Accel::Vt => "tcg,thread=multi".to_owned(),
    };
    let append = format!("{BOOT_PARAMS} {}", spec.boot_params);
    let vcpus = spec.vcpus.to_string();
    let memory = format!("{}M", spec.memory_mib);
    let name = format!("{},debug-threads=on", spec.name);
    let shared = format!(
        "memory-backend-file,id=clock,share=on,mem-path={},size={}",
        clock_page::FILE,
        clock_page::FILE_BYTES
    );
    let port = format!("virtserialport,chardev=ctl,name={PORT_NAME}");
    [
        "-name",
        &name,
        "-machine",
        "q35",
        "-accel",
        &accel,
        "-cpu",
        &spec.cpu,
        "-smp",
        &vcpus,
        "-m",
        &memory,
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-kernel",
        &spec.kernel,
        "-initrd",
        &spec.initramfs,
        "-append",
        append.trim(),
        "-chardev",
        "file,id=console,path=console.log",
        "-serial",
        "chardev:console",
        "-chardev",
        "socket,id=ctl,path=ctl.sock,server=on,wait=off",
        "-object",
        &shared,
        "-device",
        "ivshmem-plain,memdev=clock",
        "-device",
        "virtio-serial-pci",
        "-device",
        &port,
        "-qmp",
        "unix:qmp.sock,server=on,wait=off",
    ]
    .map(str::to_owned)
    .to_vec()
}

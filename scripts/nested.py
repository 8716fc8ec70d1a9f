"""Runs a machine with a real KVM on a machine without KVM. QEMU emulates AMD's SVM for an L1 with Debian's
cloud kernel and its kvm_amd. The L1's guests, L2, have the same kernel."""

import json
import lzma
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from cache import cache_folder
from checks import want
from claims import Claims

SECONDS = 300
TRIALS = 3
# Without the option, a Ctrl-C of the terminal does not reach QEMU. `timeout` then ends, and QEMU goes on
# without a limit.
LIMITED = ("timeout", "--foreground")
# CPUs of an L1.
CPUS = 2
OOPS = re.compile(r"Kernel panic - not syncing: Fatal exception|Oops: ")
QEMU = "qemu-system-x86_64"
FIRMWARE = [Path("/usr/share") / name for name in ("qemu", "seabios")]
# XSAVE and the features that depend on it kill a nested guest under emulation.
L1_CPU = "max,-xsave,-avx,-avx2,-f16c,-fma"
L1_APPEND = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check tsc=reliable"
L1_MODULES = ("irqbypass", "kvm", "ccp", "kvm-amd", "tun")
L2_MODULES = ("virtio_blk", "failover", "net_failover", "virtio_net")
L2_APPEND = "console=ttyS0 panic=-1 oops=panic mitigations=off cryptomgr.notests=1"

L1_INIT = """#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox --install -s /bin
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /tmp /dev/net
mount -t tmpfs tmp /tmp
for module in %(modules)s; do
    [ -f /modules/$module.ko ] || continue
    case $module in
    kvm-amd) insmod /modules/$module.ko npt=0 %(kvm_amd)s ;;
    *) insmod /modules/$module.ko ;;
    esac
done
cd /tmp
echo "L1: begin"
sh /check.sh
echo "L1: end"
poweroff -f
"""

L2_INIT = """#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox --install -s /bin
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in %(modules)s; do
    [ -f /modules/$module.ko ] && insmod /modules/$module.ko
done
echo "init: $(nproc) CPUs, up $(cut -d' ' -f1 /proc/uptime) s"
sh -c "$(sed -n 's/.*do="\\([^"]*\\)".*/\\1/p' /proc/cmdline)"
echo "init: end"
poweroff -f
"""


def es_kernel(unspin: Path) -> Path:
    """Returns the bzImage of the kernel lab-es, or a path that does not exist."""
    named = os.environ.get("UNSPIN_ES_KERNEL")
    return Path(named) if named else lab_kernel(unspin, "lab-es")


def lab_kernel(unspin: Path, name: str) -> Path:
    """Returns the bzImage of a kernel that the lab has built, or a path that does not exist."""
    show = [unspin, "lab", "kernel", "show", name, "--json"]
    shown = subprocess.run(show, capture_output=True, text=True)
    return Path(json.loads(shown.stdout)["kernels"][0]["image"] if not shown.returncode else "none")


def modules(kernel: Path, names: tuple[str, ...], root: Path) -> None:
    """Copies and unpacks modules, and skips those that are built into the kernel."""
    (root / "modules").mkdir(parents=True)
    for name in names:
        for file in kernel.glob(f"lib/modules/*/kernel/**/{name}.ko*"):
            packed = file.read_bytes()
            plain = lzma.decompress(packed) if file.suffix == ".xz" else packed
            (root / "modules" / f"{name}.ko").write_bytes(plain)


def archive(root: Path, out: Path) -> None:
    """Packs a folder as an initramfs."""
    names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    cpio = ["cpio", "-o", "-H", "newc", "--quiet", "--reproducible"]
    packed = subprocess.run(cpio, cwd=root, input=names.encode(), check=True, capture_output=True)
    out.write_bytes(packed.stdout)


def skeleton(root: Path, init: str) -> None:
    for name in ("bin", "dev", "proc", "sys"):
        (root / name).mkdir(parents=True)
    shutil.copy("/usr/bin/busybox", root / "bin")
    (root / "init").write_text(init)
    (root / "init").chmod(0o755)


def install(root: Path, program: Path, name: str, libraries: Path | None = None) -> None:
    """Copies a program with its libraries. `libraries` has libraries that this machine may not have."""
    shutil.copy(program, root / "bin" / name)
    more = {"LD_LIBRARY_PATH": str(libraries)} if libraries else {}
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, env=os.environ | more).stdout
    for word in listed.split():
        if word.startswith("/"):
            to = root / "lib" / Path(word).name if Path(word).parent == libraries else root / word[1:]
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, to)


def emulated(cpu: str) -> list[str]:
    """Returns the start of the command of QEMU in real time, with a thread for each of the L1's CPUs."""
    return [QEMU, "-accel", "tcg,thread=multi", "-cpu", cpu]


def virtual(qemu: Path, seed: int, cpu: str = L1_CPU) -> list[str]:
    """Returns the start of the command of the lab's QEMU in virtual time. The L1's CPUs are the pCPUs of a
    simulated host without other guests. Prices are free: an exit of an L2 costs only the L1's
    instructions."""
    host = f"virtual-host,id=host0,pcpus={CPUS},quantum=1000,instructions=1,prices=free,seed={seed}"
    command = [str(qemu), "-L", str(firmware_of(qemu)), "-accel", "tcg,thread=single,tb-size=512", "-object", host]
    command += ["-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm", "-seed", str(seed)]
    return [*command, "-no-user-config", "-cpu", f"{cpu},-hypervisor,-monitor"]


def firmware_of(qemu: Path) -> Path:
    """Returns the firmware next to a QEMU, or that of a build in the cache."""
    beside = qemu.parent.parent / "share/qemu"
    cached = sorted(cache_folder().glob("qemu/qemu-*/share/qemu"))
    return cached[-1] if cached and not beside.is_dir() else beside


class Bench:
    """The files of an L1, and the way to run one. `host` is the L1's kernel, if it differs from the guests'
    kernel; its folder may have modules. `kvm_amd` has parameters of the L1's module."""

    claims: Claims
    tries = 1
    # The name of an L1 in a measurement of many rounds.
    name = "round"
    # The model of the L1's CPUs.
    cpu = L1_CPU
    # The start of QEMU's command, by the model of the L1's CPUs.
    machine: Callable[[str], list[str]] = staticmethod(emulated)

    def __init__(
        self,
        vmm: Path,
        unspin: Path,
        kernel: Path,
        folder: Path,
        guest_programs: tuple[Path, ...] = (),
        host: Path | None = None,
        kvm_amd: str = "",
        guest_modules: tuple[str, ...] = L2_MODULES,
    ) -> None:
        self.unspin, self.kernel, self.folder = unspin, kernel, folder
        self.host = host or kernel / "vmlinuz"
        # Boot parameters apply if kvm_amd is built in. npt=0: nested paging corrupts an emulated L1's memory.
        parameters = ("npt=0", *kvm_amd.split()) if host else ()
        self.append = " ".join((L1_APPEND, *(f"kvm_amd.{parameter}" for parameter in parameters)))
        guest = folder / "l2"
        skeleton(guest, L2_INIT % {"modules": " ".join(guest_modules)})
        modules(kernel, guest_modules, guest)
        for path in guest_programs:
            install(guest, path, path.name)
        self.initramfs = folder / "initramfs"
        archive(guest, self.initramfs)
        self.root = folder / "l1"
        skeleton(self.root, L1_INIT % {"modules": " ".join(L1_MODULES), "kvm_amd": kvm_amd})
        modules(self.host.parent, L1_MODULES, self.root)
        shutil.copy(kernel / "vmlinuz", self.root)
        shutil.copy(self.initramfs, self.root)
        self.program(vmm, "unspin-vmm")

    def program(self, program: Path, name: str) -> None:
        """Adds a program to the L1."""
        install(self.root, program, name)

    def qemu(self) -> None:
        """Adds this machine's QEMU to the L1. It needs `-L /share`."""
        self.program(Path(shutil.which(QEMU) or QEMU), "qemu")
        share = self.root / "share"
        share.mkdir()
        for name in ("bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin"):
            found = [folder / name for folder in FIRMWARE if (folder / name).exists()]
            want(found, f"QEMU's firmware {name} was not found")
            shutil.copy(found[0], share)

    def igvm(self, name: str, kernel: Path, memory_mib: int, *more: str | Path) -> bytes:
        """Builds the file of a guest with emulated SEV-ES."""
        out = self.folder / f"{name}.igvm"
        command = [self.unspin, "igvm", "build", "--platform", "sev-es", "--cbit", "47", "-o", out]
        command += ["--kernel", kernel, "--memory", str(memory_mib), *more]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        return out.read_bytes()

    def boot(self, packed: Path) -> list[str]:
        """Returns QEMU's options that boot the L1 with an initramfs."""
        return ["-kernel", str(self.host), "-initrd", str(packed), "-append", self.append]

    def run(
        self,
        name: str,
        script: str,
        files: dict[str, bytes] | None = None,
        seconds: int = SECONDS,
        cpu: str = "",
        memory_mib: int = 2048,
        machine: Callable[[str], list[str]] | None = None,
    ) -> str:
        """Returns the output of an L1 that runs a script."""
        root = self.folder / f"{name}-root"
        shutil.copytree(self.root, root, symlinks=True)
        (root / "check.sh").write_text(script)
        for path, content in (files or {}).items():
            (root / path).write_bytes(content)
        packed, console = self.folder / f"{name}.cpio", self.folder / f"{name}.log"
        archive(root, packed)
        shutil.rmtree(root)
        command = [*(machine or self.machine)(cpu or self.cpu), "-machine", "q35", "-smp", str(CPUS)]
        command += ["-m", str(memory_mib), "-nodefaults", "-display", "none", "-no-reboot"]
        command += ["-serial", f"file:{console}", *self.boot(packed)]
        for left in reversed(range(TRIALS)):
            limited = [*LIMITED, str(seconds), *command]
            done = subprocess.run(limited, capture_output=True, text=True)
            log = console.read_text(errors="replace") if console.exists() else done.stderr
            # Patching code while another CPU runs it sometimes kills an emulated kernel.
            if not OOPS.search(log) or not left:
                break
            whose = "a guest's" if "L1: end" in log else "the L1's"
            print(f"{name}: {whose} kernel died; it is started again", flush=True)
            # Only an L1 that survives counts as a try, because a dead L1 says nothing about its guests.
            self.tries += "L1: end" in log
        want("L1: end" in log, f"the L1 did not end (status {done.returncode})", log)
        return log.split("L1: begin")[1]


def missing(kernel: Path | None) -> str:
    """Returns a message about a missing dependency, or an empty string."""
    if kernel is None:
        return "needs Debian's cloud kernel: unspin lab kernel fetch debian-cloud"
    programs = (
        (QEMU, "qemu-system-x86"),
        ("cpio", "cpio"),
        ("/usr/bin/busybox", "busybox-static"),
    )
    for program, package in programs:
        if not shutil.which(program):
            return f"needs {program}: apt install {package}"
    return ""

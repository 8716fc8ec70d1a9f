#!/usr/bin/env python3
"""Whether unspin-vmm runs stock guests on a real KVM, which runs in an emulated machine.
Usage: scripts/vmm.py UNSPIN-VMM UNSPIN [CHECK...]; returns 77 where something it needs is missing.

QEMU emulates AMD's SVM for an L1 with Debian's cloud kernel and its kvm_amd. The guests, L2, have
the same kernel. Each check boots an L1 of its own. The checks are: linux, smp, ends, igvm, refused,
block, net, console, interrupt, memory.
"""

import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unspin"
SECONDS = 300
QEMU = "qemu-system-x86_64"
# What XSAVE needs makes a nested guest die under emulation.
L1_CPU = "max,-xsave,-avx,-avx2,-f16c,-fma"
# Nested paging corrupts the L1's memory under emulation.
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
    kvm-amd) insmod /modules/$module.ko npt=0 ;;
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


class Failed(Exception):
    """A check that does not hold."""


def want(holds: object, what: str, log: str = "") -> None:
    if not holds:
        raise Failed(what + ("\n" + "\n".join(log.splitlines()[-int(os.environ.get("VMM_LINES", "25")):]) if log else ""))


def cached_kernel() -> Path | None:
    """The newest of Debian's cloud kernels that the lab has fetched."""
    found = sorted(CACHE.glob("kernels/debian-cloud-*/vmlinuz"))
    return found[-1].parent if found else None


def modules(kernel: Path, names: tuple[str, ...], root: Path) -> None:
    """Copies modules, unpacked; those that are built in are not there."""
    (root / "modules").mkdir(parents=True)
    for name in names:
        for file in kernel.glob(f"lib/modules/*/kernel/**/{name}.ko*"):
            packed = file.read_bytes()
            plain = lzma.decompress(packed) if file.suffix == ".xz" else packed
            (root / "modules" / f"{name}.ko").write_bytes(plain)


def archive(root: Path, out: Path) -> None:
    """A folder as an initramfs."""
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


class Bench:
    """The files of an L1, and how one is run."""

    def __init__(self, vmm: Path, unspin: Path, kernel: Path, folder: Path):
        self.unspin, self.kernel, self.folder = unspin, kernel, folder
        guest = folder / "l2"
        skeleton(guest, L2_INIT % {"modules": " ".join(L2_MODULES)})
        modules(kernel, L2_MODULES, guest)
        self.initramfs = folder / "initramfs"
        archive(guest, self.initramfs)
        self.root = folder / "l1"
        skeleton(self.root, L1_INIT % {"modules": " ".join(L1_MODULES)})
        modules(kernel, L1_MODULES, self.root)
        shutil.copy(kernel / "vmlinuz", self.root)
        shutil.copy(self.initramfs, self.root)
        self.program(vmm)

    def program(self, program: Path) -> None:
        """Copies a program with its libraries."""
        shutil.copy(program, self.root / "bin/unspin-vmm")
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for word in listed.split():
            if word.startswith("/"):
                to = self.root / word[1:]
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, to)

    def run(self, name: str, script: str, files: dict[str, bytes] | None = None) -> str:
        """What an L1 prints that runs a script."""
        root = self.folder / f"{name}-root"
        shutil.copytree(self.root, root, symlinks=True)
        (root / "check.sh").write_text(script)
        for path, content in (files or {}).items():
            (root / path).write_bytes(content)
        packed, console = self.folder / f"{name}.cpio", self.folder / f"{name}.log"
        archive(root, packed)
        shutil.rmtree(root)
        command = [QEMU, "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", L1_CPU]
        command += ["-smp", "2", "-m", "2048", "-nodefaults", "-display", "none", "-no-reboot"]
        command += ["-serial", f"file:{console}", "-kernel", str(self.kernel / "vmlinuz")]
        command += ["-initrd", str(packed), "-append", L1_APPEND]
        limited = ["timeout", str(SECONDS), *command]
        done = subprocess.run(limited, capture_output=True, text=True)
        log = console.read_text(errors="replace") if console.exists() else done.stderr
        want("L1: end" in log, f"the L1 did not end (status {done.returncode})", log)
        return log.split("L1: begin")[1]


def guest(do: str = "true", more: str = "", append: str = "", vcpus: int = 1) -> str:
    """A shell line that runs an L2, whose init runs `do`."""
    line = shlex.quote(f'{L2_APPEND} {append} do="{do}"')
    return (
        f"unspin-vmm --kernel /vmlinuz --initramfs /initramfs --vcpus {vcpus} --append {line}"
        f" {more} < /dev/null; echo status $?\n"
    )


def statuses(log: str) -> list[int]:
    return [int(found) for found in re.findall(r"^status (\d+)", log, re.MULTILINE)]


def check_linux(bench: Bench) -> str:
    """A stock kernel with one vCPU boots, and powers off by ACPI."""
    log = bench.run("linux", guest())
    want(statuses(log) == [0] and "init: 1 CPUs" in log, "it did not boot", log)
    version = re.search(r"Linux version (\S+)", log)
    return f"{version.group(1) if version else '?'}, {up(log)}"


def up(log: str) -> str:
    found = re.search(r"init: \d+ CPUs, (up \S+ s)", log)
    return found.group(1) if found else "up ?"


CHECKS = (check_linux,)


def missing(kernel: Path | None) -> str:
    """What cannot be done without, or nothing."""
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


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    vmm, unspin, *names = sys.argv[1:]
    kernel = cached_kernel()
    reason = missing(kernel)
    if reason or kernel is None:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(vmm).resolve(), Path(unspin).resolve(), kernel, Path(folder))
        for check in CHECKS:
            name = check.__name__.removeprefix("check_")
            if names and name not in names:
                continue
            try:
                print(f"{name}: ok: {check(bench)}", flush=True)
            except Failed as error:
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs a real KVM in virtual time: what an L2 with four vCPUs loses on the two CPUs of its L1.
Usage: scripts/vt-nested.py UNSPIN [CELL[:SEED]...]; returns 77 if a dependency is missing.

The L1 is a Linux whose CPUs are the pCPUs of a simulated host. Its KVM, its scheduler and its QEMU are real.
The L2 has neither PV help nor PAUSE exits, and runs hackbench. The cells are: control, stock, hold, unspin, pv.
The seed is 1 by default. A cell that is named twice must yield the same bytes twice. QEMU is the lab's, or the
one that UNSPIN_VT_QEMU names. Without patch 0008 of the series, no L2 boots.
"""

import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nested
from cache import cached_kernel
from checks import Failed, want
from sev_es_bench import lab_qemu

PCPUS = 2
# Time limit of a cell, in seconds of this machine.
LIMIT = 1800
JOB = "hackbench -g 1 -l 200 -T"
NO_HELP = ("host,-kvm-pv-unhalt,-kvm-steal-time", "nopvspin")
# For each cell: vCPUs and CPU model of the L2, its further boot parameters, and the command that starts the
# job.
CELLS = {
    "control": (2, *NO_HELP, ""),
    "stock": (4, *NO_HELP, ""),
    "hold": (4, *NO_HELP, "taskset 3 "),
    "unspin": (4, *NO_HELP, "mount -t cgroup2 none /sys/fs/cgroup; unspin run -- "),
    "pv": (4, "host", "", ""),
}
L1_MODULES = ("irqbypass", "kvm", "ccp", "kvm-amd")
L1_APPEND = nested.L1_APPEND + " random.trust_cpu=on cryptomgr.notests=1"
L1_INIT = """#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox --install -s /bin
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in %(modules)s; do
    [ -f /modules/$module.ko ] && insmod /modules/$module.ko
done
qemu -L /share -machine q35 -accel kvm -cpu %(cpu)s -smp %(vcpus)d -m 512 -nodefaults \\
    -no-user-config -display none -no-reboot -serial stdio -kernel /vmlinuz -initrd /initramfs \\
    -append '%(append)s' < /dev/null
echo "L1: end, up $(cut -d' ' -f1 /proc/uptime) s"
poweroff -f
"""


def pack(root: Path, out: Path) -> None:
    """Packs an archive with the same bytes each time, by resetting the files' times."""
    for path in root.rglob("*"):
        os.utime(path, (0, 0))
    nested.archive(root, out)


def write_image(folder: Path, cell: str, kernel: Path, unspin: Path, qemu: Path) -> Path:
    """Makes the image of an L1 that runs one L2."""
    vcpus, cpu, more, by = CELLS[cell]
    guest, root, packed = folder / f"{cell}-l2", folder / f"{cell}-l1", folder / f"{cell}.cpio"
    nested.skeleton(guest, nested.L2_INIT % {"modules": ""})
    nested.install(guest, Path(shutil.which("hackbench") or ""), "hackbench")
    if "unspin" in by:
        nested.install(guest, unspin, "unspin")
    append = f'{nested.L2_APPEND} quiet no_timer_check tsc=reliable {more} do="{by}{JOB}"'
    names = {"modules": " ".join(L1_MODULES), "cpu": cpu, "vcpus": vcpus, "append": append}
    nested.skeleton(root, L1_INIT % names)
    nested.modules(kernel, L1_MODULES, root)
    pack(guest, root / "initramfs")
    shutil.copy(kernel / "vmlinuz", root)
    shutil.copytree(nested.firmware_of(qemu), root / "share")
    nested.install(root, qemu, "qemu")
    pack(root, packed)
    shutil.rmtree(root)
    shutil.rmtree(guest)
    return packed


def run(folder: Path, name: str, kernel: Path, unspin: Path, qemu: Path) -> tuple[str, str]:
    """Runs a cell. Returns its output, and the digest of its console and its record."""
    cell, _, given = name.partition(":")
    seed = given or "1"
    firmware = nested.firmware_of(qemu)
    initramfs = write_image(folder, cell, kernel, unspin, qemu)
    console, record = folder / f"{cell}.log", folder / f"{cell}.rec"
    host = f"virtual-host,id=host0,pcpus={PCPUS},quantum=500,instructions=2,prices=free"
    command = [qemu, "-L", firmware, "-machine", "q35", "-accel", "tcg,thread=single,tb-size=512"]
    command += ["-icount", "shift=0,sleep=off", "-rtc", "base=2020-01-01,clock=vm", "-seed", seed]
    command += ["-object", f"{host},seed={seed},record={record}", "-smp", str(PCPUS), "-m", "1536"]
    command += ["-cpu", nested.L1_CPU + ",-hypervisor,-monitor", "-nodefaults", "-no-user-config"]
    command += ["-no-reboot", "-display", "none", "-serial", f"file:{console}"]
    command += ["-kernel", kernel / "vmlinuz", "-initrd", initramfs, "-append", L1_APPEND]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*nested.LIMITED, str(LIMIT), *command], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    log = console.read_text(errors="replace") if console.exists() else done.stderr
    job, end = re.search(r"^Time: (\S+)", log, re.MULTILINE), re.search(r"L1: end, up (\S+) s", log)
    want(job and end, f"{cell}: it did not end (status {done.returncode})", log)
    both = hashlib.sha256(console.read_bytes() + record.read_bytes()).hexdigest()[:16]
    shown = f"job {job[1]} s, L1 {end[1]} s, {spent:.0f} s of this machine's CPU, digest {both}"
    return shown, both


def main() -> int:
    if {"-h", "--help"} & set(sys.argv) or len(sys.argv) < 2:
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    unspin, *names = sys.argv[1:]
    if unknown := {name.partition(":")[0] for name in names} - CELLS.keys():
        unknown = ", ".join(sorted(unknown))
        print(f"no such cell: {unknown}; there are {', '.join(CELLS)}", file=sys.stderr)
        return 2
    kernel = cached_kernel()
    reason = nested.missing(kernel) or ("" if shutil.which("hackbench") else "needs hackbench")
    qemu = lab_qemu(unspin).resolve()
    if not reason and not qemu.is_file():
        reason = "needs the lab's QEMU: unspin lab qemu build"
    if reason or kernel is None:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in names or CELLS:
                shown, digest = run(Path(folder), name, kernel, Path(unspin), qemu)
                print(f"{name}: {shown}", flush=True)
                same = digests.setdefault(name, digest) == digest
                want(same, f"{name}: the second run has other bytes")
        except Failed as error:
            print(f"FAILED: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures the speed of virtual time on this machine, and compares it with QEMU's own ways to run vCPUs: guest
instructions a second on one core, computing and spinning; this machine's CPU seconds for a vCPU-second; memory.
Needs a quiet machine. Prints claims for `unspin claims record`.
Usage: scripts/vt-speed.py [UNSPIN]
"""

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from claims import Claims, processor, spread

REPEATS = 6
ROUNDS = 500_000_000
INSTRUCTIONS_PER_ROUND = 2
HEADER, EVENT = 32, struct.Struct("<QBBHI")
ON, OFF, IDLE = 1, 2, 3


def initramfs(folder: Path) -> Path:
    """Makes the initramfs of a guest that consists of one static program."""
    root = folder / "root"
    for name in ("proc", "dev"):
        (root / name).mkdir(parents=True)
    source = Path(__file__).with_name("vt-speed.c")
    subprocess.run(["gcc", "-O1", "-static", "-pthread", "-o", root / "init", source], check=True)
    archive = folder / "initramfs"
    with archive.open("wb") as out:
        names = subprocess.run(["find", "."], cwd=root, check=True, capture_output=True).stdout
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=out, check=True
        )
    return archive


class Lab:
    """The lab's QEMU and a kernel."""

    def __init__(self, unspin: str, folder: Path) -> None:
        self.folder = folder
        show = subprocess.run([unspin, "lab", "qemu", "show", "--json"], capture_output=True)
        builds = json.loads(show.stdout)["builds"]
        current = next((b for b in builds if b.get("current")), None)
        if current is None:
            sys.exit(f"the lab's QEMU is not built: run `{unspin} lab qemu build`")
        self.qemu = current
        listed = subprocess.run([unspin, "lab", "kernel", "list", "--json"], capture_output=True)
        kernels = [k for k in json.loads(listed.stdout)["kernels"] if k["spec"] == "debian-cloud"]
        if not kernels:
            sys.exit(f"no kernel: run `{unspin} lab kernel fetch debian-cloud`")
        self.kernel = kernels[0]
        self.initramfs = initramfs(folder)

    def run(self, how: list[str], vcpus: int, speed: str) -> tuple[float, float, float]:
        """Runs a guest. Returns its CPU seconds, vCPU-seconds on (virtual time only) and MiB."""
        record = self.folder / "record.bin"
        record.unlink(missing_ok=True)
        command = [self.qemu["program"], "-L", self.qemu["firmware"], "-M", "q35", *how]
        command += ["-cpu", "max,-hypervisor,-monitor,-erms,-fsrm", "-smp", str(vcpus), "-m", "512"]
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        command += ["-serial", f"file:{self.folder / 'console'}", "-kernel", self.kernel["image"]]
        command += ["-initrd", str(self.initramfs), "-append"]
        command += [f"console=ttyS0 tsc=reliable mitigations=off cryptomgr.notests=1 speed={speed}"]
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{' '.join(command)}: wait status {status}")
        on = on_seconds(record.read_bytes(), vcpus) if record.exists() else 0.0
        return usage.ru_utime + usage.ru_stime, on, usage.ru_maxrss / 1024

    def virtual(self, pcpus: int) -> list[str]:
        host = f"virtual-host,id=host0,pcpus={pcpus},record={self.folder / 'record.bin'}"
        return [*ICOUNT, "-object", host]


ICOUNT = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]
ICOUNT += ["-rtc", "base=2020-01-01,clock=vm", "-seed", "1"]
MTTCG = ["-accel", "tcg,thread=multi"]


def on_seconds(record: bytes, vcpus: int) -> float:
    """Returns the total on time of the vCPUs in the virtual host's record, in seconds."""
    since: dict[int, int] = {}
    total = 0
    for ns, kind, _, entity, _ in EVENT.iter_unpack(record[HEADER:]):
        if entity >= vcpus or kind not in (ON, OFF, IDLE):
            continue
        if kind == ON:
            since[entity] = ns
        elif entity in since:
            total += ns - since.pop(entity)
    return total / 1e9


def main() -> None:
    unspin = sys.argv[1] if len(sys.argv) > 1 else "unspin"
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(unspin, Path(name))
        label = f"host: {processor()}; guest kernel {lab.kernel['release']}"
        claims = Claims(label, "vt-speed.py", "make vt-speed")
        computing, spinning, per_second, memory, icount, mttcg = [], [], [], [], [], []
        instructions = 2 * ROUNDS * INSTRUCTIONS_PER_ROUND
        for _ in range(REPEATS):
            boot, boot_on, _ = lab.run(lab.virtual(2), 2, "none")
            cpu, on, mib = lab.run(lab.virtual(2), 2, "compute")
            computing.append(instructions / (cpu - boot) / 1e6)
            per_second.append((cpu - boot) / (on - boot_on))
            memory.append(mib)
            boot, boot_on, _ = lab.run(lab.virtual(2), 4, "none")
            cpu, on, _ = lab.run(lab.virtual(2), 4, "spin")
            spinning.append((on - boot_on) * 1e3 / (cpu - boot))
            boot, _, _ = lab.run(ICOUNT, 2, "none")
            cpu, _, _ = lab.run(ICOUNT, 2, "compute")
            icount.append(instructions / (cpu - boot) / 1e6)
            boot, _, _ = lab.run(MTTCG, 2, "none")
            cpu, _, _ = lab.run(MTTCG, 2, "compute")
            mttcg.append(instructions / (cpu - boot) / 1e6)
            print(f"{computing[-1]:.0f} {spinning[-1]:.0f} {icount[-1]:.0f} {mttcg[-1]:.0f}",
                  file=sys.stderr)
    core = "on one core of this machine"
    for name, what, values, unit, target in (
        ("compute", f"million guest instructions a second {core}", computing, "M/s", ">= 420"),
        ("of_icount", "guest instructions a second, of those with QEMU's own icount in the same run",
         [here / there for here, there in zip(computing, icount)], "x", ""),
        ("spin", "virtual milliseconds of vCPU time a CPU second of this machine, all vCPUs spinning "
         "for a ticket lock", spinning, "ms", ">= 560"),
        ("vcpu_second", "CPU seconds of this machine for a second of a computing vCPU, that is, for "
         "2 x 10^9 guest instructions", per_second, "s", ""),
        ("memory", "memory of QEMU with a guest of 512 MiB", memory, "MiB", ""),
        ("icount", f"million guest instructions a second with QEMU's own icount, {core}", icount,
         "M/s", ""),
        ("mttcg", f"million guest instructions a second with multi-threaded TCG, {core}", mttcg,
         "M/s", ""),
    ):
        middle, interval = statistics.median(values), spread(values)
        reason = "this machine is slower than the one that the target comes from, with QEMU's own icount too"
        claims.add(f"vt.speed.{name}", what, middle, unit, len(values), target, interval,
                   reason if name == "compute" else "")
    print(claims.text())


if __name__ == "__main__":
    main()

"""A QEMU with the emulated SEV-ES platform: builds guests for it, runs them, and watches one."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from cache import cached_kernel
from checks import Failed
from claims import ROOT, Claims
from nested import LIMITED, archive, firmware_of, install, modules, skeleton, virtual
from nested import Bench as NestedBench

KERNEL = (cached_kernel() or Path("none")) / "vmlinuz"
SECONDS = 240
C_BIT = 47
APPEND = (
    "console=ttyS0 panic=-1 oops=panic random.trust_cpu=on no_timer_check tsc=reliable"
    " mitigations=off cryptomgr.notests=1"
)
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
echo "init: $(/bin/busybox nproc) CPUs"
[ -c /dev/vport0p1 ] && echo "by virtio: $(/bin/busybox nproc) CPUs" > /dev/vport0p1
[ -f /modules/virtio_blk.ko ] && /bin/busybox insmod /modules/virtio_blk.ko
[ -b /dev/vda ] && /bin/fio --name=disk --filename=/dev/vda --direct=1 --thread --rw=randwrite --bs=4k \
    --size=4m --verify=crc32c --verify_fatal=1 --output=/fio.txt && echo "fio: 4 MiB are as written"
[ -x /bin/hackbench ] && /bin/hackbench -g 4 -l 50
echo "init: end"
/bin/busybox poweroff -f
"""


class Bench:
    """The data that all checks share: programs, an initramfs, and a folder."""

    claims: Claims
    tries = 1

    def __init__(self, unspin: Path, qemu: Path, folder: Path):
        self.unspin, self.qemu, self.folder = unspin, qemu, folder
        self.firmware = firmware_of(qemu)
        self.initramfs = self.archived("initramfs", ("hackbench",))

    def archived(self, name: str, programs: tuple[str, ...], drivers: tuple[str, ...] = ()) -> Path:
        """Makes an initramfs with busybox, and with programs and their libraries."""
        out, root = self.folder / name, self.folder / f"{name}-root"
        if not out.exists():
            skeleton(root, INIT)
            modules(KERNEL.parent, drivers, root)
            for program in programs:
                install(root, Path(str(shutil.which(program))), program)
            archive(root, out)
        return out

    def igvm(
        self, name: str, vcpus: int, kernel: Path = KERNEL, memory: int = 512, initramfs: Path | None = None
    ) -> Path:
        """Builds a guest's IGVM file."""
        out = self.folder / f"{name}.igvm"
        command = [self.unspin, "igvm", "build", "--kernel", kernel, "--cbit", str(C_BIT), "-o", out]
        command += ["--vcpus", str(vcpus), "--memory", str(memory), "--append", APPEND]
        if kernel == KERNEL:
            command += ["--initramfs", initramfs or self.initramfs]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        return out

    def command(self, vcpus: int, pcpus: int, memory: int = 512, tcg: str = "") -> list[str]:
        """Returns the command of QEMU in virtual time, or in real time if `pcpus` is 0."""
        command = [str(self.qemu), "-L", str(self.firmware), "-machine", "q35"]
        if pcpus:
            command += ["-accel", "tcg,thread=single,tb-size=512", "-icount", "shift=0,sleep=off"]
            command += ["-rtc", "base=2020-01-01,clock=vm", "-seed", "7", "-object"]
            command += [
                f"virtual-host,id=host0,pcpus={pcpus},quantum=1000,prices=sev-es,seed=7,"
                "until=60000000000,record=record.bin,record-exits=on,pv-unhalt=on,pv-ipi=on"
            ]
        else:
            command += ["-accel", f"tcg{tcg}"]
        command += ["-cpu", f"max,phys-bits={C_BIT + 1},-monitor,-erms,-fsrm", "-smp", str(vcpus)]
        command += ["-m", f"{memory}M", "-display", "none", "-nodefaults", "-no-user-config"]
        return [*command, "-no-reboot", "-serial", "file:console.log"]

    def run(self, name: str, command: list[str], seconds: int = SECONDS) -> tuple[int, str, Path]:
        """Returns exit status, console, and the run's folder. A guest that exceeds its time is ended: status
        124."""
        folder = self.folder / name
        folder.mkdir()
        limited = [*LIMITED, str(seconds), *command]
        done = subprocess.run(limited, cwd=folder, capture_output=True, text=True)
        console = (folder / "console.log").read_text(errors="replace")
        return done.returncode, console + done.stderr, folder

    def confidential(self, igvm: Path, more: str = "") -> list[str]:
        return ["-object", f"sev-es-emulated,id=es0,igvm={igvm}{more}"]


def test_kernel(folder: Path, *options: str, name: str = "guest.c") -> Path:
    """Builds a file of tests/sev-es as a bzImage."""
    source, elf, raw = ROOT / "tests/sev-es", folder / "guest.elf", folder / "guest.bin"
    flags = "-O1 -ffreestanding -fno-pic -fno-pie -mno-red-zone -mgeneral-regs-only -w -Wno-main"
    flags += " -fno-stack-protector -fcf-protection=none -nostdlib -static -Wl,--build-id=none"
    command = ["gcc", *flags.split(), f"-Wl,-T,{source}/guest.ld", "-Wl,--no-warn-rwx-segments"]
    subprocess.run([*command, *options, "-o", elf, source / name], check=True)
    subprocess.run(["objcopy", "-O", "binary", elf, raw], check=True)
    # The 64-bit entry is 0x200 bytes after the start of the code.
    code = bytes(0x200) + raw.read_bytes()
    code += bytes(-len(code) % 16)
    image = bytearray(1024)
    for at, form, value in [
        (0x1F1, "<B", 1),
        (0x1F4, "<I", len(code) // 16),
        (0x1FE, "<I", 0x6AEBAA55),
        (0x202, "<4s", b"HdrS"),
        (0x206, "<H", 0x20F),
        (0x22C, "<I", 0x7FFFFFFF),
        (0x236, "<H", 3),
        (0x238, "<I", 2047),
        (0x258, "<Q", 0x1000000),
        (0x260, "<I", 0x400000),
    ]:
        struct.pack_into(form, image, at, value)
    kernel = folder / "guest.bzimage"
    kernel.write_bytes(bytes(image) + code)
    return kernel


class Monitor:
    """A QMP connection and its QEMU process."""

    def __init__(self, path: Path, pid: int):
        self.pid = pid
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rw")
        self.lines.readline()
        self.ask("qmp_capabilities")

    def ask(self, execute: str, **arguments: object) -> object:
        self.lines.write(json.dumps({"execute": execute, "arguments": arguments}) + "\n")
        self.lines.flush()
        while True:
            answer = json.loads(self.lines.readline())
            if "return" in answer or "error" in answer:
                return answer.get("return")


def watched(
    bench: Bench, name: str, command: list[str], done: Callable[[str, Monitor], bool], seconds: int = SECONDS
) -> str:
    """Runs until `done` returns true for the console and the monitor. Returns the console."""
    folder = bench.folder / name
    folder.mkdir()
    command = [*command, "-qmp", "unix:qmp,server=on,wait=off"]
    complaints = folder / "stderr.log"
    with complaints.open("wb") as file:
        guest = subprocess.Popen(command, cwd=folder, stderr=file)

    def goes_on() -> None:
        if guest.poll() is not None:
            said = complaints.read_text(errors="replace")[-2000:]
            said += (folder / "console.log").read_text(errors="replace")[-2000:]
            raise Failed(f"{name}: QEMU ended by itself with status {guest.returncode}\n{said}")

    try:
        for _ in range(100):
            goes_on()
            if (folder / "qmp").exists():
                break
            time.sleep(0.1)
        monitor = Monitor(folder / "qmp", guest.pid)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.5)
            console = (folder / "console.log").read_text(errors="replace")
            try:
                if done(console, monitor):
                    return console
            except (OSError, ValueError):
                # The monitor has closed.
                goes_on()
                raise
            goes_on()
        raise Failed(f"{name}: nothing in {seconds} s\n{console[-2000:]}")
    finally:
        try:
            guest.wait(2)
        except subprocess.TimeoutExpired:
            guest.kill()
            guest.wait()


def lab_qemu(unspin: str) -> Path:
    """Returns the program of `unspin lab qemu build`."""
    named = os.environ.get("UNSPIN_VT_QEMU")
    if named:
        return Path(named)
    show = [unspin, "lab", "qemu", "show", "--json"]
    shown = subprocess.run(show, capture_output=True, text=True)
    builds = json.loads(shown.stdout)["builds"] if not shown.returncode else []
    return next((Path(build["program"]) for build in builds if build.get("current")), Path("none"))


def in_virtual_time(
    bench: NestedBench,
    name: str,
    script: Callable[[int], str],
    rounds: int,
    jobs: int,
    **more: Any,
) -> list[str]:
    """Returns the output of one L1 per round, `jobs` at a time. The seeds are 1 to `rounds`, and `script`
    returns what the L1 of a seed runs. `more` goes to `bench.run`."""
    qemu = lab_qemu(str(bench.unspin)).resolve()

    def one(seed: int) -> str:
        log = bench.run(f"{name}-{seed}", script(seed), machine=partial(virtual, qemu, seed), **more)
        print(f"{name}: seed {seed} of {rounds} is done", file=sys.stderr, flush=True)
        return log

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(1, rounds + 1)))


def missing(qemu: Path) -> str:
    """Returns a message about a missing dependency, or an empty string."""
    if not KERNEL.is_file():
        return "needs Debian's cloud kernel: unspin lab kernel fetch debian-cloud"
    for program, package in (
        ("gcc", "gcc"),
        ("cpio", "cpio"),
        ("hackbench", "rt-tests"),
        ("fio", "fio"),
        ("/usr/bin/busybox", "busybox-static"),
    ):
        if not shutil.which(program):
            return f"needs {program}: apt install {package}"
    if not shutil.which(str(qemu)):
        return "needs the lab's QEMU: unspin lab qemu build"
    objects = subprocess.run([qemu, "-object", "help"], capture_output=True, text=True).stdout
    return "" if "sev-es-emulated" in objects else f"{qemu} has no sev-es-emulated"

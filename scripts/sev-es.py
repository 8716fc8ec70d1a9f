#!/usr/bin/env python3
"""Whether a stock kernel boots as a guest of the emulated SEV-ES platform, and fails where it must.
Usage: scripts/sev-es.py UNSPIN CLAIMS [CHECK...]; returns 77 where something it needs is missing.

QEMU is the lab's, or what UNSPIN_VT_QEMU names. The checks are: guest, ends, boot, twice, smp,
access, cbit, plain. Writes what `unspin claims record` takes into the file CLAIMS.
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from checks import Failed, claims_that, run, want
from claims import Claims

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "unspin"
KERNEL = CACHE / "kernels/debian-cloud-7.3.4/vmlinuz"
SECONDS = 240
C_BIT = 47
# tests/sev-es/guest.c: what the hypervisor must not see, and what it must.
CANARY = struct.pack("<Q", 0x5EC2E7CA9A21F00D)
SHOWN = struct.pack("<Q", 0x0BE9CA9A215E7000)
LABEL = "emulated SEV-ES, in the lab's QEMU"
FEATURES = "Memory Encryption Features active: AMD SEV SEV-ES"
APPEND = (
    "console=ttyS0 panic=-1 oops=panic random.trust_cpu=on no_timer_check tsc=reliable"
    " mitigations=off cryptomgr.notests=1"
)
INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
echo "init: $(/bin/busybox nproc) CPUs"
[ -c /dev/vport0p1 ] && echo "by virtio: $(/bin/busybox nproc) CPUs" > /dev/vport0p1
[ -x /bin/hackbench ] && /bin/hackbench -g 4 -l 50
echo "init: end"
/bin/busybox poweroff -f
"""
SERIAL_DEVICE = "virtio-serial-pci,ioeventfd=off,disable-legacy=on"
PORT = ["-chardev", "file,id=out,path=port.txt", "-device", "virtserialport,chardev=out,name=out"]


class Bench:
    """What all checks share: programs, an initramfs, and a folder."""

    claims: Claims
    tries = 1

    def __init__(self, unspin: Path, qemu: Path, folder: Path):
        self.unspin, self.qemu, self.folder = unspin, qemu, folder
        self.firmware = qemu.parent.parent / "share/qemu"
        if not self.firmware.is_dir():
            found = sorted(CACHE.glob("qemu/*/share/qemu"))
            self.firmware = found[-1] if found else self.firmware
        self.initramfs = folder / "initramfs"
        self.initramfs.write_bytes(initramfs(folder / "root"))

    def igvm(self, name: str, vcpus: int, kernel: Path = KERNEL, memory: int = 512) -> Path:
        """A guest's file."""
        out = self.folder / f"{name}.igvm"
        command = [self.unspin, "igvm", "build", "--kernel", kernel, "--cbit", str(C_BIT), "-o", out]
        command += ["--vcpus", str(vcpus), "--memory", str(memory), "--append", APPEND]
        if kernel == KERNEL:
            command += ["--initramfs", self.initramfs]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        return out

    def command(self, vcpus: int, pcpus: int, memory: int = 512, tcg: str = "") -> list[str]:
        """QEMU in virtual time; without pCPUs, in real time."""
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
        """Exit status, console, and the run's folder. A guest that goes on is ended: status 124."""
        folder = self.folder / name
        folder.mkdir()
        limited = ["timeout", str(seconds), *command]
        done = subprocess.run(limited, cwd=folder, capture_output=True, text=True)
        console = (folder / "console.log").read_text(errors="replace")
        return done.returncode, console + done.stderr, folder

    def confidential(self, igvm: Path, more: str = "") -> list[str]:
        return ["-object", f"sev-es-emulated,id=es0,igvm={igvm}{more}"]


def initramfs(root: Path) -> bytes:
    """busybox, and hackbench with its libraries where it is installed."""
    (root / "bin").mkdir(parents=True)
    for name in ("dev", "proc"):
        (root / name).mkdir()
    shutil.copy("/usr/bin/busybox", root / "bin")
    hackbench = shutil.which("hackbench")
    if hackbench:
        shutil.copy(hackbench, root / "bin")
        for word in subprocess.check_output(["ldd", hackbench], text=True).split():
            if word.startswith("/"):
                (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, root / word[1:])
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    cpio = ["cpio", "-o", "-H", "newc", "--quiet", "--reproducible"]
    return subprocess.run(cpio, cwd=root, input=names.encode(), check=True, capture_output=True).stdout


def test_kernel(folder: Path, *options: str) -> Path:
    """tests/sev-es/guest.c as a bzImage."""
    source, elf, raw = ROOT / "tests/sev-es", folder / "guest.elf", folder / "guest.bin"
    flags = "-O1 -ffreestanding -fno-pic -fno-pie -mno-red-zone -mgeneral-regs-only -w -Wno-main"
    flags += " -fno-stack-protector -fcf-protection=none -nostdlib -static -Wl,--build-id=none"
    command = ["gcc", *flags.split(), f"-Wl,-T,{source}/guest.ld", "-Wl,--no-warn-rwx-segments"]
    subprocess.run([*command, *options, "-o", elf, source / "guest.c"], check=True)
    subprocess.run(["objcopy", "-O", "binary", elf, raw], check=True)
    # The 64-bit entry is 0x200 bytes behind the begin of the code.
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
    """QMP."""

    def __init__(self, path: Path):
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


def watched(bench: Bench, name: str, command: list[str], done: Callable[[str, Monitor], bool]) -> str:
    """Runs until `done` with the console and the monitor says so."""
    folder = bench.folder / name
    folder.mkdir()
    command = [*command, "-qmp", "unix:qmp,server=on,wait=off"]
    guest = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if (folder / "qmp").exists():
                break
            time.sleep(0.1)
        monitor = Monitor(folder / "qmp")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(0.5)
            console = (folder / "console.log").read_text(errors="replace")
            if done(console, monitor):
                return console
        raise Failed(f"{name}: nothing in {SECONDS} s\n{console[-2000:]}")
    finally:
        try:
            guest.wait(2)
        except subprocess.TimeoutExpired:
            guest.kill()
            guest.wait()


@claims_that(
    ("cvm.gate.a1", "the test guest judges every answer right, QEMU with emulated SEV-ES"),
    ("cvm.canaries", "a guest's canaries are in nothing that the hypervisor sees, and what it shows is found"),
)
def check_guest(bench: Bench) -> str:
    """The test guest judges every answer; its canaries are neither in what the hypervisor sees nor
    in shared memory, and what it shows is found by the same search."""
    memory = 64
    igvm = bench.igvm("guest", 1, test_kernel(bench.folder), memory)
    command = bench.command(1, 0, memory) + bench.confidential(igvm, ",x-record=seen")
    command[command.index("-cpu") + 1] = f"max,phys-bits={C_BIT + 1}"
    folder = bench.folder / "guest"

    def done(console: str, monitor: Monitor) -> bool:
        if "guest: " not in console:
            return False
        for start, file in ((0, "shared"), (1 << C_BIT, "private")):
            monitor.ask("pmemsave", val=start, size=memory << 20, filename=file)
        monitor.ask("quit")
        return True

    console = watched(bench, "guest", command, done)
    failures = "\n".join(line for line in console.splitlines() if not line.startswith("ok "))
    want("guest: passed" in console and "FAIL" not in console, "the test guest failed", failures)
    seen, shared, private = ((folder / name).read_bytes() for name in ("seen", "shared", "private"))
    want(SHOWN in seen and SHOWN in shared, "what the guest shows was not found")
    want(CANARY in private, "the canaries are not in private memory")
    want(CANARY not in seen, "the hypervisor saw a canary")
    want(CANARY not in shared, "a canary is in shared memory")
    exits = console.count("ok  ")
    return f"{exits} answers as they must be; no canary in {len(seen)} bytes that the hypervisor saw"


def check_ends(bench: Bench) -> str:
    """A guest that asks for its termination gets it, with QEMU's status 5 and its reason."""
    igvm = bench.igvm("ends", 1, test_kernel(bench.folder, "-DTERMINATES"), 64)
    for pcpus in (0, 1):
        status, log, _ = bench.run(f"ends-{pcpus}", bench.command(1, pcpus, 64) + bench.confidential(igvm))
        want(status == 5 and "reason set 1, reason 2" in log, f"status {status}", log)
    return "status 5"


@claims_that(
    ("cvm.gate.a2", "Debian's unmodified kernel boots with one vCPU, QEMU with emulated SEV-ES"),
)
def check_boot(bench: Bench) -> str:
    """A stock kernel with one vCPU, in real time."""
    command = bench.command(1, 0) + bench.confidential(bench.igvm("boot", 1))
    status, log, _ = bench.run("boot", command)
    want(status == 0 and FEATURES in log and "init: end" in log, "it did not boot", log)
    return FEATURES


def check_twice(bench: Bench) -> str:
    """In virtual time, the same bytes twice."""
    igvm = bench.igvm("twice", 1)
    files = []
    for name in ("first", "second"):
        status, log, folder = bench.run(name, bench.command(1, 1) + bench.confidential(igvm))
        want(status == 0 and FEATURES in log and "init: end" in log, "it did not boot", log)
        files.append([(folder / file).read_bytes() for file in ("console.log", "record.bin")])
    want(files[0] == files[1], "two runs differ")
    return f"{len(files[0][1])} bytes of record are the same"


@claims_that(
    ("cvm.gate.a3", "Debian's unmodified kernel boots with 4 and 8 vCPUs, uses a virtio device, and hackbench ends"),
)
def check_smp(bench: Bench) -> str:
    """4 and 8 vCPUs on 2 pCPUs, a virtio device behind swiotlb, hackbench to its end; 4 in real time
    with a thread for each vCPU."""
    for vcpus, pcpus in ((4, 2), (8, 2), (4, 0)):
        name = f"smp-{vcpus}-{pcpus}"
        command = bench.command(vcpus, pcpus, tcg=",thread=multi")
        command += bench.confidential(bench.igvm(name, vcpus))
        command += ["-device", f"{SERIAL_DEVICE},iommu_platform=on", *PORT]
        status, log, folder = bench.run(name, command)
        want(status == 0 and FEATURES in log and "init: end" in log, f"{name} did not end", log)
        port = (folder / "port.txt").read_text()
        want(port == f"by virtio: {vcpus} CPUs\n", f"{name}: the device wrote {port!r}", log)
        want("Time:" in log, f"{name}: hackbench (rt-tests) did not end", log)
    return "4 and 8 vCPUs"


@claims_that(
    ("cvm.must_fail.access", "the guest refuses a device that would need private memory"),
)
def check_access(bench: Bench) -> str:
    """Must fail: a device that would need private memory is refused by the guest."""
    command = bench.command(1, 1) + bench.confidential(bench.igvm("access", 1))
    status, log, folder = bench.run("access", [*command, "-device", SERIAL_DEVICE, *PORT])
    refusal = "device must provide VIRTIO_F_ACCESS_PLATFORM"
    want(status == 0 and refusal in log, "it was not refused", log)
    want((folder / "port.txt").read_bytes() == b"", "the device was used")
    return refusal


@claims_that(
    ("cvm.must_fail.cbit", "the guest stops under a host that lies about the C-bit"),
)
def check_cbit(bench: Bench) -> str:
    """Must fail: under a host that lies about the C-bit, the guest stops in sev_verify_cbit, which
    leaves a stack pointer that no other code has."""
    lie = f",x-reported-cbit={C_BIT - 1}"
    command = bench.command(1, 0) + bench.confidential(bench.igvm("cbit", 1), lie)
    registers = ""

    def done(_: str, monitor: Monitor) -> bool:
        nonlocal registers
        line = "info registers"
        registers = str(monitor.ask("human-monitor-command", **{"command-line": line}))
        return "HLT=1" in registers

    console = watched(bench, "cbit", command, done)
    want(console == "", "the kernel went on", console)
    want("RSP=fffffffffffff000" in registers, "it stopped elsewhere", registers)
    return "halted with RSP=fffffffffffff000"


def check_plain(bench: Bench) -> str:
    """The same file's kernel without the platform starts firmware, and knows nothing of SEV."""
    command = [*bench.command(1, 0), "-kernel", str(KERNEL), "-initrd", str(bench.initramfs)]
    status, log, _ = bench.run("plain", [*command, "-append", APPEND])
    want(status == 0 and "init: end" in log and "AMD SEV" not in log, "it is not plain", log)
    return "no memory encryption"


CHECKS = (
    check_guest,
    check_ends,
    check_boot,
    check_twice,
    check_smp,
    check_access,
    check_cbit,
    check_plain,
)


def lab_qemu(unspin: str) -> Path:
    """The program of `unspin lab qemu build`."""
    named = os.environ.get("UNSPIN_VT_QEMU")
    if named:
        return Path(named)
    shown = subprocess.run([unspin, "lab", "qemu", "show"], capture_output=True, text=True).stdout
    current = shown.partition("(current)")[2].split()
    return Path(current[current.index("program") + 1]) if "program" in current else Path("none")


def missing(qemu: Path) -> str:
    """What cannot be done without, or nothing."""
    if not KERNEL.is_file():
        return "needs Debian's cloud kernel: unspin lab kernel fetch debian-cloud"
    for program, package in (
        ("gcc", "gcc"),
        ("cpio", "cpio"),
        ("hackbench", "rt-tests"),
        ("/usr/bin/busybox", "busybox-static"),
    ):
        if not shutil.which(program):
            return f"needs {program}: apt install {package}"
    if not shutil.which(str(qemu)):
        return "needs the lab's QEMU: unspin lab qemu build"
    objects = subprocess.run([qemu, "-object", "help"], capture_output=True, text=True).stdout
    return "" if "sev-es-emulated" in objects else f"{qemu} has no sev-es-emulated"


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    unspin, file, *names = sys.argv[1:]
    qemu = lab_qemu(unspin)
    reason = missing(qemu)
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(unspin).resolve(), qemu.resolve(), Path(folder))
        bench.claims = Claims(LABEL, "sev-es.py", "make sev-es")
        return run(CHECKS, names, bench, file)


if __name__ == "__main__":
    sys.exit(main())

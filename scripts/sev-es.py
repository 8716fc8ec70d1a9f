#!/usr/bin/env python3
"""Checks that a stock kernel boots as a guest of the emulated SEV-ES platform, and fails where it must.
Usage: scripts/sev-es.py UNSPIN CLAIMS [CHECK...]; returns 77 if a dependency is missing.

QEMU is the lab's, or the one that UNSPIN_VT_QEMU names. The checks are: guest, ends, stock (needs the network),
measured, boot, twice, nae, smp, access, cbit, plain, and fuzz, which takes minutes and runs only by name. Writes
claims for `unspin claims record` into the file CLAIMS.
"""

import hashlib
import json
import secrets
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import nae
import vmsa
from checks import claims_that, only_by_name, run, want
from claims import Claims
from sev_es_bench import APPEND, C_BIT, KERNEL, SECONDS, Bench, Monitor, lab_qemu, missing, test_kernel, watched
from stock_kernel import as_packaged, loaded

# Constants of tests/sev-es/guest.c: a random value that the hypervisor must not see, and one that it must
# see.
CANARY = secrets.token_bytes(8)
SHOWN = struct.pack("<Q", 0x0BE9CA9A215E7000)
# The guest puts the value together at run time, so its file does not have it.
PART = secrets.randbits(64)
PARTS = (f"-DCANARY_LEFT={PART:#x}ul", f"-DCANARY_RIGHT={PART ^ int.from_bytes(CANARY, 'little'):#x}ul")
# Offsets of registers in a VMSA: AMD's manual, volume 2, table B-4.
LABEL = "emulated SEV-ES, in the lab's QEMU"
FEATURES = "Memory Encryption Features active: AMD SEV SEV-ES"
SERIAL_DEVICE = "virtio-serial-pci,ioeventfd=off,disable-legacy=on"
DISK_DEVICE = "virtio-blk-pci,drive=disk,ioeventfd=off,disable-legacy=on"
PORT = ["-chardev", "file,id=out,path=port.txt", "-device", "virtserialport,chardev=out,name=out"]


def judged(bench: Bench, name: str, *options: str, record: bool = True, seconds: int = SECONDS) -> str:
    """Runs the test guest. Its canaries must appear neither in shared memory nor, if it is recorded, in the
    data that the hypervisor sees. The same search must find the value that the guest shows. QEMU's memory
    must not grow."""
    memory = 64
    igvm = bench.igvm(name, 1, test_kernel(bench.folder, *PARTS, *options), memory)
    command = bench.command(1, 0, memory) + bench.confidential(igvm, ",x-record=seen" if record else "")
    command[command.index("-cpu") + 1] = f"max,phys-bits={C_BIT + 1}"
    folder = bench.folder / name
    resident = []

    def done(console: str, monitor: Monitor) -> bool:
        if "fuzz: a tenth" in console:
            resident.append(private_kib(monitor.pid))
        if "guest: " not in console:
            return False
        for start, file in ((0, "shared"), (1 << C_BIT, "private")):
            monitor.ask("pmemsave", val=start, size=memory << 20, filename=file)
        monitor.ask("quit")
        return True

    console = watched(bench, name, command, done, seconds)
    failures = "\n".join(line for line in console.splitlines() if line.startswith(("FAIL", "  ")))
    want("guest: passed" in console and "FAIL" not in console, "the test guest failed", failures)
    want(CANARY in (folder / "private").read_bytes(), "the canaries are not in private memory")
    for what in ("seen", "shared") if record else ("shared",):
        found = (folder / what).read_bytes()
        want(SHOWN in found, f"what the guest shows is not in what is {what}")
        want(CANARY not in found, f"a canary is in what is {what}")
    want(max(resident) - resident[0] < 1024, f"QEMU's memory grows: {resident} KiB")
    size = f"{(folder / 'seen').stat().st_size} bytes that the hypervisor saw" if record else "shared memory"
    return f"{console.count('ok  ')} answers as they must be; no canary in {size}"


def private_kib(pid: int) -> int:
    """Returns the private memory of a process in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])


@claims_that(
    ("cvm.gate.a1", "the test guest judges every answer right, QEMU with emulated SEV-ES"),
    ("cvm.canaries", "a guest's canaries are in nothing that the hypervisor sees, and what it shows is found"),
)
def check_guest(bench: Bench) -> str:
    """Runs the test guest, which judges every answer."""
    return judged(bench, "guest")


@claims_that(
    ("cvm.ghcb_fuzz", "each of a million random GHCB pages is answered, QEMU with emulated SEV-ES"),
)
@only_by_name
def check_fuzz(bench: Bench) -> str:
    """Runs the test guest with a million random GHCB pages. It records nothing, because a record would take 4
    GB."""
    return judged(bench, "fuzz", "-DFUZZ_ROUNDS=1000000", record=False, seconds=1200)


def check_ends(bench: Bench) -> str:
    """Checks that a guest can request its termination. QEMU must exit with status 5 and the guest's
    reason."""
    igvm = bench.igvm("ends", 1, test_kernel(bench.folder, "-DTERMINATES"), 64)
    for pcpus in (0, 1):
        status, log, _ = bench.run(f"ends-{pcpus}", bench.command(1, pcpus, 64) + bench.confidential(igvm))
        want(status == 5 and "reason set 1, reason 2" in log, f"status {status}", log)
    return "status 5"


@claims_that(
    ("cvm.stock_kernel", "the kernel that the checks boot is, byte by byte, the one in Debian's package"),
)
def check_stock(bench: Bench) -> str:
    """Compares the kernel that the other checks boot with the one in Debian's package, and looks for it in a
    guest's file."""
    says = as_packaged(KERNEL.parent)
    want(loaded(KERNEL) in bench.igvm("stock", 1).read_bytes(), "the guest's file has another kernel")
    return says


def launch_digest(monitor: Monitor, shown: dict, vmsas: bytes, folder: Path) -> str:
    """Returns the SHA-256 of a stopped guest's private memory, wherever its file has contents, in the file's
    order, and of the VMSAs, which lie outside of memory."""
    digest = hashlib.sha256()
    parts = [part for part in shown["ranges"] if part["kind"] == "normal" and part["measured"] == "contents"]
    for part in sorted(parts, key=lambda part: part["directive"]):
        start = 1 << C_BIT | int(part["start"], 16)
        monitor.ask("pmemsave", val=start, size=part["bytes"], filename="part")
        digest.update((folder / "part").read_bytes())
    return digest.update(vmsas) or digest.hexdigest()


@claims_that(
    ("cvm.igvm_digests.loaded", "the digest of a loaded guest's memory is its IGVM file's, QEMU with emulated SEV-ES"),
)
def check_measured(bench: Bench) -> str:
    """Checks that memory and registers match the digest of `unspin igvm measure` before the first
    instruction. Once the guest runs, its memory must have another digest."""
    vcpus = 4
    igvm = bench.igvm("measured", vcpus)
    shown, measured = (
        json.loads(subprocess.check_output([bench.unspin, "igvm", verb, "--json", igvm]))
        for verb in ("show", "measure")
    )
    (file,) = measured["digests"]
    # The file ends with the first vCPU's VMSA, and with the VMSA that all other vCPUs share.
    first, other = igvm.read_bytes()[-8192:-4096], igvm.read_bytes()[-4096:]
    vmsas = first + (vcpus - 1) * other
    digests: list[str] = []
    registers = ""

    def done(console: str, monitor: Monitor) -> bool:
        nonlocal registers
        if digests and "Linux version" not in console:
            return False
        if not digests:
            registers = str(monitor.ask("human-monitor-command", **{"command-line": "info registers"}))
        monitor.ask("stop")
        digests.append(launch_digest(monitor, shown, vmsas, bench.folder / "measured"))
        monitor.ask("cont" if len(digests) == 1 else "quit")
        return len(digests) == 2

    watched(bench, "measured", [*bench.command(vcpus, 0), *bench.confidential(igvm), "-S"], done)
    want(digests[0] == file["digest"], f"loaded {digests[0]}, measured {file['digest']}")
    want(digests[1] != digests[0], "the digest of a guest that runs is the same")
    compared = vmsa.compared(registers, first)
    return f"{file['measured_pages']} pages, {digests[0]}, {compared}"


@claims_that(
    ("cvm.gate.a2", "Debian's unmodified kernel boots with one vCPU, QEMU with emulated SEV-ES"),
)
def check_boot(bench: Bench) -> str:
    """Boots a stock kernel with one vCPU, in real time."""
    command = bench.command(1, 0) + bench.confidential(bench.igvm("boot", 1))
    status, log, _ = bench.run("boot", command)
    want(status == 0 and FEATURES in log and "init: end" in log, "it did not boot", log)
    return FEATURES


def check_twice(bench: Bench) -> str:
    """Checks that two runs in virtual time yield the same bytes."""
    igvm = bench.igvm("twice", 1)
    files = []
    for name in ("first", "second"):
        status, log, folder = bench.run(name, bench.command(1, 1) + bench.confidential(igvm))
        want(status == 0 and FEATURES in log and "init: end" in log, "it did not boot", log)
        files.append([(folder / file).read_bytes() for file in ("console.log", "record.bin")])
    want(files[0] == files[1], "two runs differ")
    return f"{len(files[0][1])} bytes of record are the same"


def check_nae(bench: Bench) -> str:
    """Counts what a stock kernel with four vCPUs does that SEV-ES gives back to it as #VC. The simulated host
    must have handled none of it without #VC."""
    more = [*bench.confidential(bench.igvm("nae", 4), ",x-record=seen"), "-d", "int", "-D", "int.log"]
    status, log, folder = bench.run("nae", [*bench.command(4, 2), *more])
    want(status == 0 and FEATURES in log and "init: end" in log, "it did not boot", log)
    without, says = nae.simulated(folder)
    what = "NAE exits that the host handled without #VC, Debian's kernel with four vCPUs, QEMU with emulated SEV-ES"
    bench.claims.add("cvm.nae_without_vc", what, without, "", 1, "<= 0")
    want(without == 0, says)
    return says


@claims_that(
    ("cvm.gate.a3", "Debian's unmodified kernel boots with 4 and 8 vCPUs, uses virtio devices, and fio and hackbench end"),
)
def check_smp(bench: Bench) -> str:
    """Boots 4 and 8 vCPUs, on 2 pCPUs, and in real time with a thread for each vCPU. The guest uses a virtio
    port behind swiotlb and runs hackbench to its end. In real time, fio also writes and verifies a virtio
    disk, because virtual time has no disks."""
    for vcpus, pcpus in ((4, 2), (8, 2), (4, 0), (8, 0)):
        name = f"smp-{vcpus}-{pcpus}"
        command = bench.command(vcpus, pcpus, tcg=",thread=multi")
        disks = ("hackbench", "fio"), ("virtio_blk",)
        initramfs = None if pcpus else bench.archived("initramfs-disk", *disks)
        command += bench.confidential(bench.igvm(name, vcpus, initramfs=initramfs))
        command += ["-device", f"{SERIAL_DEVICE},iommu_platform=on", *PORT]
        if not pcpus:
            disk = bench.folder / f"{name}.img"
            disk.write_bytes(bytes(8 << 20))
            command += ["-drive", f"if=none,id=disk,format=raw,file={disk}"]
            command += ["-device", f"{DISK_DEVICE},iommu_platform=on"]
        status, log, folder = bench.run(name, command)
        want(status == 0 and FEATURES in log and "init: end" in log, f"{name} did not end", log)
        port = (folder / "port.txt").read_text()
        want(port == f"by virtio: {vcpus} CPUs\n", f"{name}: the device wrote {port!r}", log)
        as_written = pcpus or "fio: 4 MiB are as written" in log
        want(as_written, f"{name}: fio did not verify what it wrote", log)
        want("Time:" in log, f"{name}: hackbench (rt-tests) did not end", log)
    return "4 and 8 vCPUs"


@claims_that(
    ("cvm.must_fail.access", "the guest refuses a device that would need private memory"),
)
def check_access(bench: Bench) -> str:
    """Must fail: the guest refuses a device that would need private memory."""
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
    """Must fail: if the host lies about the C-bit, the guest stops in sev_verify_cbit, which leaves a stack
    pointer that no other code has."""
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
    """Checks that the same kernel starts through firmware without the platform, and does not report SEV."""
    command = [*bench.command(1, 0), "-kernel", str(KERNEL), "-initrd", str(bench.initramfs)]
    status, log, _ = bench.run("plain", [*command, "-append", APPEND])
    want(status == 0 and "init: end" in log and "AMD SEV" not in log, "it is not plain", log)
    return "no memory encryption"


CHECKS = (
    check_guest,
    check_fuzz,
    check_ends,
    check_stock,
    check_measured,
    check_boot,
    check_twice,
    check_nae,
    check_smp,
    check_access,
    check_cbit,
    check_plain,
)


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

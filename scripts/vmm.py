#!/usr/bin/env python3
"""Whether unspin-vmm runs stock guests on a real KVM, which runs in an emulated machine.
Usage: scripts/vmm.py UNSPIN-VMM UNSPIN [CHECK...]; returns 77 where something it needs is missing.

QEMU emulates AMD's SVM for an L1 with Debian's cloud kernel and its kvm_amd. The guests, L2, have
the same kernel. Each check boots an L1 of its own. The checks are: linux, smp, ends, igvm, refused,
block, net, console, interrupt, memory.
"""

import hashlib
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


def check_smp(bench: Bench) -> str:
    """Four vCPUs on the L1's two CPUs; each is a core of one package."""
    do = "grep -c . /sys/devices/system/cpu/cpu0/topology/core_siblings_list /proc/interrupts;"
    do += "echo package $(cat /sys/devices/system/cpu/cpu0/topology/package_cpus_list)"
    log = bench.run("smp", guest(do, vcpus=4))
    want(statuses(log) == [0] and "init: 4 CPUs" in log, "not all vCPUs came", log)
    want("package 0-3" in log, "the topology is another", log)
    return f"4 vCPUs, {up(log)}"


def check_ends(bench: Bench) -> str:
    """A reboot, a panic and a triple fault have their exit statuses, and SIGTERM ends a guest."""
    script = guest("reboot -f") + guest("echo c > /proc/sysrq-trigger")
    script += guest("reboot -f", append="reboot=triple")
    script += "sh -c 'sleep 12; kill -TERM $(pidof unspin-vmm)' &\n" + guest("sleep 1000", vcpus=2)
    log = bench.run("ends", script)
    want(statuses(log) == [3, 3, 4, 130], f"statuses {statuses(log)}", log)
    want("a triple fault" in log, "the triple fault has no message", log)
    return "3, 3, 4, 130"


def check_igvm(bench: Bench) -> str:
    """A native file boots like its kernel; what cannot be loaded is refused with its reason."""
    files = {}
    for platform in ("native", "sev-es"):
        out = bench.folder / f"{platform}.igvm"
        command = [bench.unspin, "igvm", "build", "--kernel", bench.kernel / "vmlinuz", "-o", out]
        command += ["--initramfs", bench.initramfs, "--platform", platform, "--vcpus", "2"]
        command += ["--append", f'{L2_APPEND} do="true"']
        words = [str(word) for word in command]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        files[out.name] = out.read_bytes()
    files["short.igvm"] = files["native.igvm"][:-1]
    vmm = "unspin-vmm --vcpus 2 --igvm"
    script = f"{vmm} /native.igvm < /dev/null; echo status $?\n"
    for words in ("/sev-es.igvm", "/native.igvm --memory 256", "/short.igvm"):
        script += f"{vmm} {words} < /dev/null; echo status $?\n"
    log = bench.run("igvm", script, files)
    want(statuses(log) == [0, 1, 1, 1] and "init: 2 CPUs" in log, f"{statuses(log)}", log)
    for reason in ("is for sev-es", "needs memory from", "has "):
        want(reason in log, f"no file was refused because it {reason}", log)
    return f"2 vCPUs, {up(log)}"


def check_block(bench: Bench) -> str:
    """What the guest writes is in the file; a read-only disk is not written."""
    size = 8 << 20
    disk = bytes(range(256)) * (size // 256)
    do = "md5sum /dev/vda; dd if=/dev/urandom of=/tmp.bin bs=1M count=5 2>/dev/null;"
    do += "dd if=/tmp.bin of=/dev/vda bs=1M seek=2 conv=fsync 2>/dev/null;"
    do += "echo 3 > /proc/sys/vm/drop_caches; md5sum /dev/vda; md5sum /dev/vdb;"
    do += "dd if=/tmp.bin of=/dev/vdb bs=1M conv=fsync 2>&1 | grep -c error; cat /sys/block/vdb/ro"
    script = "cp /disk.img /tmp/a; cp /disk.img /tmp/b\n"
    script += guest(do, "--disk /tmp/a --disk /tmp/b,ro") + "md5sum /tmp/a /tmp/b /disk.img\n"
    script += guest("true", "--disk /tmp/a --disk /tmp/a")
    log = bench.run("block", script, {"disk.img": disk})
    want(statuses(log) == [0, 1], f"statuses {statuses(log)}", log)
    sums = re.findall(r"^([0-9a-f]{32})  (\S+)", log, re.MULTILINE)
    want(len(sums) == 6, "not all sums came", log)
    (first, _), (second, _), (other, _), (a, _), (b, _), (before, _) = sums
    want(first == other == b == before, "a disk was read wrongly, or written", log)
    want(second == a != before, "what was written is not in the file", log)
    want("cannot lock /tmp/a" in log, "a disk was opened twice", log)
    return "5 MiB written and read back"


def check_net(bench: Bench) -> str:
    """Pings, and 4 MiB of TCP each way, through a tap interface, with one and two pairs of queues."""
    script = "dd if=/dev/urandom of=/tmp/sent bs=1M count=4 2>/dev/null; echo sum $(md5sum < /tmp/sent)\n"
    script += "mkdir /tmp/www; cp /tmp/sent /tmp/www; httpd -p 5000 -h /tmp/www\n"
    do = "ifconfig eth0 10.0.0.2 up; ping -c 3 10.0.0.1; wget -q -O /got http://10.0.0.1:5000/sent;"
    do += "httpd -p 80 -h /; until wget -q -O /flag http://10.0.0.1:5000/done; do sleep 1; done;"
    do += "ls -d /sys/class/net/eth0/queues/rx-*"
    for pairs in (1, 2):
        name = f"tap{pairs}"
        script += f"rm -f /tmp/www/done; ( until ifconfig {name} 10.0.0.1 up 2>/dev/null; do usleep 100000; done;"
        script += " until wget -q -O /tmp/back http://10.0.0.2/got 2>/dev/null; do sleep 1; done; sleep 1;"
        script += " wget -q -O /tmp/back http://10.0.0.2/got; echo sum $(md5sum < /tmp/back) > /tmp/sum;"
        script += " touch /tmp/www/done ) &\n"
        script += guest(do, f"--net tap={name},queues={pairs}", vcpus=2) + "wait; cat /tmp/sum\n"
    log = bench.run("net", script)
    sums = re.findall(r"^sum ([0-9a-f]{32})", log, re.MULTILINE)
    want(statuses(log) == [0, 0], f"statuses {statuses(log)}", log)
    want(log.count("3 packets received") == 2, "not all pings were answered", log)
    want(len(sums) == 3 and len(set(sums)) == 1, f"sums {sums}", log)
    want(log.count("queues/rx-1") == 1, "the second interface has not two queues", log)
    return "3 pings and 4 MiB each way, twice"


def check_console(bench: Bench) -> str:
    """The virtio console's output is in its file, and uses MSI-X."""
    do = "echo by virtio: $(nproc) CPUs > /dev/hvc0; seq 1 20000 > /dev/hvc0; sleep 1;"
    do += "grep -E 'virtio0' /proc/interrupts"
    log = bench.run("console", guest(do, "--console /tmp/console") + "md5sum /tmp/console\n")
    script = "by virtio: 1 CPUs\r\n" + "".join(f"{number}\r\n" for number in range(1, 20001))
    expected = hashlib.md5(script.encode()).hexdigest()
    want(statuses(log) == [0], f"statuses {statuses(log)}", log)
    want(expected in log, "the file has something else", log)
    want("MSI" in log, "it has no MSI-X", log)
    return f"{len(script)} bytes"


CHECKS = (
    check_linux,
    check_smp,
    check_ends,
    check_igvm,
    check_block,
    check_net,
    check_console,
)



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

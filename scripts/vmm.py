#!/usr/bin/env python3
"""Checks that unspin-vmm runs stock guests on a real KVM, in an emulated machine.
Usage: scripts/vmm.py UNSPIN-VMM UNSPIN CLAIMS [CHECK...]; returns 77 if a dependency is missing.

QEMU emulates AMD's SVM for an L1 with Debian's cloud kernel and its kvm_amd. The guests, L2, have
the same kernel. Each check boots its own L1. The checks are: linux, smp, ends, igvm, block, net,
console, held, and beside, whose L1 runs in virtual time. fuzz gives the device models malformed chains
without a guest; it takes minutes and runs only by name. Writes claims for `unspin claims record`
into the file CLAIMS.
"""

import hashlib
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from cache import cached_kernel
from checks import claims_that, only_by_name, run, want
from claims import ROOT, Claims, processor
from nested import L2_APPEND, Bench, missing, virtual
from ratio import ratio
from sev_es_bench import lab_qemu

LABEL = "kvm nested in tcg"
LABEL_VIRTUAL = "kvm nested in virtual time, prices free"
BESIDE_SECONDS = 1500
# Malformed chains for each device model in `fuzz`, and the models that the tests attack.
CHAINS = 1_000_000
MODELS = 4


def guest(do: str = "true", more: str = "", append: str = "", vcpus: int = 1) -> str:
    """Returns a shell line that runs an L2, whose init runs `do`."""
    line = shlex.quote(f'{L2_APPEND} {append} do="{do}"')
    return (
        f"unspin-vmm --kernel /vmlinuz --initramfs /initramfs --vcpus {vcpus} --append {line}"
        f" {more} < /dev/null; echo status $?\n"
    )


def statuses(log: str) -> list[int]:
    return [int(found) for found in re.findall(r"^status (\d+)", log, re.MULTILINE)]


def check_linux(bench: Bench) -> str:
    """Boots a stock kernel with one vCPU, which powers off by ACPI."""
    log = bench.run("linux", guest())
    want(statuses(log) == [0] and "init: 1 CPUs" in log, "it did not boot", log)
    version = re.search(r"Linux version (\S+)", log)
    return f"{version.group(1) if version else '?'}, {up(log)}"


def up(log: str) -> str:
    return "".join(re.findall(r"init: \d+ CPUs, (up \S+ s)", log)[:1])


@claims_that(
    ("cvm.vmm.smp", "Debian's unmodified kernel boots with four vCPUs in unspin-vmm, on a real KVM"),
)
def check_smp(bench: Bench) -> str:
    """Runs four vCPUs on the L1's two CPUs. Each vCPU is a core of one package."""
    do = "grep -c . /sys/devices/system/cpu/cpu0/topology/core_siblings_list /proc/interrupts;"
    do += "echo package $(cat /sys/devices/system/cpu/cpu0/topology/package_cpus_list)"
    log = bench.run("smp", guest(do, vcpus=4))
    want(statuses(log) == [0] and "init: 4 CPUs" in log, "not all vCPUs came", log)
    want("package 0-3" in log, "the topology is another", log)
    return f"4 vCPUs, {up(log)}"


def check_ends(bench: Bench) -> str:
    """Checks the exit statuses of a reboot, a panic and a triple fault, and that SIGTERM ends a guest."""
    script = guest("reboot -f") + guest("echo c > /proc/sysrq-trigger")
    script += guest("reboot -f", append="reboot=triple")
    script += "sh -c 'sleep 12; kill -TERM $(pidof unspin-vmm)' &\n" + guest("sleep 1000", vcpus=2)
    log = bench.run("ends", script)
    want(statuses(log) == [3, 3, 4, 130], f"statuses {statuses(log)}", log)
    want("a triple fault" in log, "the triple fault has no message", log)
    return "3, 3, 4, 130"


def check_igvm(bench: Bench) -> str:
    """Checks that a native file boots like its kernel, and that other files are refused with a reason."""
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
    """Checks that the guest's writes reach the file, and that a read-only disk stays unchanged."""
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
    """Sends pings, and 4 MiB of TCP each way, through a tap interface, with one and two queue pairs."""
    script = "dd if=/dev/urandom of=/tmp/sent bs=1M count=4 2>/dev/null; echo sum $(md5sum < /tmp/sent)\n"
    script += "mkdir /tmp/www; cp /tmp/sent /tmp/www; httpd -p 5000 -h /tmp/www\n"
    do = "ifconfig eth0 10.0.0.2 up; ping -c 3 10.0.0.1; wget -q -O /got http://10.0.0.1:5000/sent;"
    do += "httpd -p 80 -h /; until wget -q -O /flag http://10.0.0.1:5000/done; do sleep 1; done;"
    do += "ls -d /sys/class/net/eth0/queues/rx-*"
    for pairs in (1, 2):
        name = f"tap{pairs}"
        script += (
            f"rm -f /tmp/www/done; ( until ifconfig {name} 10.0.0.1 up 2>/dev/null; do usleep 100000; done;"
        )
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
    """Checks that the virtio console writes to its file and uses MSI-X."""
    do = "echo by virtio: $(nproc) CPUs > /dev/hvc0; seq 1 20000 > /dev/hvc0; sleep 1;"
    do += "grep -E 'virtio0' /proc/interrupts"
    log = bench.run("console", guest(do, "--console /tmp/console") + "md5sum /tmp/console\n")
    script = "by virtio: 1 CPUs\r\n" + "".join(f"{number}\r\n" for number in range(1, 20001))
    expected = hashlib.md5(script.encode()).hexdigest()
    want(statuses(log) == [0], f"statuses {statuses(log)}", log)
    want(expected in log, "the file has something else", log)
    want("MSI" in log, "it has no MSI-X", log)
    return f"{len(script)} bytes"


def check_held(bench: Bench) -> str:
    """Checks that seccomp confines all threads, and that the VMM takes little memory besides the guest's.
    Without KVM, the program must print the reason."""
    devices = "--disk /tmp/disk --net tap=tap0,queues=2 --console /tmp/console"
    script = "dd if=/dev/zero of=/tmp/disk bs=1M count=1 2>/dev/null\n"
    script += "( sleep 14; p=$(pidof unspin-vmm); echo threads $(ls /proc/$p/task | wc -l);"
    script += " echo confined $(grep -h Seccomp: /proc/$p/task/*/status | grep -c 2);"
    # The guest's memory is the only mapping of its size. All other mappings are the program's.
    script += " awk '/^[0-9a-f]+-/ { own = 1 } /^Size:/ { own = ($2 != 262144) }"
    script += ' /^Rss:/ && own { rss += $2 } END { print "held", rss }\' /proc/$p/smaps;'
    # The guest's kernel writes to the console in the meantime.
    script += " kill $p ) > /tmp/held &\n"
    script += guest("sleep 1000", f"--memory 256 {devices}", vcpus=2) + "wait; cat /tmp/held\n"
    script += "rm /dev/kvm\n" + guest()
    log = bench.run("held", script)
    want(statuses(log) == [130, 77] and "cannot open /dev/kvm" in log, f"{statuses(log)}", log)
    found = [re.search(rf"^{word} (\d+)", log, re.MULTILINE) for word in ("threads", "confined", "held")]
    threads, confined, held = (int(one.group(1)) if one else -1 for one in found)
    # Main, two vCPUs, console, disk, two queue pairs, and KVM's own thread since Linux 6.13.
    want(threads == confined >= 7, f"{confined} of {threads} threads are confined", log)
    want(held > 0, "no memory was counted", log)
    what = "memory that unspin-vmm holds beside its guest's"
    bench.claims.add("cvm.vmm.memory", what, held / 1024, "MiB", 1, "<= 20")
    want(held <= 20 * 1024, f"{held} KiB beside the guest's memory", log)
    return f"{threads} threads confined, {held} KiB beside the guest's memory"


def check_beside(bench: Bench) -> str:
    """Compares the time from start to power-off of a guest with four vCPUs with that of QEMU's q35 in the
    same L1: five times each, alternating. The L1 runs in virtual time, so this machine's load has no
    effect."""
    qemu_of_l1 = lab_qemu(str(bench.unspin))
    want(qemu_of_l1.is_file(), "needs the lab's QEMU: unspin lab qemu build")
    bench.qemu()
    line = shlex.quote(f'{L2_APPEND} do="true"')
    common = f"--kernel /vmlinuz --initramfs /initramfs --vcpus 4 --append {line}"
    qemu = "qemu -L /share -machine q35 -accel kvm -cpu host -smp 4 -m 512 -nodefaults -display none"
    qemu += f" -no-reboot -serial stdio -kernel /vmlinuz -initrd /initramfs -append {line}"
    script = "up() { cut -d' ' -f1 /proc/uptime; }\n"
    for _ in range(5):
        for name, command in (("vmm", f"unspin-vmm {common}"), ("qemu", qemu)):
            script += f"a=$(up); {command} < /dev/null > /tmp/log; s=$?; "
            script += "grep -q 'init: 4 CPUs' /tmp/log && grep -q 'init: end' /tmp/log || s=99; "
            script += f"echo took {name} $a $(up) $s\n"
    virtual_l1 = partial(virtual, qemu_of_l1.resolve(), 1)
    log = bench.run("beside", script, seconds=BESIDE_SECONDS, machine=virtual_l1)
    times: dict[str, list[float]] = {"vmm": [], "qemu": []}
    for name, start, end, status in re.findall(r"^took (\w+) (\S+) (\S+) (\d+)", log, re.MULTILINE):
        want(status == "0", f"{name} ended with status {status}", log)
        times[name].append(float(end) - float(start))
    want(all(len(found) == 5 for found in times.values()), "not all guests ended", log)
    vmm, other = (statistics.median(times[name]) for name in ("vmm", "qemu"))
    what = "time from start to power-off of a guest with four vCPUs in unspin-vmm, of that in QEMU beside it"
    middle, low, high = ratio(times["vmm"], times["qemu"])
    bench.claims.add("cvm.vmm.boot", what, middle, "x", 5, "<= 1.2", (low, high), label=LABEL_VIRTUAL)
    want(middle <= 1.2, f"unspin-vmm {times['vmm']} s, QEMU {times['qemu']} s")
    spread = ", ".join(f"{name} {min(t):.2f} to {max(t):.2f} s" for name, t in times.items())
    return f"medians {vmm:.2f} s and {other:.2f} s, {vmm / other:.2f} times QEMU's ({spread})"


@only_by_name
def check_fuzz(bench: Bench) -> str:
    """Offers a million malformed chains to each device model, among others. A model may write only to memory
    that was offered."""
    words = ["scripts/with-rust", "cargo", "test", "--release", "--locked", "-p", "unspin-vmm", "--test", "it"]
    words += ["hostile", "--", "--nocapture"]
    more = {"UNSPIN_VMM_CHAINS": str(CHAINS)}
    done = subprocess.run(words, cwd=ROOT, env=os.environ | more, capture_output=True, text=True)
    line = r"^hostile: (\d+) malformed chains in (\d+) cases, (\d+) cases compared"
    found = re.findall(line, done.stdout, re.MULTILINE)
    chains, cases, compared = (sum(map(int, column)) for column in zip(*found, strict=True)) if found else (0, 0, 0)
    passed = len(found) if not done.returncode else 0
    what = "device models that survive a million malformed chains each, and write only to memory that was offered"
    label = f"host: {processor()}, the device models alone"
    share, command = 100 * passed / MODELS, "make vmm ARGS=fuzz"
    bench.claims.add("cvm.vmm.fuzz", what, share, "%", chains, ">= 100", label=label, command=command)
    want(passed == MODELS, f"{passed} of {MODELS} models survive", done.stdout + done.stderr)
    return f"{MODELS} models, {chains} malformed chains in {cases} cases; {compared} cases were compared byte by byte"


CHECKS = (
    check_linux,
    check_smp,
    check_ends,
    check_igvm,
    check_block,
    check_net,
    check_console,
    check_held,
    check_beside,
    check_fuzz,
)


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    vmm, unspin, file, *names = sys.argv[1:]
    kernel = cached_kernel()
    reason = missing(kernel)
    if reason or kernel is None:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(vmm).resolve(), Path(unspin).resolve(), kernel, Path(folder))
        bench.claims = Claims(LABEL, "vmm.py", "make vmm")
        return run(CHECKS, names, bench, file)


if __name__ == "__main__":
    sys.exit(main())

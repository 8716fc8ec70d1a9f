#!/usr/bin/env python3
"""Whether guests run as SEV-ES guests of a real KVM that emulates SEV-ES (kernel/es-emu).
Usage: scripts/es-emu.py UNSPIN-VMM UNSPIN [CHECK...]; returns 77 where something it needs is missing.

QEMU emulates AMD's SVM for an L1 with the kernel lab-es, or the bzImage that UNSPIN_ES_KERNEL names.
Its guests start from IGVM files. Each check boots an L1 of its own. The checks are: guest, boot, smp, virtio,
plain.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import checks
from checks import want
from nested import L2_APPEND, Bench, cached_kernel, missing

ROOT = Path(__file__).resolve().parent.parent
# tests/sev-es/guest.c: what the hypervisor must not see, and what it must.
CANARY = 0x5EC2E7CA9A21F00D
SHOWN = 0x0BE9CA9A215E7000
# Of the test guest, in MiB and in pages.
MEMORY = 64
PAGES = MEMORY << 8
# What KVM's own trace of exits finds where the instruction pointer was.
POISON = "0xe4e4e4e4e4e4e4e4"
FEATURES = "Memory Encryption Features active: AMD SEV SEV-ES"


def sev_es() -> object:
    """scripts/sev-es.py, which builds the test guest."""
    spec = importlib.util.spec_from_file_location("sev_es", ROOT / "scripts/sev-es.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def igvm(bench: Bench, name: str, kernel: Path, memory: int, *more: str) -> bytes:
    """A guest's file."""
    out = bench.folder / f"{name}.igvm"
    command = [bench.unspin, "igvm", "build", "--platform", "sev-es", "--cbit", "47", "-o", out]
    command += ["--kernel", kernel, "--memory", str(memory), *more]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return out.read_bytes()


def octal(value: int) -> str:
    """The bytes of a number, without zeros, for the shell's printf."""
    return "".join(f"\\{byte:03o}" for byte in value.to_bytes(8, "little").lstrip(b"\0"))


# The L1 looks at the VMM's memory when the guest has said its last word, and then types a byte.
LOOK = f"""
look() {{
    dd if=/proc/$vmm/mem bs=4096 skip=$1 count=$2 2> /dev/null | tr -s '\\000' '\\n' > /tmp/memory
    echo $3 shown $(grep -c -F "$(printf '{octal(SHOWN)}')" /tmp/memory) \\
        canary $(grep -c -F "$(printf '{octal(CANARY)}')" /tmp/memory)
}}
until grep -q '^guest: ' /tmp/out; do sleep 1; done
while IFS='- ' read -r start end rest; do
    first=$((0x$start / 4096)); pages=$((0x$end / 4096 - first))
    case "$rest" in
    *kvm-vcpu*) look $first $pages kvm_run ;;
    rw-p*)
        [ $((pages % {PAGES})) = 0 ] || continue
        while [ $pages -gt 0 ]; do
            look $first {PAGES} memory
            first=$((first + {PAGES})); pages=$((pages - {PAGES}))
        done ;;
    esac
done < /proc/$vmm/maps
touch /tmp/looked
"""
TYPE = "until [ -f /tmp/looked ]; do sleep 1; done; echo"


def run(memory: int, more: str = "", after: str = "", look: bool = False) -> str:
    """Lines of the L1 that run a guest, and say how it ended, what KVM counted, and what it traced."""
    return f"""
echo 1 > /proc/sys/kernel/printk
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
echo 8192 > /sys/kernel/tracing/buffer_size_kb
echo 1 > /sys/kernel/tracing/events/kvm/kvm_exit/enable
{{ {TYPE if look else "true"}; }} |
    unspin-vmm --emulated-sev-es --igvm /guest.igvm --memory {memory} {more} {"> /tmp/out" if look else ""} &
vmm=$!
{LOOK if look else ""}
while kill -0 $vmm 2> /dev/null; do
    for dir in /sys/kernel/debug/kvm/[0-9]*; do
        [ -f $dir/es_emu_vc ] && counts="$(cat $dir/es_emu_vc $dir/es_emu_vmgexits)"
    done
    sleep 1
done
wait $vmm; status=$?; {"cat /tmp/out;" if look else ""} echo status $status; echo counts $counts
echo 0 > /sys/kernel/tracing/events/kvm/kvm_exit/enable
echo exits $(grep -c kvm_exit: /sys/kernel/tracing/trace) \
    $(grep -c 'kvm_exit:.*rip {POISON}' /sys/kernel/tracing/trace)
{after}
dmesg | grep -v 'soft lockup' > /tmp/dmesg
echo warnings $(grep -c -E 'WARNING:|BUG:' /tmp/dmesg)
grep -A 12 -E 'WARNING:|BUG:' /tmp/dmesg | head -n 40 | sed 's/^/dmesg: /'
"""


def status(log: str) -> int:
    found = re.findall(r"^status (\d+)", log, re.MULTILINE)
    return int(found[0]) if found else -1


def counts(log: str) -> str:
    found = re.search(r"^counts (\d+) (\d+)", log, re.MULTILINE)
    return f"{found.group(1)} #VC, {found.group(2)} VMGEXIT" if found else "not counted"


def hidden(log: str) -> str:
    """All exits that were traced have poison where the guest's registers were."""
    found = re.search(r"^exits (\d+) (\d+)", log, re.MULTILINE)
    want(found, "no exits were traced", log)
    want("warnings 0" in log, "the kernel warns", log)
    exits, poisoned = map(int, found.groups())
    want(exits > 0 and exits == poisoned, f"{exits - poisoned} of {exits} exits show a register", log)
    return f"none of the {exits} traced exits shows an instruction pointer"


def check_guest(bench: Bench) -> str:
    """The test guest judges KVM's answers. Neither KVM's trace nor what the hypervisor may read shows
    its registers or its private memory."""
    kernel = sev_es().test_kernel(bench.folder, "-DKVM")
    files = {"guest.igvm": igvm(bench, "guest", kernel, MEMORY)}
    log = bench.run("guest", run(MEMORY, look=True), files)
    failures = "\n".join(line for line in log.splitlines() if not line.startswith("ok "))
    want("guest: passed" in log and "FAIL" not in log, "the test guest failed", failures)
    want(status(log) == 0, f"status {status(log)}", log)
    seen = re.findall(r"^(\w+) shown (\d+) canary (\d+)", log, re.MULTILINE)
    seen = sorted((what, shown != "0", canary != "0") for what, shown, canary in seen)
    # The numbers are constants of its code, too, which is private.
    wanted = [("kvm_run", False, False), ("memory", True, False), ("memory", True, True)]
    want(seen == wanted, f"canaries: {seen}", log)
    answers = f"{log.count('ok  ')} answers as they must be; {counts(log)}"
    return f"{answers}; {hidden(log)}; no canary in shared memory and kvm_run"


def stock(bench: Bench, name: str, vcpus: int, do: str, more: str = "", after: str = "") -> str:
    """What an L1 prints that runs Debian's kernel, whose init runs `do`."""
    words = ("--initramfs", bench.initramfs, "--append", f'{L2_APPEND} do="{do}"')
    file = igvm(bench, name, bench.kernel / "vmlinuz", 512, *words, "--vcpus", str(vcpus))
    script = run(512, f"--vcpus {vcpus} {more}", after)
    files = {"guest.igvm": file, "disk": bytes(4 << 20)}
    log = bench.run(name, script, files)
    want(FEATURES in log and f"init: {vcpus} CPUs" in log, "it did not boot", log)
    want(status(log) == 0 and "init: end" in log, f"status {status(log)}", log)
    return log


def check_boot(bench: Bench) -> str:
    """A stock kernel with one vCPU."""
    log = stock(bench, "boot", 1, "true")
    return f"{FEATURES}; {counts(log)}; {hidden(log)}"


def check_smp(bench: Bench) -> str:
    """Two vCPUs, which start by the jump table."""
    log = stock(bench, "smp", 2, "grep -E '^ *(LOC|RES|CAL)' /proc/interrupts")
    return f"2 vCPUs; {counts(log)}; {hidden(log)}"


def check_virtio(bench: Bench) -> str:
    """Devices reach what the guest shares with them: a console, and a disk."""
    count = 20000
    size = sum(len(str(number)) + 1 for number in range(1, count + 1))
    do = f"echo by virtio > /dev/hvc0; seq 1 {count} > /dev/vda; sync; sleep 1"
    after = f"cat /tmp/console; seq 1 {count} | cmp -n {size} - /disk && echo the disk is right"
    log = stock(bench, "virtio", 1, do, "--console /tmp/console --disk /disk", after)
    want("by virtio" in log.split("status")[1], "the console's output is missing", log)
    want("the disk is right" in log, "the disk has something else", log)
    return f"a console, and {size} bytes on a disk; {hidden(log)}"


def check_plain(bench: Bench) -> str:
    """Must fail: a file for sev-es is none for a VM without the platform."""
    kernel = sev_es().test_kernel(bench.folder, "-DKVM")
    script = f"unspin-vmm --igvm /guest.igvm --memory {MEMORY} < /dev/null; echo status $?\n"
    log = bench.run("plain", script, {"guest.igvm": igvm(bench, "plain", kernel, MEMORY)})
    want(status(log) == 1 and "is for sev-es" in log, "it was not refused", log)
    return "refused"


CHECKS = (check_guest, check_boot, check_smp, check_virtio, check_plain)


def es_kernel(unspin: str) -> Path:
    """The bzImage of lab-es, or a path that does not exist."""
    named = os.environ.get("UNSPIN_ES_KERNEL")
    if named:
        return Path(named)
    show = [unspin, "lab", "kernel", "show", "lab-es", "--json"]
    shown = subprocess.run(show, capture_output=True, text=True)
    return Path(json.loads(shown.stdout)["kernels"][0]["image"] if not shown.returncode else "none")


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    vmm, unspin, *names = sys.argv[1:]
    kernel, host = cached_kernel(), es_kernel(unspin)
    reason = missing(kernel)
    if not reason and not host.is_file():
        reason = "needs the kernel lab-es: unspin lab kernel build --source lab-es"
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            Path(vmm).resolve(),
            Path(unspin).resolve(),
            kernel,
            Path(folder),
            host=host,
            kvm_amd="es_emu=1",
        )
        return checks.run(CHECKS, names, bench)


if __name__ == "__main__":
    sys.exit(main())

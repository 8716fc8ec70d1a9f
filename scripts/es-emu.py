#!/usr/bin/env python3
"""Whether guests run as SEV-ES guests of a real KVM that emulates SEV-ES (kernel/es-emu).
Usage: scripts/es-emu.py UNSPIN-VMM UNSPIN CLAIMS [CHECK...]; returns 77 where something it needs is missing.

QEMU emulates AMD's SVM for an L1 with the kernel lab-es, or the bzImage that UNSPIN_ES_KERNEL names.
Its guests start from IGVM files. Each check boots an L1 of its own. The checks are: guest, boot, smp, virtio,
ghcb, exits (how long exits take, by who reads the GHCB), keys, plain. Writes what `unspin claims record`
takes into the file CLAIMS.
"""

import importlib.util
import json
import random
import re
import statistics
import sys
import tempfile
from pathlib import Path

import checks
from checks import claims_that, want
from claims import Claims
from nested import L2_APPEND, Bench, cached_kernel, es_kernel, missing
from ratio import SEED, ratio

ROOT = Path(__file__).resolve().parent.parent
# tests/sev-es/guest.c: what the hypervisor must not see, and what it must.
CANARY = 0x5EC2E7CA9A21F00D
SHOWN = 0x0BE9CA9A215E7000
# Of the test guest, in MiB and in pages.
MEMORY = 64
PAGES = MEMORY << 8
# tests/sev-es/exits.h.
EXITS_EACH = 16
# What KVM's own trace of exits finds where the instruction pointer was.
POISON = "0xe4e4e4e4e4e4e4e4"
# Who reads the GHCB; the second `mapped` is the control.
WAYS = (("kernel", "kernel"), ("mapped", "mapped"), ("again", "mapped"), ("calls", "calls"))
ROUNDS = 12
LABEL = "emulated SEV-ES by kvm nested in tcg"
FEATURES = "Memory Encryption Features active: AMD SEV SEV-ES"


def sev_es() -> object:
    """scripts/sev-es.py, which builds the test guest."""
    spec = importlib.util.spec_from_file_location("sev_es", ROOT / "scripts/sev-es.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def octal(value: int) -> str:
    """The bytes of a number, without zeros, for the shell's printf."""
    return "".join(f"\\{byte:03o}" for byte in value.to_bytes(8, "little").lstrip(b"\0"))


# The L1 looks at the VMM's memory when the guest has said its last word, and then types a byte.
LOOK = f"""
look() {{
    dd if=/proc/$vmm/mem bs=4096 skip=$1 count=$2 of=/tmp/raw 2> /dev/null
    echo $3 has $(wc -c < /tmp/raw) bytes; tr -s '\\000' '\\n' < /tmp/raw > /tmp/memory
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


def run(memory: int, more: str = "", after: str = "", look: bool = False, typed: bool = False) -> str:
    """Lines of the L1 that run a guest, and say how it ended, what KVM counted, and what it traced.
    The guest gets a byte after `look`, or at once if it is `typed`."""
    first = TYPE if look else "echo" if typed else "true"
    return f"""
echo 1 > /proc/sys/kernel/printk
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
echo 8192 > /sys/kernel/tracing/buffer_size_kb
echo 1 > /sys/kernel/tracing/events/kvm/kvm_exit/enable
{{ {first}; }} |
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


@claims_that(
    ("cvm.gate.g1", "the test guest judges every answer right, KVM with emulated SEV-ES"),
    ("cvm.canaries.kvm", "a guest's canaries are neither in shared memory nor in kvm_run, and what it shows is found"),
)
def check_guest(bench: Bench) -> str:
    """The test guest judges KVM's answers. Neither KVM's trace nor what the hypervisor may read shows
    its registers or its private memory."""
    kernel = sev_es().test_kernel(bench.folder, "-DKVM")
    files = {"guest.igvm": bench.igvm("guest", kernel, MEMORY)}
    log = bench.run("guest", run(MEMORY, look=True), files)
    failures = "\n".join(line for line in log.splitlines() if not line.startswith("ok "))
    want("guest: passed" in log and "FAIL" not in log, "the test guest failed", failures)
    want(status(log) == 0, f"status {status(log)}", log)
    read = re.findall(r"^(\w+) has (\d+) bytes", log, re.MULTILINE)
    want({what for what, size in read if size != "0"} == {"kvm_run", "memory"}, f"read {read}", log)
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
    file = bench.igvm(name, bench.kernel / "vmlinuz", 512, *words, "--vcpus", str(vcpus))
    script = run(512, f"--vcpus {vcpus} {more}", after)
    files = {"guest.igvm": file, "disk": bytes(4 << 20)}
    log = bench.run(name, script, files)
    want(FEATURES in log and f"init: {vcpus} CPUs" in log, "it did not boot", log)
    want(status(log) == 0 and "init: end" in log, f"status {status(log)}", log)
    return log


@claims_that(
    ("cvm.gate.g2", "Debian's unmodified kernel boots with one vCPU, KVM with emulated SEV-ES"),
)
def check_boot(bench: Bench) -> str:
    """A stock kernel with one vCPU."""
    log = stock(bench, "boot", 1, "true")
    return f"{FEATURES}; {counts(log)}; {hidden(log)}"


@claims_that(
    ("cvm.gate.g3.smp", "Debian's unmodified kernel boots with two vCPUs, KVM with emulated SEV-ES"),
)
def check_smp(bench: Bench) -> str:
    """Two vCPUs, which start by the jump table."""
    log = stock(bench, "smp", 2, "grep -E '^ *(LOC|RES|CAL)' /proc/interrupts")
    return f"2 vCPUs; {counts(log)}; {hidden(log)}"


def devices(bench: Bench, name: str, more: str = "", after: str = "") -> tuple[str, str]:
    """What an L1 prints whose stock guest uses a virtio console and a disk, and what held."""
    count = 20000
    size = sum(len(str(number)) + 1 for number in range(1, count + 1))
    do = f"echo by virtio > /dev/hvc0; seq 1 {count} > /dev/vda; sync; sleep 1"
    after += f"\ncat /tmp/console; seq 1 {count} | cmp -n {size} - /disk && echo the disk is right"
    log = stock(bench, name, 1, do, f"--console /tmp/console --disk /disk {more}", after)
    want(re.search(r"^by virtio$", log, re.MULTILINE), "the console's output is missing", log)
    want("the disk is right" in log, "the disk has something else", log)
    return log, f"a console, and {size} bytes on a disk; {hidden(log)}"


@claims_that(
    ("cvm.gate.g3.virtio", "Debian's unmodified kernel uses a virtio console and a disk, KVM with emulated SEV-ES"),
)
def check_virtio(bench: Bench) -> str:
    """Devices reach what the guest shares with them: a console, and a disk."""
    return devices(bench, "virtio")[1]


def counted(log: str) -> list[dict]:
    """What unspin-vmm counted of GHCBs."""
    return [json.loads(line) for line in re.findall(r'^\{"ghcb".*\}', log, re.MULTILINE)]


def check_ghcb(bench: Bench) -> str:
    """The test guest judges unspin-vmm's answers, and a stock guest with virtio lives by them."""
    kernel = sev_es().test_kernel(bench.folder, "-DKVM")
    files = {"guest.igvm": bench.igvm("ghcb", kernel, MEMORY)}
    answers, lines = [], []
    for way in ("mapped", "calls"):
        script = run(MEMORY, f"--ghcb {way} --stats /tmp/stats", "cat /tmp/stats", look=True)
        log = bench.run(f"ghcb-{way}", script, files)
        failures = "\n".join(line for line in log.splitlines() if not line.startswith("ok "))
        want("guest: passed" in log and "FAIL" not in log, f"{way}: the guest failed", failures)
        want(status(log) == 0, f"{way}: status {status(log)}", log)
        hidden(log)
        (found,) = counted(log)
        calls = found["calls"] > 0 if way == "calls" else found["calls"] == 0
        want(found["exits"] > 1000 and calls, f"{found}", log)
        answers.append(log.count("ok  "))
        lines.append(f"{way} {found['exits']} exits, {found['calls']} calls")
    want(answers[0] == answers[1] > 30, f"{answers} answers")
    log, _ = devices(bench, "ghcb-virtio", "--ghcb mapped --stats /tmp/stats", "cat /tmp/stats")
    (found,) = counted(log)
    lines.append(f"a stock guest with virtio {found['exits']} exits, mapped")
    return f"{answers[0]} answers as they must be, twice; {'; '.join(lines)}"


def check_keys(bench: Bench) -> str:
    """In an L1 with protection keys, only a vCPU's thread in KVM has private memory's."""
    kernel = sev_es().test_kernel(bench.folder, "-DKVM")
    files = {"guest.igvm": bench.igvm("keys", kernel, MEMORY)}
    script = "grep -o -w -m 1 ospke /proc/cpuinfo\n" + run(MEMORY, "--ghcb mapped", typed=True)
    log = bench.run("keys", script, files, cpu="max")
    want("ospke" in log and "no protection key" not in log, "the L1 has no keys", log)
    want("guest: passed" in log and status(log) == 0, f"status {status(log)}", log)
    return f"the test guest passed; {hidden(log)}"


def exits_script() -> str:
    """One guest after the other, each arm once a round, in another order each round."""
    script = "echo 1 > /proc/sys/kernel/printk; grep -m 1 MHz /proc/cpuinfo\n"
    order = random.Random(SEED)
    for _ in range(ROUNDS):
        for name, way in order.sample(WAYS, len(WAYS)):
            more = f"--ghcb {way}" + ("" if way == "kernel" else " --stats /tmp/stats")
            script += f"echo arm {name}; echo | unspin-vmm --emulated-sev-es --igvm /guest.igvm"
            script += f" --memory {MEMORY} {more} > /tmp/out; echo status $?\n"
            script += "grep -E '^(exits|guest)' /tmp/out; cat /tmp/stats; rm -f /tmp/stats\n"
    return script


def check_exits(bench: Bench) -> str:
    """How long an exit takes in a guest's fastest slice: others were interrupted."""
    kernel = sev_es().test_kernel(bench.folder, "-DKVM", "-DEXITS")
    files = {"guest.igvm": bench.igvm("exits", kernel, MEMORY)}
    log = bench.run("exits", exits_script(), files, seconds=900)
    guests = len(WAYS) * ROUNDS
    ended = (log.count("status 0\n"), log.count("guest: passed"))
    want(ended == (guests, guests), f"{ended} of {guests} guests ended well", log)
    mhz = float(re.search(r"^cpu MHz\s*: (\S+)", log, re.MULTILINE)[1])
    us: dict[str, dict[str, list[float]]] = {}
    handled: dict[str, list[float]] = {}
    per_exit: dict[str, float] = {}
    for boot in log.split("arm ")[1:]:
        arm = boot.split()[0]
        for kind, ticks in re.findall(r"^exits (\w+) (\w+)", boot, re.MULTILINE):
            us.setdefault(kind, {}).setdefault(arm, []).append(int(ticks, 16) / EXITS_EACH / mhz)
        for found in counted(boot):
            handled.setdefault(arm, []).append(found["ns"] / found["exits"] / 1000)
            per_exit[arm] = found["calls"] / found["exits"]
    sizes = [len(values) for arms in (us["in"], handled) for values in arms.values()]
    want(sizes == [ROUNDS] * (2 * len(WAYS) - 1), f"figures of {sizes} rounds", log)
    for name, arms, target in (("exit", us["in"], ">= 2"), ("vmm", handled, ">= 2")):
        what = "an IN that reaches unspin-vmm" if name == "exit" else "an exit's part in unspin-vmm, mean"
        middle, low, high = ratio(arms["calls"], arms["mapped"])
        bench.claims.add(
            f"cvm.ghcb_{name}",
            f"{what}: its time with a call for each part of the GHCB, of that with the page mapped",
            middle, "x", ROUNDS, target, (low, high),
            "most of an exit is the emulated switch between guest and host" if name == "exit" else "",
        )
    return "\n".join([f"{LABEL}, {ROUNDS} rounds", *table(us | {"in unspin-vmm": handled}, per_exit)])


def table(us: dict[str, dict[str, list[float]]], per_exit: dict[str, float]) -> list[str]:
    """A line for each kind and arm: microseconds of an exit, and how often `mapped`'s."""
    lines = []
    for kind, arms in us.items():
        for arm, values in sorted(arms.items()):
            middle, low, high = ratio(values, arms["mapped"])
            spread = f"median {statistics.median(values):6.1f} us ({min(values):.1f} to {max(values):.1f})"
            lines.append(f"{kind:13} {arm:6} {spread}, {middle:.3f} ({low:.3f} to {high:.3f}) of mapped")
    return lines + [f"{arm}: {calls:.2f} calls an exit" for arm, calls in sorted(per_exit.items())]


def check_plain(bench: Bench) -> str:
    """Must fail: a file for sev-es is none for a VM without the platform."""
    kernel = sev_es().test_kernel(bench.folder, "-DKVM")
    script = f"unspin-vmm --igvm /guest.igvm --memory {MEMORY} < /dev/null; echo status $?\n"
    log = bench.run("plain", script, {"guest.igvm": bench.igvm("plain", kernel, MEMORY)})
    want(status(log) == 1 and "is for sev-es" in log, "it was not refused", log)
    return "refused"


CHECKS = (
    check_guest,
    check_boot,
    check_smp,
    check_virtio,
    check_ghcb,
    check_exits,
    check_keys,
    check_plain,
)


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    vmm, unspin, file, *names = sys.argv[1:]
    kernel, host = cached_kernel(), es_kernel(Path(unspin))
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
        bench.claims = Claims(LABEL, "es-emu.py", "make es-emu")
        return checks.run(CHECKS, names, bench, file)


if __name__ == "__main__":
    sys.exit(main())

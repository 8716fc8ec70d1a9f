#!/usr/bin/env python3
"""Checks that guests run as SEV-ES guests of a real KVM that emulates SEV-ES (kernel/es-emu).
Usage: scripts/es-emu.py UNSPIN-VMM UNSPIN CLAIMS [--real-time] [CHECK...]
Returns 77 if a dependency is missing.

The lab's QEMU, or the one that UNSPIN_VT_QEMU names, emulates AMD's SVM in virtual time. Its L1 boots the
kernel lab-es, or the bzImage that UNSPIN_ES_KERNEL names. With --real-time, this machine's QEMU emulates SVM in
real time. The guests of the L1 start from IGVM files. Each check boots its own L1. The checks are: guest,
canaries, stock (needs the network), boot, smp, virtio, conversions (of pages between private and shared), ghcb,
exits (the duration of exits, by the reader of the GHCB), keys, plain, vnae, and two that run only by name: fuzz,
which takes long, and unpoisoned, for which UNSPIN_ES_DOUBLE names a kernel with tests/sev-es/unpoisoned.patch.
Writes claims for `unspin claims record` into the file CLAIMS.
"""

import json
import random
import re
import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import checks
import nae
import nested
from cache import cached_kernel
from checks import claims_that, only_by_name, want
from claims import Claims
from es_emu_canaries import check_canaries, check_unpoisoned
from es_emu_conversions import check_conversions
from es_emu_guest import FEATURES, MEMORY, OPTIONS, counted, counts, guest, hidden, run, status, stock
from nested import Bench, es_kernel, lab_kernel, missing
from ratio import SEED, ratio
from sev_es_bench import lab_qemu, test_kernel
from stock_kernel import as_packaged

# The value of EXITS_EACH in tests/sev-es/exits.h.
EXITS_EACH = 16
# Measures the kernel memory that a guest could leave behind. The limits for the remaining memory and for the
# VMM's own memory are in KiB.
KEPT = "echo kept $(awk '/^(SUnreclaim|VmallocUsed|PageTables):/ { sum += $2 } END { print sum }' /proc/meminfo)\n"
KEPT_KIB = 4096
OWN_KIB = 20480
# The readers of the GHCB. The second `mapped` is the control.
WAYS = (("kernel", "kernel"), ("mapped", "mapped"), ("again", "mapped"), ("calls", "calls"))
ROUNDS = 12
LABEL = "emulated SEV-ES by kvm nested in {}"


def judged(bench: Bench, name: str, *options: str, seconds: int = nested.SECONDS) -> str:
    """Runs the test guest. Its registers and private memory must appear neither in KVM's trace nor in the
    memory that the hypervisor may read. KVM must not warn, and neither KVM nor the VMM may keep memory."""
    kernel = test_kernel(bench.folder, *OPTIONS, *options)
    files = {"guest.igvm": bench.igvm(name, kernel, MEMORY)}
    log = bench.run(name, KEPT + run(MEMORY, after=KEPT, look=True), files, seconds=seconds)
    failures = "\n".join(line for line in log.splitlines() if not line.startswith("ok "))
    want("guest: passed" in log and "FAIL" not in log, "the test guest failed", failures)
    want(status(log) == 0, f"status {status(log)}", log)
    read = re.findall(r"^(\w+) has (\d+) bytes", log, re.MULTILINE)
    want({what for what, size in read if size != "0"} == {"kvm_run", "memory", "own"}, f"read {read}", log)
    seen = re.findall(r"^(\w+) shown (\d+) canary (\d+)", log, re.MULTILINE)
    own = [canary for what, _, canary in seen if what == "own" and canary != "0"]
    want(not own, "a canary is in unspin-vmm's own memory", log)
    seen = sorted((what, shown != "0", canary != "0") for what, shown, canary in seen if what != "own")
    wanted = [("kvm_run", False, False), ("memory", True, False), ("memory", True, True)]
    want(seen == wanted, f"canaries: {seen}", log)
    own = int(re.search(r"^own (\d+)", log, re.MULTILINE)[1])
    before, after = map(int, re.findall(r"^kept (\d+)", log, re.MULTILINE))
    want(own < OWN_KIB, f"unspin-vmm has {own} KiB of its own")
    want(after - before < KEPT_KIB, f"the kernel keeps {after - before} KiB after the guest's end")
    answers = f"{log.count('ok  ')} answers as they must be; {counts(log)}"
    memory = f"unspin-vmm {own} KiB, and {after - before} KiB more in the kernel after its end"
    return f"{answers}; {hidden(log)}; no canary in shared memory and kvm_run; {memory}"


@claims_that(
    ("cvm.gate.g1", "the test guest judges every answer right, KVM with emulated SEV-ES"),
)
def check_guest(bench: Bench) -> str:
    """Runs the test guest, which judges KVM's answers."""
    return judged(bench, "guest")


@claims_that(
    ("cvm.stock_kernel.kvm", "the kernel that the guests boot is, byte by byte, the one in Debian's package"),
)
def check_stock(bench: Bench) -> str:
    """Compares the kernel that the other checks boot with the one in Debian's package."""
    return as_packaged(bench.kernel)


@claims_that(
    ("cvm.ghcb_fuzz.kvm", "each of a million random GHCB pages is answered, KVM with emulated SEV-ES"),
)
@only_by_name
def check_fuzz(bench: Bench) -> str:
    """Runs the test guest with a million random GHCB pages."""
    return judged(bench, "fuzz", "-DFUZZ_ROUNDS=1000000", seconds=3600)


@claims_that(
    ("cvm.gate.g2", "Debian's unmodified kernel boots with one vCPU, KVM with emulated SEV-ES"),
)
def check_boot(bench: Bench) -> str:
    """Boots a stock kernel with one vCPU. KVM must have handled no NAE without #VC."""
    log = guest(bench, "boot", bench.kernel / "vmlinuz", 1, "true", after=nae.COUNTED, traced=nae.COUNT)
    without, says = nae.nested(log)
    what = "NAE exits that KVM handled without #VC, Debian's kernel with one vCPU, KVM with emulated SEV-ES"
    bench.claims.add("cvm.nae_without_vc.kvm", what, without, "", 1, "<= 0")
    want(without == 0, says, log)
    return f"{FEATURES}; {counts(log)}; {hidden(log)}; {says}"


@claims_that(
    ("cvm.gate.g3.smp", "Debian's unmodified kernel boots with 2, 4 and 8 vCPUs, KVM with emulated SEV-ES"),
)
def check_smp(bench: Bench) -> str:
    """Boots several vCPUs, which start by the jump table, and runs hackbench to its end. In real time,
    patching code while another vCPU runs it can kill the kernel, more often with more vCPUs."""
    lines = []
    for vcpus in (2, 4, 8):
        log = stock(bench, f"smp-{vcpus}", vcpus, "hackbench -g 1 -l 20")
        want("Time:" in log, "hackbench (rt-tests) did not end", log)
        lines.append(f"{vcpus} vCPUs: {counts(log)}")
    return "; ".join([*lines, hidden(log)])


def devices(bench: Bench, name: str, more: str = "", after: str = "") -> tuple[str, str]:
    """Returns the output of an L1 whose stock guest uses a virtio console and a disk, and a summary."""
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
    """Checks that devices access the guest's shared memory: a console and a disk."""
    return devices(bench, "virtio")[1]


def ghcbs(log: str) -> list[dict]:
    """Returns the counts of GHCB exits that unspin-vmm prints."""
    return [json.loads(line) for line in re.findall(r'^\{"ghcb".*\}', log, re.MULTILINE)]


def check_ghcb(bench: Bench) -> str:
    """Checks unspin-vmm's answers with the test guest, and with a stock guest that uses virtio."""
    kernel = test_kernel(bench.folder, *OPTIONS)
    files = {"guest.igvm": bench.igvm("ghcb", kernel, MEMORY)}
    answers, lines = [], []
    for way in ("mapped", "calls"):
        script = run(MEMORY, f"--ghcb {way} --stats /tmp/stats", "cat /tmp/stats", look=True)
        log = bench.run(f"ghcb-{way}", script, files)
        failures = "\n".join(line for line in log.splitlines() if not line.startswith("ok "))
        want("guest: passed" in log and "FAIL" not in log, f"{way}: the guest failed", failures)
        want(status(log) == 0, f"{way}: status {status(log)}", log)
        hidden(log)
        (found,) = ghcbs(log)
        calls = found["calls"] > 0 if way == "calls" else found["calls"] == 0
        want(found["exits"] > 1000 and calls, f"{found}", log)
        answers.append(log.count("ok  "))
        lines.append(f"{way} {found['exits']} exits, {found['calls']} calls")
    want(answers[0] == answers[1] > 30, f"{answers} answers")
    log, _ = devices(bench, "ghcb-virtio", "--ghcb mapped --stats /tmp/stats", "cat /tmp/stats")
    (found,) = ghcbs(log)
    lines.append(f"a stock guest with virtio {found['exits']} exits, mapped")
    return f"{answers[0]} answers as they must be, twice; {'; '.join(lines)}"


def check_keys(bench: Bench) -> str:
    """Checks in an L1 with protection keys that only a vCPU's thread in KVM has the key of private memory."""
    kernel = test_kernel(bench.folder, *OPTIONS)
    files = {"guest.igvm": bench.igvm("keys", kernel, MEMORY)}
    script = "grep -o -w -m 1 ospke /proc/cpuinfo\n" + run(MEMORY, "--ghcb mapped", typed=True)
    log = bench.run("keys", script, files, cpu="max")
    want("ospke" in log and "no protection key" not in log, "the L1 has no keys", log)
    want("guest: passed" in log and status(log) == 0, f"status {status(log)}", log)
    return f"the test guest passed; {hidden(log)}"


def exits_script() -> str:
    """Runs guests one after the other. Each round runs each arm once, in random order."""
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
    """Measures the duration of an exit in a guest's fastest slice, because slower slices were interrupted."""
    kernel = test_kernel(bench.folder, *OPTIONS, "-DEXITS")
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
        for found in ghcbs(boot):
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
            "an exit without calls takes as long as all calls of one with them" if name == "exit" else "",
        )
    return "\n".join([f"{ROUNDS} rounds", *table(us | {"in unspin-vmm": handled}, per_exit)])


def table(us: dict[str, dict[str, list[float]]], per_exit: dict[str, float]) -> list[str]:
    """Returns a line for each kind and arm: the duration of an exit in microseconds, and its ratio to
    `mapped`."""
    lines = []
    for kind, arms in us.items():
        for arm, values in sorted(arms.items()):
            middle, low, high = ratio(values, arms["mapped"])
            spread = f"median {statistics.median(values):6.1f} us ({min(values):.1f} to {max(values):.1f})"
            lines.append(f"{kind:13} {arm:6} {spread}, {middle:.3f} ({low:.3f} to {high:.3f}) of mapped")
    return lines + [f"{arm}: {calls:.2f} calls an exit" for arm, calls in sorted(per_exit.items())]


def check_plain(bench: Bench) -> str:
    """Must fail: a VM without the platform refuses a file for sev-es."""
    kernel = test_kernel(bench.folder, *OPTIONS)
    script = f"unspin-vmm --igvm /guest.igvm --memory {MEMORY} < /dev/null; echo status $?\n"
    log = bench.run("plain", script, {"guest.igvm": bench.igvm("plain", kernel, MEMORY)})
    want(status(log) == 1 and "is for sev-es" in log, "it was not refused", log)
    return "refused"


# Four tasks rename files in a directory. The sleep leaves time to read KVM's last counts.
RENAMES = "mkdir /names; cd /names; for i in 1 2 3 4; do (echo > a$i;"
RENAMES += " for n in $(seq 400); do mv a$i b$i; mv b$i a$i; done) & done; wait; sleep 3"
# The settings of emulated pause loops, and the host's part of vNAE.
PAUSE_LOOPS = """
cd /sys/module/kvm_amd/parameters
echo 16 > soft_pause_count; echo 1 > es_emu_vnae; cd /tmp
"""
# Turns vNAE off and on again while the guest answers loops.
TOGGLED = """
(cd /sys/module/kvm_amd/parameters
while usleep 20000; do
    echo 0 > es_emu_vnae && usleep 1000 && echo 1 > es_emu_vnae && echo >> /tmp/toggles
done) &
"""
TOGGLES = "echo toggles $(wc -l < /tmp/toggles)"
OUTCOMES = ("yielded", "target_running", "refused", "own_choice")


@claims_that(
    ("cvm.gate.vnae", "a guest says whom its pause loops wait for, and KVM with emulated SEV-ES yields to it"),
)
def check_vnae(bench: Bench) -> str:
    """Runs four vCPUs on two CPUs. Debian's kernel has not negotiated vNAE, so none of its loops may be
    reflected. It has two vCPUs, because live patching kills it under emulation more often with more vCPUs."""
    kernel = lab_kernel(bench.unspin, "lab-cvm")
    want(kernel.is_file(), "needs the kernel lab-cvm: unspin lab kernel build --source lab-cvm")
    found = {
        name: counted(guest(bench, f"vnae-{name}", image, vcpus, RENAMES, before=PAUSE_LOOPS))
        for name, image, vcpus in (("agreed", kernel, 4), ("stock", bench.kernel / "vmlinuz", 2))
    }
    want(found["stock"]["pause_loops"] > 0, f"{found}")
    want(found["stock"]["es_emu_reflected"] == 0, f"a loop was given to who had not agreed: {found}")
    one = {name.removeprefix("es_emu_"): count for name, count in found["agreed"].items()}
    answers = sum(one[outcome] for outcome in OUTCOMES)
    want(one["reflected"] >= 100 and one["yielded"] > 0, f"{one}")
    # A loop in the handler of another #VC has no answer.
    want(0.95 * one["reflected"] <= answers <= one["reflected"] + 10, f"{one}")
    want(one["refused"] == 0, f"an answer made no sense: {one}")
    # The guest may answer after vNAE is off, if KVM asked before.
    before = PAUSE_LOOPS + TOGGLED
    log = guest(bench, "vnae-toggled", kernel, 4, RENAMES, before=before, after=TOGGLES)
    want(re.search(r"^toggles [1-9]", log, re.MULTILINE), "vNAE was not turned off and on", log)
    toggled = counted(log)
    want(toggled["es_emu_reflected"] > 0 and toggled["es_emu_refused"] == 0, f"{toggled}")
    for part, what in (("named", "that name a vCPU"), ("yielded", "after which the named vCPU gets the CPU")):
        bench.claims.add(
            f"cvm.vnae_kvm.{part}", f"answers to KVM {what}, four tasks that rename", 100 * one[part] / answers,
            "%", answers,
        )
    shares = ", ".join(f"{outcome} {one[outcome]}" for outcome in ("named", *OUTCOMES))
    return f"{one['reflected']} of {one['pause_loops']} loops reflected, {answers} answers: {shares}"


CHECKS = (
    check_guest,
    check_canaries,
    check_unpoisoned,
    check_fuzz,
    check_stock,
    check_boot,
    check_smp,
    check_virtio,
    check_conversions,
    check_ghcb,
    check_exits,
    check_keys,
    check_plain,
    check_vnae,
)


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    real_time = "--real-time" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--real-time"]
    if len(words) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    vmm, unspin, file, *names = words
    kernel, host = cached_kernel(), es_kernel(Path(unspin))
    reason = missing(kernel)
    if not reason and not host.is_file():
        reason = "needs the kernel lab-es: unspin lab kernel build --source lab-es"
    if not reason and not shutil.which("hackbench"):
        reason = "needs hackbench: apt install rt-tests"
    qemu = lab_qemu(unspin).resolve()
    if not reason and not real_time and not qemu.is_file():
        reason = "needs the lab's QEMU: unspin lab qemu build"
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            Path(vmm).resolve(),
            Path(unspin).resolve(),
            kernel,
            Path(folder),
            (Path(shutil.which("hackbench")),),
            host=host,
            kvm_amd="es_emu=1",
        )
        if not real_time:
            bench.machine = partial(nested.virtual, qemu, SEED)
        label = LABEL.format("tcg" if real_time else "virtual time, prices free")
        bench.claims = Claims(label, "es-emu.py", "make es-emu")
        return checks.run(CHECKS, names, bench, file)


if __name__ == "__main__":
    sys.exit(main())

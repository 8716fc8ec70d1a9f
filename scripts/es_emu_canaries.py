"""Searches all that the hypervisor of an emulated SEV-ES guest sees of it for canaries: after each exit."""

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import nae
from checks import claims_that, only_by_name, want
from claims import ROOT
from es_emu_guest import CANARY, MEMORY, OPTIONS, POISON, SHOWN, WARNED, looking, status
from nested import Bench
from sev_es_bench import test_kernel

# The page of the GHCB in tests/sev-es/guest.c.
GHCB = 0x1A00000
# Where KVM acts as the hypervisor: what it finds in struct vcpu_svm after an exit, and what it leaves there
# before the next entry. Between them, es_emu.c acts as the CPU, too.
FUNCTIONS = {"after": "svm_handle_exit", "before": "svm_vcpu_run"}
# The number of probes for each. A probe's event has 6 arrays of 64 numbers, 3 KiB. The first one has the
# registers.
PROBES = {"after": 3, "before": 1}
ARRAYS, NUMBERS = 6, 64
# The probes take long.
SECONDS = 1200
# SVM's exit codes that the test guest must cause.
EXITS = {code for code in nae.NAES if code != nae.MMIO} | {0x60, 0x77, 0x78}
NAMES = nae.NAES | {0x60: "interrupt", 0x77: "PAUSE", 0x78: "HLT"}
# KVM's answers to ioctls for these are errors.
ASKED = ("KVM_GET_REGS", "KVM_GET_SREGS", "KVM_GET_FPU", "KVM_GET_XSAVE", "KVM_GET_DEBUGREGS")


def probes() -> str:
    """Returns the lines that make the probes."""
    lines = []
    for when, function in FUNCTIONS.items():
        for probe in range(PROBES[when]):
            first = probe * ARRAYS * NUMBERS * 8
            arrays = (f"a{i}=+{first + i * NUMBERS * 8}(%di):x64[{NUMBERS}]" for i in range(ARRAYS))
            lines.append(f"echo 'p:registers/{when}{probe} {function} {' '.join(arrays)}' >> kprobe_events")
    return "\n".join(lines)


SEARCH = f"es-look {CANARY:#x} {SHOWN:#x}"
SCRIPT = f"""
echo 1 > /proc/sys/kernel/printk
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
echo 16 > /sys/module/kvm_amd/parameters/soft_pause_count
cd /sys/kernel/tracing
mkdir instances/registers
echo 98304 > instances/registers/buffer_size_kb
echo 32768 > buffer_size_kb
{probes()}
{nae.COUNT}
cd /sys/kernel/tracing
echo 1 > events/kvm/enable
echo 1 > events/kvmmmu/enable
echo 1 > instances/registers/events/registers/enable
cd /tmp
{{ until [ -f /tmp/looked ]; do sleep 1; done; echo; }} |
    {SEARCH} {GHCB:#x} {MEMORY << 20:#x} \\
    unspin-vmm --no-seccomp --emulated-sev-es --igvm /guest.igvm --memory {MEMORY} > /tmp/out &
tracer=$!
until grep -q '^guest: ' /tmp/out; do usleep 20000; done
# Since then, the guest only waits for a byte.
echo 0 > /sys/kernel/tracing/instances/registers/events/registers/enable
echo 0 > /sys/kernel/tracing/tracing_on
vmm=$(pidof unspin-vmm)
{looking(f"{SEARCH} $3 /tmp/raw")}
wait $tracer; status=$?; cat /tmp/out; echo status $status
{nae.COUNTED}
cd /sys/kernel/tracing
echo vcpu $(cat /sys/kernel/slab/kvm_vcpu/object_size)
cat kprobe_profile | awk '{{ print "probe", $1, $2, $3 }}'
echo overrun $(cat per_cpu/cpu*/stats instances/registers/per_cpu/cpu*/stats | awk '/^overrun/ {{ n += $2 }} END {{ print n }}')
{SEARCH} tracepoints per_cpu/cpu*/trace_pipe_raw
{SEARCH} registers instances/registers/per_cpu/cpu*/trace_pipe_raw
{WARNED}
"""


def run(bench: Bench, name: str, host: Path | None = None) -> str:
    """Returns the output of an L1 whose test guest exits in all ways with canaries. `host` is another kernel
    for the L1."""
    kernel = test_kernel(bench.folder, *OPTIONS, "-DCANARIES")
    look = bench.folder / "look"
    source = ROOT / "tests/sev-es/look.c"
    subprocess.run(["gcc", "-O1", "-static", "-o", look, source], check=True)
    bench.program(look, "es-look")
    files = {"guest.igvm": bench.igvm(name, kernel, MEMORY)}
    kept = bench.host, bench.append
    # The L1's CPUs have MONITOR here, so that the guest's MONITOR exits. The L1 itself idles by HLT.
    bench.host, bench.append = host or bench.host, f"{bench.append} idle=halt"
    try:
        return bench.run(
            name, SCRIPT, files, seconds=SECONDS, machine=lambda cpu: [word.replace(",-monitor", "") for word in bench.machine(cpu)]
        )
    finally:
        bench.host, bench.append = kept


def views(log: str) -> Counter:
    """Returns the number of canaries in each view of the hypervisor. Each view must also show the value that
    the guest shows, and must be complete."""
    failures = "\n".join(line for line in log.splitlines() if not line.startswith("ok "))
    want("guest: passed" in log and "FAIL" not in log, "the test guest failed", failures)
    want(status(log) == 0, f"status {status(log)}", log)
    want("warnings 0" in log, "the kernel warns", log)
    want(re.search(r"^overrun 0$", log, re.MULTILINE), "the trace has lost events", log)
    shown, canaries = Counter(), Counter()
    private = 0
    for view, show, canary in re.findall(r"^looked at (\w+)(?: shown (\d+))? canary (\d+)$", log, re.MULTILINE):
        # One of the two memories is private.
        private += view == "memory" and int(canary) > 0
        if view != "memory" or canary == "0" or private > 1:
            shown[view] += int(show or 0)
            canaries[view] += int(canary)
    for view in ("kvm_run", "ghcb", "tracepoints", "registers", "memory"):
        want(shown[view] > 0, f"what the guest shows is not in {view}: {shown}", log)
    want(private, "the canaries are not in private memory", log)
    return canaries


def exits(log: str) -> None:
    """Checks that the guest has exited in all ways, and that each exit shows poison instead of the instruction
    pointer."""
    rows = nae.histograms(log)
    found = nae.by(rows["kvm_exit"], "exit_reason")
    pointers = nae.by(rows["kvm_exit"], "guest_rip")
    want(set(pointers) == {int(POISON, 16)}, f"{len(pointers)} instruction pointers are shown", log)
    missing = [NAMES[code] for code in EXITS if not found[code]]
    want(not missing, f"no exits by {missing}", log)
    want(nae.by(rows["vc"], "code")[nae.MMIO] >= 2, "no #VC by an access to device memory", log)


def probed(log: str) -> int:
    """Returns the number of exits after which the probes copied struct vcpu_svm. They must have missed none."""
    counts = re.findall(r"^probe (\w+) (\d+) (\d+)$", log, re.MULTILINE)
    hits = {name: int(hit) for name, hit, missed in counts if missed == "0"}
    names = [f"{when}{probe}" for when in FUNCTIONS for probe in range(PROBES[when])]
    want(all(hits.get(name) for name in names), f"probes {counts}", log)
    size = re.search(r"^vcpu (\d+)$", log, re.MULTILINE)
    want(size and int(size[1]) <= PROBES["after"] * ARRAYS * NUMBERS * 8, f"struct vcpu_svm has {size}", log)
    return hits["after0"]


def refused(log: str) -> None:
    """Checks that KVM refuses to give a vCPU's registers to the VMM."""
    answers = dict(re.findall(r"^asked (\w+) answered (\d+)$", log, re.MULTILINE))
    want(answers == dict.fromkeys(ASKED, "0"), f"KVM gave registers to the VMM: {answers}", log)


def hidden(bench: Bench) -> str:
    """Returns a summary of a run in which no view of the hypervisor has a canary."""
    log = run(bench, "canaries")
    canaries = views(log)
    want(not +canaries, f"canaries: {+canaries}", log)
    number = probed(log)
    exits(log)
    refused(log)
    (runs,) = re.findall(r"^looked after (\d+) runs", log, re.MULTILINE)
    # The last two searches are those of the trace.
    searched = sum(map(int, re.findall(r"^searched (\d+) bytes", log, re.MULTILINE)[-2:]))
    kinds = ", ".join([*(NAMES[code] for code in sorted(EXITS)), NAMES[nae.MMIO]])
    return (
        f"no canary after {number} exits ({kinds}): in KVM's struct vcpu_svm and tracepoints, {searched} bytes,"
        f" in kvm_run and the GHCB after each of {runs} KVM_RUNs, in what KVM answers, in shared memory and in the"
        f" VMM's own"
    )


def found(bench: Bench, double: Path) -> str:
    """Returns a summary of a run under a kernel that does not poison, whose registers must show canaries."""
    log = run(bench, "unpoisoned", double)
    canaries = views(log)
    want(canaries["registers"] > 0, f"no canary was found in KVM's registers: {canaries}", log)
    return f"canaries found: {dict(+canaries)}"


@claims_that(
    ("cvm.canaries.kvm", "a guest's canaries are in nothing that the hypervisor sees, and what it shows is found"),
)
def check_canaries(bench: Bench) -> str:
    """Exits in all ways with canaries in the registers, and searches what the hypervisor sees after each."""
    return hidden(bench)


@claims_that(
    ("cvm.must_fail.unpoisoned", "a KVM that does not poison registers shows it a guest's canaries"),
)
@only_by_name
def check_unpoisoned(bench: Bench) -> str:
    """Must fail: the search of `canaries` under a KVM that leaves the guest's registers in their places."""
    double = Path(os.environ.get("UNSPIN_ES_DOUBLE") or "none")
    want(double.is_file(), "UNSPIN_ES_DOUBLE must name a kernel with tests/sev-es/unpoisoned.patch")
    return found(bench, double)

#!/usr/bin/env python3
"""Checks that the host reflects pause loops to guests that have asked for it, and to no others.
Usage: scripts/vnae.py UNSPIN CLAIMS [CHECK...]; returns 77 if a dependency is missing.

QEMU is the lab's, or the one that UNSPIN_VT_QEMU names. The checks are: unasked, forced, agreed, holder. The last
two need the kernel lab-cvm; for agreed, UNSPIN_VNAE_KERNEL may name a bzImage of it. Writes claims for
`unspin claims record` into the file CLAIMS.
"""

import collections
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import checks
from checks import claims_that, want
from claims import Claims
from nested import lab_kernel
from sev_es_bench import APPEND, Bench, lab_qemu, missing

# Kinds of events in a record: docs/emulated-sev-es.md.
PAUSE_LOOP, REFLECT, ANSWER = 6, 12, 13
WAITS = ("unknown", "spinlock", "queue", "ipi", "sleeplock")
NO_NAME = 0xFF
LABEL = "emulated SEV-ES, in the lab's QEMU"
LABEL_LAB = "lab/vt, kernel 6.12.117-unspin, emulated SEV-ES, prices sev-es"
# The holder of a spinlock is pinned to vCPU 1, and waits with the lock for its pCPU. vCPU 0 is the first waiter.
HOLDER = """
name = "holder"
title = "Whom a spinlock's first waiter names"
about = "Does it name the holder?"
repeats = 1
kernels = ["lab-cvm"]
schedulers = ["stock"]
workloads = ["hold-spinlock"]
seconds = 1
accel = "vt"
vt = { cvm = "sev-es-emulated", regime = "ple", vnae = "both" }
[[topology]]
name = "pinned"
vcpus = 4
pcpus = 4
memory_mib = 512
pinned = true
injector = { pcpu = 1, lengths_us = [3000, 5000], gap_us = 40000, count = 400 }
"""
# Fewest answers of the first waiter, and the lowest share of them that must name the holder, in percent.
ANSWERS_MIN, HOLDER_MIN = 50, 95


def events(record: Path) -> list[tuple[int, int, int, int, int]]:
    """Returns time, kind, pCPU, entity and argument of each event."""
    return list(struct.iter_unpack("<QBBHI", record.read_bytes()[32:]))


def count(record: Path) -> collections.Counter:
    return collections.Counter(kind for _, kind, _, _, _ in events(record))


def command(bench: Bench, vnae: str) -> list[str]:
    """Returns the command of QEMU with four vCPUs on two pCPUs, on a host with PAUSE exits."""
    line = bench.command(4, 2)
    at = next(i for i, part in enumerate(line) if part.startswith("virtual-host"))
    line[at] += f",pause-exits=svm,vnae={vnae}"
    return line


@claims_that(
    ("cvm.must_fail.unasked", "a kernel that has not asked gets no pause loop back, and the offer changes no byte"),
)
def check_unasked(bench: Bench) -> str:
    """Checks that nothing is reflected to a stock kernel, which does not ask, and that no byte differs."""
    igvm = bench.igvm("unasked", 4)
    files = []
    for vnae in ("both", "off"):
        offered = command(bench, vnae) + bench.confidential(igvm)
        status, log, folder = bench.run(f"unasked-{vnae}", offered)
        want(status == 0 and "init: end" in log, "it did not boot", log)
        files.append([(folder / file).read_bytes() for file in ("console.log", "record.bin")])
    kinds = count(bench.folder / "unasked-both/record.bin")
    want(kinds[PAUSE_LOOP] > 0, "there is no pause loop to reflect")
    want(kinds[REFLECT] == 0 and kinds[ANSWER] == 0, f"{kinds[REFLECT]} reflections")
    want(files[0] == files[1], "the offer alone changes the run")
    return f"0 of {kinds[PAUSE_LOOP]} pause loops"


@claims_that(
    ("cvm.must_fail.forced", "a kernel that has not asked ends at its first pause loop, if the host reflects it"),
)
def check_forced(bench: Bench) -> str:
    """Must fail: a stock kernel cannot handle a reflected PAUSE, and ends."""
    forced = command(bench, "force") + bench.confidential(bench.igvm("forced", 4))
    status, log, _ = bench.run("forced", forced)
    want(status == 5, f"status {status}", log)
    lines = [line for line in log.splitlines() if "Unsupported exit-code 0x77" in line]
    want(lines and "<f3> 90" in log, "it ended otherwise", log)
    return lines[0].partition("SEV: ")[2] + ", at <f3> 90"


def check_agreed(bench: Bench) -> str:
    """Checks that the patched kernel asks and answers to the end of hackbench, with the same bytes twice."""
    igvm = bench.folder / "agreed.igvm"
    build = [bench.unspin, "igvm", "build", "--kernel", cvm_kernel(bench.unspin), "--cbit", "47"]
    build += ["--vcpus", "4", "--memory", "512", "--append", APPEND + " nopvspin"]
    build += ["--initramfs", bench.initramfs, "-o", igvm]
    subprocess.run([str(part) for part in build], check=True, stdout=subprocess.DEVNULL)
    files = []
    for name in ("first", "second"):
        agreed = command(bench, "both") + bench.confidential(igvm)
        status, log, folder = bench.run(f"agreed-{name}", agreed)
        want(status == 0 and "init: end" in log, "it did not end", log)
        files.append([(folder / file).read_bytes() for file in ("console.log", "record.bin")])
    want(files[0] == files[1], "two runs differ")
    record = bench.folder / "agreed-first/record.bin"
    kinds, waits = count(record), collections.Counter()
    for _, kind, _, _, argument in events(record):
        if kind == ANSWER:
            waits[WAITS[argument & 0xFF]] += 1
    want(kinds[REFLECT] > 0, "nothing is reflected")
    want(kinds[ANSWER] <= kinds[REFLECT], "more answers than reflections")
    want(kinds[ANSWER] >= 0.99 * kinds[REFLECT], f"answers are missing: {kinds}")
    return f"{kinds[ANSWER]} answers to {kinds[REFLECT]} reflections: {dict(waits)}"


def check_holder(bench: Bench) -> str:
    """Checks that a spinlock's first waiter names the vCPU to which the holder is pinned."""
    file, out = bench.folder / "holder.toml", bench.folder / "holder"
    file.write_text(HOLDER)
    command = [bench.unspin, "lab", "run", file, "--out", out, "--accel", "vt"]
    done = subprocess.run(command, capture_output=True, text=True)
    want(done.returncode == 0, f"status {done.returncode}", done.stdout + done.stderr)
    (found,) = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    names = {name: int(found["kvm"].get(f"holder:0:{name}", 0)) for name in ("0", "1", "2", "3", "nobody")}
    answers = sum(names.values())
    want(answers >= ANSWERS_MIN, f"answers of the first waiter: {names}")
    share = 100 * names["1"] / answers
    what = "answers of a spinlock's first waiter that name the vCPU of the lock's holder"
    bench.claims.add("cvm.vnae.holder", what, share, "%", answers, f">= {HOLDER_MIN}", label=LABEL_LAB)
    want(share >= HOLDER_MIN, f"the first waiter names {names}")
    return f"{names['1']} of {answers} answers name the holder's vCPU"


def cvm_kernel(unspin: Path) -> Path:
    """Returns the bzImage of lab-cvm, or a path that does not exist."""
    named = os.environ.get("UNSPIN_VNAE_KERNEL")
    return Path(named) if named else lab_kernel(unspin, "lab-cvm")


CHECKS = (check_unasked, check_forced, check_agreed, check_holder)
# The checks that need the kernel lab-cvm.
ANSWERING = ("agreed", "holder")


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    unspin, file, *names = Path(sys.argv[1]).resolve(), *sys.argv[2:]
    known = [check.__name__.removeprefix("check_") for check in CHECKS]
    if unknown := set(names) - set(known):
        print(f"no such check: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    qemu = lab_qemu(str(unspin))
    reason = missing(qemu)
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    names = names or known
    if not cvm_kernel(unspin).is_file():
        for name in sorted(set(names) & set(ANSWERING)):
            print(f"{name}: skipped: needs unspin lab kernel build --source lab-cvm", flush=True)
        names = [name for name in names if name not in ANSWERING]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(unspin, qemu.resolve(), Path(folder))
        bench.claims = Claims(LABEL, "vnae.py", "make sev-es")
        return checks.run(CHECKS, names, bench, file) if names else 0


if __name__ == "__main__":
    sys.exit(main())

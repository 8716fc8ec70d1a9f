#!/usr/bin/env python3
"""Checks that the host reflects pause loops to guests that have asked for it, and to no others.
Usage: scripts/vnae.py UNSPIN [CHECK...]; returns 77 if a dependency is missing.

QEMU is the lab's, or the one that UNSPIN_VT_QEMU names. The checks are: unasked, forced, agreed. The last
check needs the kernel lab-cvm, or a bzImage of it that UNSPIN_VNAE_KERNEL names.
"""

import collections
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import one, want
from nested import lab_kernel
from sev_es_bench import APPEND, Bench, lab_qemu, missing

# Kinds of events in a record: docs/emulated-sev-es.md.
PAUSE_LOOP, REFLECT, ANSWER = 6, 12, 13
WAITS = ("unknown", "spinlock", "queue", "ipi", "sleeplock")
NO_NAME = 0xFF


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


def cvm_kernel(unspin: Path) -> Path:
    """Returns the bzImage of lab-cvm, or a path that does not exist."""
    named = os.environ.get("UNSPIN_VNAE_KERNEL")
    return Path(named) if named else lab_kernel(unspin, "lab-cvm")


def main() -> int:
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    unspin, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    checks = {"unasked": check_unasked, "forced": check_forced, "agreed": check_agreed}
    if unknown := set(names) - checks.keys():
        unknown = ", ".join(sorted(unknown))
        print(f"no such check: {unknown}; there are {', '.join(checks)}", file=sys.stderr)
        return 2
    qemu = lab_qemu(str(unspin))
    reason = missing(qemu)
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(unspin, qemu.resolve(), Path(folder))
        for name, check in checks.items():
            if names and name not in names:
                continue
            if name == "agreed" and not cvm_kernel(unspin).is_file():
                print("agreed: skipped: needs unspin lab kernel build --source lab-cvm", flush=True)
                continue
            if not one(name, lambda: check(bench)):
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

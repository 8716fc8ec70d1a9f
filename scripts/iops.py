#!/usr/bin/env python3
"""Measures how many requests a second guests of unspin-vmm make, on a real KVM in virtual time.
Usage: scripts/iops.py RELEASE [--rounds N] [--jobs N] [--claims FILE] [SET...]
Returns 77 if a dependency is missing.

RELEASE is the folder of unspin-vmm, unspin, and the crate's examples. The lab's QEMU, or the one that
UNSPIN_VT_QEMU names, emulates AMD's SVM for an L1. The guests, L2, bounce all I/O (swiotlb). The sets are:
policies (which pages a device may touch), policies-es (the same with emulated SEV-ES), revoke (pages that are
revoked meanwhile), and ghcb (who reads the GHCB of a guest with emulated SEV-ES, where unspin-vmm answers each
notification of a queue). policies-es and ghcb need the kernel lab-es. Each round has a seed of its own. It boots
an L1, which starts a guest in each arm of a set, in random order. The same seed always prints the same output.
--claims names a file for `unspin claims record`.
"""

import argparse
import json
import random
import re
import shlex
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cache import cached_kernel
from checks import one, want
from claims import Claims
from nested import CPUS, L2_APPEND, Bench, es_kernel, missing
from ratio import ratio
from sev_es_bench import in_virtual_time, lab_qemu

MEMORY_MIB, ES_MEMORY_MIB = 192, 512
DISK_MIB = 32
SLICE_MS, SLICES = 100, 3
# A number in a name is that of requests in flight.
OPERATIONS = {
    "read-1": "random reads of 4 KiB a second, one at a time",
    "write-1": "random writes of 4 KiB a second, one at a time",
    "read-4": "random reads of 4 KiB a second, four at a time",
    "write-4": "random writes of 4 KiB a second, four at a time",
    "send": "UDP datagrams of 1,400 bytes sent a second",
}
# The pool has 4 MiB, so the guest soon uses all of its pages.
APPEND = f"{L2_APPEND} quiet swiotlb=2048,force nowatchdog"
# Lowest acceptable ratio of a disk's requests a second with a cache of grants.
CACHE_MIN = 0.98
# Time limit of an L1, in seconds of this machine.
LIMIT = 3600


@dataclass(frozen=True)
class Set:
    """Guests that differ in one option of unspin-vmm, by the name of the arm. The first arm is the baseline."""

    arms: dict[str, str]
    claim: str
    label: str
    es: bool = False


POLICIES = {
    "off": "",
    "off-again": "",
    "pregrant": "--page-access pregrant",
    "cache": "--page-access cache",
    "batch": "--page-access batch",
    "request": "--page-access request",
}
SETS = {
    "policies": Set(POLICIES, "cvm.page_access.guest", "kvm nested in virtual time, prices free"),
    "policies-es": Set(
        POLICIES,
        "cvm.page_access.es",
        "emulated SEV-ES by kvm nested in virtual time, prices free",
        es=True,
    ),
    "revoke": Set(
        {
            "cache": "--page-access cache",
            "revoke-100": "--page-access cache --revoke-per-s 100",
            "revoke-1000": "--page-access cache --revoke-per-s 1000",
            "revoke-10000": "--page-access cache --revoke-per-s 10000",
        },
        "cvm.page_access.revoke",
        "kvm nested in virtual time, prices free",
    ),
    "ghcb": Set(
        {
            "mapped": "--ghcb mapped --no-ioeventfd",
            "mapped-again": "--ghcb mapped --no-ioeventfd",
            "kernel": "--ghcb kernel --no-ioeventfd",
            "calls": "--ghcb calls --no-ioeventfd",
            "ioeventfd": "--ghcb mapped",
        },
        "cvm.ghcb_iops",
        "emulated SEV-ES by kvm nested in virtual time, prices free",
        es=True,
    ),
}
# For each operation and arm, one figure per round.
Rates = dict[str, dict[str, list[float]]]


def do() -> str:
    """Returns the command of a guest's init. The first slice of an operation fills caches and grants the
    lasting pages."""
    work = " ".join(f"{operation}:{SLICE_MS}" for operation in OPERATIONS for _ in range(SLICES + 1))
    return f"ifconfig eth0 10.0.0.2 up; pump /dev/vda 10.0.0.1 {work}; echo status $?"


def append() -> str:
    return f'{APPEND} do="{do()}"'


def command(arms: Set, arm: str) -> str:
    """Returns the L1's command that starts the guest of an arm."""
    words = f"unspin-vmm --disk /tmp/disk --net tap=tap0 {arms.arms[arm]}"
    if "--page-access" in words or re.search("--ghcb (mapped|calls)", words):
        words += " --stats /tmp/stats"
    if arms.es:
        return f"{words} --memory {ES_MEMORY_MIB} --emulated-sev-es --igvm /guest.igvm"
    line = shlex.quote(append())
    return f"{words} --memory {MEMORY_MIB} --kernel /vmlinuz --initramfs /initramfs --append {line}"


def script(arms: Set, seed: int) -> str:
    """Returns the L1's script, which runs the guests one after the other."""
    lines = [
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
        f"dd if=/dev/zero of=/tmp/disk bs=1M count={DISK_MIB} 2>/dev/null",
        # The VMM creates its tap when it starts.
        "up() { until ifconfig tap0 10.0.0.1 up 2>/dev/null; do usleep 100000; done; }",
    ]
    for arm in random.Random(seed).sample(list(arms.arms), len(arms.arms)):
        lines += [
            "up & tap=$!",
            f"echo arm {arm}",
            f"{command(arms, arm)} < /dev/null; echo status $?",
            "kill $tap 2>/dev/null; wait",
            "[ -f /tmp/stats ] && cat /tmp/stats; rm -f /tmp/stats",
        ]
    return "\n".join(lines) + "\n"


def guests(log: str) -> list[tuple[str, str]]:
    """Returns each guest's arm and output."""
    parts = log.split("\narm ")[1:]
    return [(part.split(maxsplit=1)[0], part) for part in parts]


def rates(logs: list[str], arms: Set) -> Rates:
    """Returns operations a second, one figure for each round. Raises Failed unless all guests end
    successfully."""
    found: Rates = {operation: {arm: [] for arm in arms.arms} for operation in OPERATIONS}
    for log in logs:
        names = Counter(name for name, _ in guests(log))
        want(names == Counter(arms.arms.keys()), f"guests of {dict(names)}", log)
        for arm, output in guests(log):
            # The statuses of the guest's command and of the VMM.
            statuses = re.findall(r"^status (\d+)", output, re.MULTILINE)
            want(statuses == ["0", "0"], f"{arm}: statuses {statuses}", output)
            for operation, by_arm in found.items():
                slices = re.findall(rf"^pump {operation} (\d+) (\d+)", output, re.MULTILINE)
                want(len(slices) == SLICES + 1, f"{arm}: {len(slices)} slices of {operation}", output)
                count, ns = (sum(int(one[at]) for one in slices[1:]) for at in (0, 1))
                by_arm[arm].append(count / (ns / 1e9))
    return found


def counters(logs: list[str]) -> dict[str, Counter]:
    """Returns the sums of the counters that unspin-vmm wrote, by arm."""
    sums: dict[str, Counter] = {}
    for arm, output in (guest for log in logs for guest in guests(log)):
        for line in re.findall(r"^\{.*\}", output, re.MULTILINE):
            numbers = {name: value for name, value in json.loads(line).items() if isinstance(value, int)}
            sums.setdefault(arm, Counter()).update(numbers)
    return sums


def shares(sums: Counter) -> str:
    """Returns what an arm's counters say about a chain, a page, and an exit."""
    parts = []
    if sums["chains"]:
        parts.append(f"hits {sums['hits'] / max(sums['pages_asked'], 1):.3f}")
        parts.append(f"opening calls a chain {sums['requests'] / sums['chains']:.3f}")
        parts.append(f"closing calls a chain {sums['returns'] / sums['chains']:.3f}")
        parts.append(f"revoked {sums['revoked']}, of which {sums['revoke_waits']} waited")
        want(sums["refused"] == 0, f"chains were refused: {dict(sums)}")
    if sums["exits"]:
        parts.append(f"exits {sums['exits']}, calls an exit {sums['calls'] / sums['exits']:.2f}")
    return ", ".join(parts)


def measure(name: str, release: Path, folder: Path, options: argparse.Namespace) -> str:
    """Measures a set, and returns a line for each operation and arm."""
    arms, kernel, host = SETS[name], cached_kernel(), es_kernel(release / "unspin")
    want(not arms.es or host.is_file(), "needs the kernel lab-es: unspin lab kernel build --source lab-es")
    pump = (release / "examples" / "pump",)
    own = {"host": host, "kvm_amd": "es_emu=1"} if arms.es else {}
    bench = Bench(release / "unspin-vmm", release / "unspin", kernel, folder, pump, **own)
    files = {}
    if arms.es:
        words = ("--initramfs", bench.initramfs, "--append", append())
        files["guest.igvm"] = bench.igvm("guest", kernel / "vmlinuz", ES_MEMORY_MIB, *words)
    logs = in_virtual_time(
        bench, name, lambda seed: script(arms, seed), options.rounds, options.jobs, files=files, seconds=LIMIT
    )
    found, base = rates(logs, arms), next(iter(arms.arms))
    claims, lines = Claims(arms.label, "iops.py", f"make iops ARGS={name}"), []
    for operation, by_arm in found.items():
        for arm, values in by_arm.items():
            middle, low, high = ratio(values, by_arm[base])
            median = f"{operation:7} {arm:12} {statistics.median(values):8.0f}/s"
            lines.append(f"{median}  {middle:.3f} ({low:.3f} to {high:.3f})")
            if arm != base:
                least = f">= {CACHE_MIN}" if arm == "cache" and operation != "send" else ""
                what = f"{OPERATIONS[operation]}, `{arm}` beside `{base}`"
                claims.add(
                    f"{arms.claim}.{operation}.{arm}", what, middle, "x", len(values), least, (low, high)
                )
    lines += [f"{arm:12} {shares(sums)}" for arm, sums in counters(logs).items()]
    if options.claims:
        claims.save(options.claims)
    return "\n".join(["", *lines])


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("release", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=CPUS)
    parser.add_argument("--claims", type=Path)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    options = parser.parse_intermixed_args()
    if unknown := set(options.sets) - SETS.keys():
        parser.error(f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(SETS)}")
    release = options.release.resolve()
    reason = missing(cached_kernel())
    if not reason and not lab_qemu(str(release / "unspin")).is_file():
        reason = "needs the lab's QEMU: unspin lab qemu build"
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    status = 0
    for name in options.sets:
        with tempfile.TemporaryDirectory() as folder:
            if not one(name, lambda: measure(name, release, Path(folder), options)):
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

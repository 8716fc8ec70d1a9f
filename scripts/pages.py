#!/usr/bin/env python3
"""Checks that unspin-vmm's page access restricts devices, and measures its cost.
Usage: scripts/pages.py RELEASE [--rounds N] [--out FILE] [--claims FILE] [CHECK...]
Returns 77 if a dependency is missing.

RELEASE is the folder of unspin-vmm, unspin, and the crate's examples. QEMU emulates the L1, whose
guests, L2, bounce all I/O (swiotlb=force). The checks are: enforced (tests of the crate in an L1
with protection keys), guests, loop (the device model alone, on this machine), threads (a device's thread
and a driver without a guest, on this machine), measure, revoke. The results of the last two go to
measure-FILE and revoke-FILE as JSON, and claims for `unspin claims record` go to the file of --claims.
"""

import argparse
import json
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from cache import cached_kernel
from checks import one, want
from claims import ROOT, Claims, processor
from nested import L2_APPEND, Bench, missing
from ratio import ratio

MEMORY_MIB = 192
DISK_MIB = 32
THREADS = 4
SLICE_MS, SLICES = 400, 4
SEED = 1
LOOP_ROUNDS, LOOP_MS = 120, 10
# Numbers of concurrent requests, then rounds. A slice is longer than a wait for a busy machine's processor.
DEPTHS = (1, 4)
THREADS_ROUNDS, THREADS_MS = 120, 50
# Reason why a hit in the cache of grants may cost too much.
SLOW = "page access adds 70 to 250 ns to a request, and this disk is memory"
# Lowest acceptable ratio of a disk's requests a second with a cache of grants.
CACHE_MIN = 0.98
OPERATIONS = ("read", "write", "send")
# Modules of the crate's tests that need an L1 with protection keys.
MODULES = ("enforcement", "revocation")
# The pool has 4 MiB, so the guest soon uses all of its pages.
APPEND = f"{L2_APPEND} quiet swiotlb=2048,force nowatchdog"
# A name, a policy, and the rate of revocations a second. The first list revokes nothing.
Arm = tuple[str, str, int]
ARMS: tuple[Arm, ...] = (
    ("off", "off", 0),
    ("off-again", "off", 0),
    ("pregrant", "pregrant", 0),
    ("cache", "cache", 0),
    ("batch", "batch", 0),
    ("request", "request", 0),
)
REVOKING_ARMS: tuple[Arm, ...] = (
    ("off", "off", 0),
    ("cache", "cache", 0),
    ("cache-revoke-100", "cache", 100),
    ("cache-revoke-1000", "cache", 1000),
    ("cache-revoke-10000", "cache", 10000),
)


def vmm(policy: str, rate: int, do: str, more: str) -> str:
    """Returns a command line for an L2, whose init runs `do`."""
    line = shlex.quote(f'{APPEND} do="{do}"')
    words = f"unspin-vmm --kernel /vmlinuz --initramfs /initramfs --memory {MEMORY_MIB} {more}"
    if policy != "off":
        words += f" --page-access {policy}"
    if rate:
        words += f" --revoke-per-s {rate}"
    return f"{words} --append {line}"


def check_enforced(bench: Bench, options: argparse.Namespace) -> str:
    """Checks that SIGSEGV kills a device's thread that touches the vCPUs' mapping, in an L1 with protection
    keys."""
    bench.program(test_program(), "tests")
    script = "grep -o -w -m 1 ospke /proc/cpuinfo\n"
    words = " ".join(MODULES)
    script += f"UNSPIN_VMM_NEEDS_KEYS=1 TMPDIR=/tmp tests {words}; echo status $?\n"
    log = bench.run("enforced", script, cpu="max")
    want("ospke" in log and "status 0" in log, "a test failed", log)
    passed = re.findall(r"^test (\w+)::\S+ \.\.\. ok$", log, re.MULTILINE)
    # The test program also succeeds if no test matches a name, so this checks that each module ran.
    want(set(passed) >= set(MODULES), f"tests of {sorted(set(passed))} ran", log)
    return f"{len(passed)} tests in an L1 with keys"


def test_program() -> Path:
    """Builds the crate's tests and returns the program."""
    words = ["scripts/with-rust", "cargo", "test", "--locked", "-p", "unspin-vmm", "--test", "it"]
    words += ["--no-run", "--message-format=json"]
    output = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = [json.loads(line).get("executable") for line in output.splitlines()]
    return next(Path(path) for path in reversed(found) if path)


def device_loop(options: argparse.Namespace, *words: int | str) -> dict[str, list[float]]:
    """Returns a device's requests a second without a guest: for each policy, one value per round."""
    command = [options.release / "examples" / "device-loop", *(str(word) for word in words)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, list[float]] = {}
    for name, count, ns in re.findall(r"^loop (\S+) (\d+) (\d+)", output, re.MULTILINE):
        found.setdefault(name, []).append(int(count) / (int(ns) / 1e9))
    return found


def table(found: dict[str, list[float]], claims: Claims, prefix: str, what: str, least: str) -> str:
    """Returns a line for each policy and adds its claim. `least` is the target of a cache of grants."""
    lines = []
    for name, values in found.items():
        middle, low, high = ratio(values, found["off"])
        if name != "off":
            claims.add(
                f"{prefix}.{name}", f"{what} under page access `{name}`, of those without restrictions",
                middle, "x", len(values), least if name == "cache" else "", (low, high), SLOW,
            )
        ns = 1e9 / statistics.median(values)
        lines.append(f"{name:19} {ns:8.0f} ns each  {middle:.3f} ({low:.3f} to {high:.3f})")
    return "\n" + "\n".join(lines)


def check_loop(bench: Bench, options: argparse.Namespace) -> str:
    """Measures a device model's requests without a guest, in CPU time of this machine."""
    del bench
    claims = Claims(f"host: {processor()}, the device model alone", "pages.py", "make pages ARGS=loop")
    found = device_loop(options, "alone", LOOP_ROUNDS, LOOP_MS)
    text = table(found, claims, "cvm.page_access.model", "requests a CPU second", "")
    if options.claims:
        claims.save(options.claims)
    return text


def check_threads(bench: Bench, options: argparse.Namespace) -> str:
    """Measures the requests of a device's thread and a driver without a guest, in real time."""
    del bench
    label = f"host: {processor()}, a device and a driver without a guest"
    claims, text = Claims(label, "pages.py", "make pages ARGS=threads"), ""
    for depth in DEPTHS:
        found = device_loop(options, "threads", THREADS_ROUNDS, THREADS_MS, depth)
        what = f"requests a second, {depth} at a time,"
        text += f"\n{depth} at a time:"
        text += table(found, claims, f"cvm.page_access.threads-{depth}", what, f">= {CACHE_MIN}")
    if options.claims:
        claims.save(options.claims)
    return text


def check_guests(bench: Bench, options: argparse.Namespace) -> str:
    """Checks that a disk, a console and a network work under each policy, and with revocations."""
    del options
    check = "md5sum /dev/vda; dd if=/tmp.bin of=/dev/vda bs=1M seek=2 conv=fsync 2>/dev/null;"
    do = "dd if=/dev/urandom of=/tmp.bin bs=1M count=4 2>/dev/null;" + check
    do += "echo 3 > /proc/sys/vm/drop_caches; md5sum /dev/vda; seq 1 99 > /dev/hvc0;"
    do += "ifconfig eth0 10.0.0.2 up; ping -c 5 10.0.0.1; sleep 1"
    script, cases = "", [("request", 0), ("cache", 500), ("batch", 0), ("pregrant", 500)]
    for policy, rate in cases:
        more = "--disk /tmp/disk --console /tmp/console --net tap=tap0 --stats /tmp/stats"
        script += "dd if=/dev/urandom of=/tmp/disk bs=1M count=8 2>/dev/null; md5sum /tmp/disk\n"
        script += "( until ifconfig tap0 10.0.0.1 up 2>/dev/null; do usleep 100000; done ) &\n"
        script += vmm(policy, rate, do, more) + " < /dev/null; echo status $?\n"
        script += "md5sum /tmp/disk; echo lines $(wc -l < /tmp/console); cat /tmp/stats; wait\n"
    log = bench.run("guests", script, seconds=900)
    statuses = re.findall(r"^status (\d+)", log, re.MULTILINE)
    want(statuses == ["0"] * len(cases), f"statuses {statuses}", log)
    sums = re.findall(r"^([0-9a-f]{32})  /", log, re.MULTILINE)
    want(len(sums) == 4 * len(cases), f"{len(sums)} sums of disks", log)
    for case, (before, first, after, file) in zip(cases, zip(*[iter(sums)] * 4), strict=True):
        want(before == first and after == file != before, f"{case}: the disk is another", log)
    want(log.count("lines 99") == len(cases), "the console has something else", log)
    answers = [int(found) for found in re.findall(r"(\d+) packets received", log)]
    # A busy machine loses a few pings even without restrictions.
    want(len(answers) == len(cases) and min(answers) >= 4, f"of 5 pings each, {answers} answers", log)
    found = stats(log)
    want(len(found) == len(cases), f"counters of {len(found)} guests", log)
    for (policy, rate), counters in zip(cases, found, strict=True):
        want(counters["policy"] == policy and counters["requests"] > 0, f"{counters}", log)
        want(counters["refused"] == 0, f"{policy}: a chain was refused: {counters}", log)
        want((counters["revoked"] > 0) == (rate > 0), f"{policy}: {counters}", log)
    lines = [f"{c['policy']} revoked {c['revoked']}, waits {c['revoke_waits']}" for c in found]
    return f"{sum(answers)} of {5 * len(cases)} pings answered; " + "; ".join(lines)


def stats(log: str) -> list[dict]:
    return [json.loads(line) for line in re.findall(r'^\{"policy".*\}', log, re.MULTILINE)]


def measure_script(arms: tuple[Arm, ...], rounds: int) -> str:
    """Runs guests one after the other. Each round runs each arm once, in random order."""
    script = "echo never > /sys/kernel/mm/transparent_hugepage/enabled\n"
    script += f"dd if=/dev/zero of=/tmp/disk bs=1M count={DISK_MIB} 2>/dev/null\n"
    work = " ".join(f"{operation}:{SLICE_MS}" for operation in OPERATIONS for _ in range(SLICES + 1))
    do = f"ifconfig eth0 10.0.0.2 up; pump /dev/vda {THREADS} 10.0.0.1 {work}; echo status $?"
    order = random.Random(SEED)
    for _ in range(rounds):
        turns = list(range(len(arms)))
        order.shuffle(turns)
        for index in turns:
            _, policy, rate = arms[index]
            more = "--disk /tmp/disk --net tap=tap0"
            if policy != "off":
                more += " --stats /tmp/stats"
            script += "( until ifconfig tap0 10.0.0.1 up 2>/dev/null; do usleep 200000; done ) &\n"
            script += f"echo arm {index}\n{vmm(policy, rate, do, more)} < /dev/null\n"
            script += "echo status $?\n"
            script += "wait; [ -f /tmp/stats ] && cat /tmp/stats; rm -f /tmp/stats\n"
    return script


def boots(log: str, arms: tuple[Arm, ...]) -> list[tuple[str, str]]:
    """Returns each guest's arm and output."""
    parts = log.split("\narm ")[1:]
    return [(arms[int(part.split()[0])][0], part) for part in parts]


def rates(log: str, arms: tuple[Arm, ...], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Returns operations a second by operation and arm, one for each boot. Raises Failed unless all guests
    end successfully."""
    found: dict[str, dict[str, list[float]]] = {}
    counts = Counter(name for name, _ in boots(log, arms))
    want(counts == {name: rounds for name, *_ in arms}, f"guests of {dict(counts)}", log)
    for name, boot in boots(log, arms):
        # The statuses of the guest's command and of the VMM.
        statuses = re.findall(r"^status (\d+)", boot, re.MULTILINE)
        want(statuses == ["0", "0"], f"{name}: statuses {statuses}", boot)
        for operation in OPERATIONS:
            slices = re.findall(rf"^pump {operation} (\d+) (\d+)", boot, re.MULTILINE)
            want(len(slices) == SLICES + 1, f"{name}: {len(slices)} slices of {operation}", boot)
            # The first slice fills caches and grants the lasting pages.
            count, ns = (sum(int(one[at]) for one in slices[1:]) for at in (0, 1))
            by_arm = found.setdefault(operation, {name: [] for name, *_ in arms})
            by_arm[name].append(count / (ns / 1e9))
    return found


def compare(name: str, arms: tuple[Arm, ...], bench: Bench, options: argparse.Namespace) -> str:
    """Compares operations a second of each arm with the arm without restrictions, in one L1."""
    seconds = 300 + 120 * len(arms) * options.rounds
    log = bench.run(name, measure_script(arms, options.rounds), seconds=seconds)
    found = rates(log, arms, options.rounds)
    restricted = [arm for arm, policy, _ in arms if policy != "off"]
    ended = [(arm, one) for arm, boot in boots(log, arms) for one in stats(boot)]
    want(len(ended) == len(restricted) * options.rounds, "not all guests ended", log)
    # The last round's counters.
    counters = dict(ended)
    rows, lines, claims = [], [], Claims("kvm nested in tcg", "pages.py", f"make pages ARGS={name}")
    for operation, by_arm in found.items():
        for arm, values in by_arm.items():
            middle, low, high = ratio(values, by_arm["off"])
            median = statistics.median(values)
            rows.append({"operation": operation, "arm": arm, "per_s": median, "each": values})
            rows[-1] |= {"ratio": middle, "low": low, "high": high}
            what = f"{operation}s a second under page access `{arm}`, of those without restrictions"
            target = f">= {CACHE_MIN}" if arm == "cache" else ""
            claims.add(
                f"cvm.page_access.{name}.{operation}.{arm}", what, middle, "x", len(values), target,
                (low, high), "a hit costs 7 to 8 % of the device model alone, which does nothing but copy",
            )
            interval = f"{middle:.3f} ({low:.3f} to {high:.3f})"
            lines.append(f"{operation:5} {arm:19} {median:8.0f}/s  {interval}")
    for arm, one in counters.items():
        chains, asked = max(one["chains"], 1), max(one["pages_asked"], 1)
        one |= {"hit_rate": one["hits"] / asked, "requests_per_chain": one["requests"] / chains}
        lines.append(
            f"{arm:19} hits {one['hit_rate']:.4f}, requests a chain {one['requests_per_chain']:.4f},"
            f" revoked {one['revoked']}, waits {one['revoke_waits']}"
        )
    result = {"label": "kvm nested in tcg", "rounds": options.rounds, "slice_ms": SLICE_MS, "slices": SLICES}
    result |= {"rows": rows, "counters": counters}
    if options.claims:
        claims.save(options.claims)
    if options.out:
        file = options.out.with_name(f"{name}-{options.out.name}")
        file.write_text(json.dumps(result, indent=1) + "\n")
    return "\n" + "\n".join(lines)


def check_measure(bench: Bench, options: argparse.Namespace) -> str:
    """Measures the cost of policies."""
    return compare("measure", ARMS, bench, options)


def check_revoke(bench: Bench, options: argparse.Namespace) -> str:
    """Measures the cost of revocations."""
    return compare("revoke", REVOKING_ARMS, bench, options)


CHECKS = {
    "enforced": check_enforced,
    "guests": check_guests,
    "loop": check_loop,
    "threads": check_threads,
    "measure": check_measure,
    "revoke": check_revoke,
}


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("release", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--claims", type=Path)
    parser.add_argument("checks", nargs="*", default=list(CHECKS))
    options = parser.parse_intermixed_args()
    if unknown := set(options.checks) - CHECKS.keys():
        parser.error(f"no such check: {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    kernel = cached_kernel()
    reason = missing(kernel)
    if reason or kernel is None:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    status = 0
    for name in options.checks:
        with tempfile.TemporaryDirectory() as folder:
            release = options.release.resolve()
            pump = (release / "examples" / "pump",)
            bench = Bench(release / "unspin-vmm", release / "unspin", kernel, Path(folder), pump)
            if not one(name, lambda: CHECKS[name](bench, options)):
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

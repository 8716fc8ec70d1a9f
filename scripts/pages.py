#!/usr/bin/env python3
"""Checks that unspin-vmm's page access restricts devices, and measures what it costs a device alone.
Usage: scripts/pages.py RELEASE [--claims FILE] [CHECK...]
Returns 77 if a dependency is missing. scripts/iops.py measures what page access costs a guest.

RELEASE is the folder of unspin-vmm, unspin, and the crate's examples. The lab's QEMU, or the one that
UNSPIN_VT_QEMU names, emulates an L1 in virtual time, whose guests, L2, bounce all I/O (swiotlb=force). The checks
are: enforced (tests of the crate in an L1 with protection keys), isolation (the keys that each thread of
unspin-vmm may use, in such an L1), guests, guests-es (the same with emulated SEV-ES), reports (of a guest's
conversions), loop (the device model alone, on this machine), threads (a device's thread and a driver without a
guest, on this machine). isolation and guests-es need the kernel lab-es. Claims for `unspin claims record` go to
the file of --claims.
"""

import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from cache import cached_kernel
from checks import one, want
from claims import ROOT, Claims, processor
from isolation import isolation
from nested import L2_APPEND, Bench, es_kernel, missing, virtual
from ratio import SEED, ratio
from sev_es_bench import lab_qemu, test_kernel

MEMORY_MIB, ES_MEMORY_MIB = 192, 512
LOOP_ROUNDS, LOOP_MS = 120, 10
# Numbers of concurrent requests, then rounds. A slice is longer than a wait for a busy machine's processor.
DEPTHS = (1, 4)
THREADS_ROUNDS, THREADS_MS = 120, 50
# Reason why a hit in the cache of grants may cost too much.
SLOW = "page access adds 70 to 250 ns to a request, and this disk is memory"
FEATURES = "Memory Encryption Features active: AMD SEV SEV-ES"
# Lowest acceptable ratio of a disk's requests a second with a cache of grants.
CACHE_MIN = 0.98
# Modules of the crate's tests that run in an L1 with protection keys, and the tests that the claims rest on.
MODULES = ("enforcement", "revocation")
TESTS = (
    "enforcement::a_page_without_a_grant_cannot_be_touched",
    "enforcement::a_system_call_cannot_reach_a_page_without_a_grant",
    "enforcement::private_memory_is_a_running_vcpus_alone",
    "enforcement::the_vcpus_mapping_cannot_be_touched",
    "revocation::a_revocation_that_does_not_wait_fails_the_same_test",
    "revocation::after_a_revocation_each_access_asks_again",
    "revocation::what_the_published_implementation_seems_to_do_fails_the_same_test",
)
LABEL = "kvm nested in virtual time, prices free"
LABEL_ES = f"emulated SEV-ES by {LABEL}"
# The pool has 4 MiB, so the guest soon uses all of its pages.
APPEND = f"{L2_APPEND} quiet swiotlb=2048,force nowatchdog"


def append(do: str) -> str:
    """Returns the command line of an L2, whose init runs `do`."""
    return f'{APPEND} do="{do}"'


def vmm(policy: str, rate: int, more: str, do: str, es: bool) -> str:
    """Returns the L1's command for an L2. With emulated SEV-ES, /guest.igvm says what it does."""
    words = f"unspin-vmm {more} --page-access {policy}"
    if rate:
        words += f" --revoke-per-s {rate}"
    if es:
        return f"{words} --memory {ES_MEMORY_MIB} --emulated-sev-es --igvm /guest.igvm"
    words += f" --kernel /vmlinuz --initramfs /initramfs --memory {MEMORY_MIB}"
    return f"{words} --append {shlex.quote(append(do))}"


def check_enforced(bench: Bench, options: argparse.Namespace) -> str:
    """Checks that SIGSEGV kills a device's thread that touches the vCPUs' mapping, in an L1 with protection
    keys."""
    bench.program(test_program(), "tests")
    script = "grep -o -w -m 1 ospke /proc/cpuinfo\n"
    words = " ".join(MODULES)
    script += f"UNSPIN_VMM_NEEDS_KEYS=1 TMPDIR=/tmp tests {words}; echo status $?\n"
    log = bench.run("enforced", script, cpu="max")
    want("ospke" in log and "status 0" in log, "a test failed", log)
    passed = re.findall(r"^test (\S+) \.\.\. ok$", log, re.MULTILINE)
    # The test program also succeeds if no test matches a name.
    left = sorted(set(TESTS) - set(passed))
    want(not left, f"{', '.join(left)} did not run", log)
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


def check_guests(bench: Bench, options: argparse.Namespace, es: bool = False) -> str:
    """Checks that a disk, a console and a network work under each policy, and with revocations."""
    del options
    check = "md5sum /dev/vda; dd if=/tmp.bin of=/dev/vda bs=1M seek=1 conv=fsync 2>/dev/null;"
    do = "dd if=/dev/urandom of=/tmp.bin bs=1M count=1 2>/dev/null;" + check
    do += "echo 3 > /proc/sys/vm/drop_caches; md5sum /dev/vda; seq 1 99 > /dev/hvc0;"
    do += "ifconfig eth0 10.0.0.2 up; ping -c 5 10.0.0.1; sleep 1"
    if es:
        # The pattern does not match the kernel's command line, which contains the pattern.
        do += "; dmesg | grep '[F]eatures active: AMD SEV SEV-ES'"
    name, files = "guests-es" if es else "guests", {}
    if es:
        words = ("--initramfs", bench.initramfs, "--append", append(do))
        files["guest.igvm"] = bench.igvm(name, bench.kernel / "vmlinuz", ES_MEMORY_MIB, *words)
    script, cases = "", [("request", 0), ("cache", 500), ("batch", 0), ("pregrant", 500)]
    for policy, rate in cases:
        more = "--disk /tmp/disk --console /tmp/console --net tap=tap0 --stats /tmp/stats"
        script += "dd if=/dev/urandom of=/tmp/disk bs=1M count=3 2>/dev/null; md5sum /tmp/disk\n"
        script += "( until ifconfig tap0 10.0.0.1 up 2>/dev/null; do usleep 100000; done ) &\n"
        script += vmm(policy, rate, more, do, es) + " < /dev/null; echo status $?\n"
        script += "md5sum /tmp/disk; echo lines $(wc -l < /tmp/console); cat /tmp/stats; wait\n"
    log = bench.run(name, script, files, seconds=1800 if es else 900)
    statuses = re.findall(r"^status (\d+)", log, re.MULTILINE)
    want(statuses == ["0"] * len(cases), f"statuses {statuses}", log)
    want(not es or log.count(FEATURES) == len(cases), "not all guests had SEV-ES", log)
    sums = re.findall(r"^([0-9a-f]{32})  /", log, re.MULTILINE)
    want(len(sums) == 4 * len(cases), f"{len(sums)} sums of disks", log)
    for case, (before, first, after, file) in zip(cases, zip(*[iter(sums)] * 4), strict=True):
        want(before == first and after == file != before, f"{case}: the disk is another", log)
    want(log.count("lines 99") == len(cases), "the console has something else", log)
    answers = [int(found) for found in re.findall(r"(\d+) packets received", log)]
    want(answers == [5] * len(cases), f"of 5 pings each, {answers} answers", log)
    found = stats(log)
    want(len(found) == len(cases), f"counters of {len(found)} guests", log)
    for (policy, rate), counters in zip(cases, found, strict=True):
        want(counters["policy"] == policy and counters["requests"] > 0, f"{counters}", log)
        want(counters["refused"] == 0, f"{policy}: a chain was refused: {counters}", log)
        converts = counters["to_private"] + counters["to_shared"] > 0
        want(converts == es, f"{policy}: it converts: {counters}", log)
        want((counters["revoked"] > 0) == (rate > 0), f"{policy}: {counters}", log)
    rates = [counters["revoked"] / counters["seconds"] for counters in found]
    lines = [
        f"{c['policy']} revoked {c['revoked']} ({rate:.0f} a second), waits {c['revoke_waits']}"
        for c, rate in zip(found, rates, strict=True)
    ]
    return f"{sum(answers)} of {5 * len(cases)} pings answered; " + "; ".join(lines)


def check_reports(bench: Bench, options: argparse.Namespace) -> str:
    """Checks that a plain guest's conversions take pages from devices, and the answers to reports that
    make no sense. KVM itself refuses two of those."""
    del options
    kernel, memory = test_kernel(bench.folder, name="plain.c"), 64
    words = f"--memory {memory} --page-access pregrant --stats /tmp/stats"
    script = f"unspin-vmm --kernel /plain {words} < /dev/null; echo status $?; cat /tmp/stats\n"
    log = bench.run("reports", script, {"plain": kernel.read_bytes()})
    answers = re.findall(r"^(ok  |FAIL) ", log, re.MULTILINE)
    want("guest: passed" in log and "FAIL" not in answers, "an answer is wrong", log)
    want("status 0" in log, "the guest did not power off", log)
    (found,) = stats(log)
    want(found["converted_open"] == memory << 8, f"pages stayed open: {found}", log)
    want(found["reports_refused"] == 10 and found["to_private"] == 2, f"{found}", log)
    return f"{len(answers)} answers of a plain guest's reports, {found['converted_open']} pages revoked"


def stats(log: str) -> list[dict]:
    return [json.loads(line) for line in re.findall(r'^\{"policy".*\}', log, re.MULTILINE)]


LABELS = {
    "enforced": "an emulated machine with protection keys, in virtual time",
    "isolation": LABEL_ES,
    "guests": LABEL,
    "guests-es": LABEL_ES,
}
# The claims that a check supports, each as an id and its statement.
SAYS = {
    "enforced": (
        (
            "cvm.page_access.enforced",
            "a touch of a page that is not granted, is returned, is revoked, or is not the thread's kills the process",
        ),
        (
            "cvm.page_access.revoked",
            "5,000 pages revoked while two threads use them: none is used while closed, or closed in use, and each"
            " later access asks again",
        ),
        ("cvm.page_access.doubles", "three deliberately wrong revocations fail the same test"),
    ),
    "isolation": (
        ("cvm.isolation", "each thread of unspin-vmm has the protection keys of only the memory that it must use"),
    ),
    "guests": (
        ("cvm.page_access.guests", "devices work under four policies, two of them with 500 revocations a second"),
    ),
    "guests-es": (
        (
            "cvm.page_access.guests-es",
            "a guest's devices work under four policies, two of them with 500 revocations a second, emulated SEV-ES",
        ),
    ),
}
# The checks whose guests have emulated SEV-ES.
WITH_ES = ("isolation", "guests-es")
CHECKS = {
    "enforced": check_enforced,
    "isolation": lambda bench, options: isolation(bench),
    "guests": check_guests,
    "reports": check_reports,
    "guests-es": partial(check_guests, es=True),
    "loop": check_loop,
    "threads": check_threads,
}


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("release", type=Path)
    parser.add_argument("--claims", type=Path)
    parser.add_argument("checks", nargs="*", default=list(CHECKS))
    options = parser.parse_intermixed_args()
    if unknown := set(options.checks) - CHECKS.keys():
        parser.error(f"no such check: {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    kernel, release = cached_kernel(), options.release.resolve()
    qemu = lab_qemu(str(release / "unspin")).resolve()
    reason = missing(kernel) or ("" if qemu.is_file() else "needs the lab's QEMU: unspin lab qemu build")
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    host = es_kernel(release / "unspin")
    if not host.is_file() and set(WITH_ES) & set(options.checks):
        print("skipped: needs the kernel lab-es: unspin lab kernel build --source lab-es", file=sys.stderr)
        return 77
    status = 0
    for name in options.checks:
        with tempfile.TemporaryDirectory() as folder:
            es = {"host": host, "kvm_amd": "es_emu=1"} if name in WITH_ES else {}
            bench = Bench(release / "unspin-vmm", release / "unspin", kernel, Path(folder), **es)
            bench.machine = partial(virtual, qemu, SEED)
            holds = one(name, lambda: CHECKS[name](bench, options))
            status |= not holds
            claims = Claims(LABELS.get(name, ""), "pages.py", f"make pages ARGS={name}")
            for claim, what in SAYS.get(name, ()):
                claims.add(claim, what, 100 / bench.tries if holds else 0, "%", bench.tries, ">= 100")
            if options.claims:
                claims.save(options.claims)
    return status


if __name__ == "__main__":
    sys.exit(main())

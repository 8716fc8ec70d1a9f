#!/usr/bin/env python3
"""Measures the speed of one guest in stacks of a real hypervisor and a VMM, in virtual time.
Usage: scripts/stacks.py RELEASE [--stacks STACK...] [--rounds N] [--seconds N] [--jobs N] [--real-time]
                         [--json] [--claims FILE]
Returns 77 if a dependency is missing.

RELEASE is the folder of unspin-vmm and unspin. The lab's QEMU, or the one that UNSPIN_VT_QEMU
names, emulates AMD's SVM for an L1 in virtual time. With --real-time, this machine's QEMU does so in
real time. The stacks are qemu (QEMU's q35), vmm (unspin-vmm), es (unspin-vmm --emulated-sev-es), and
xen (Xen and its dom0's drivers). The stack es needs the kernel lab-es as the L1's kernel; without es,
the L1 has Debian's kernel. The stack xen needs the files of `make xen`. Each round boots an L1 with
KVM, in which the stacks start the same guest one after the other, and an L1 with Xen. All orders
occur equally often. In virtual time, each round has its own seed. --stacks names the stacks, if not all.
--seconds is how long each workload runs in the guest.
"""

import argparse
import itertools
import json
import random
import re
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import xen
from cache import cached_kernel
from checks import Failed, want
from claims import Claims
from nested import CPUS, L2_APPEND, L2_MODULES, Bench, es_kernel, missing
from ratio import SEED, ratio
from sev_es_bench import in_virtual_time, lab_qemu

GUEST = Path(__file__).resolve().parent / "stacks-guest.sh"
PROGRAMS = ("sysbench", "fio", "iperf3")
MEMORY_MIB = 512
L1_MEMORY_MIB = 3072
DISK_MIB = 64
VCPUS = 2
MEASURES = {
    "sysbench": "events of sysbench cpu a second",
    "randread": "random reads of 4 KiB a second by fio",
    "randwrite": "random writes of 4 KiB a second by fio",
    "send-1": "Mbit/s of TCP that the guest sends through one pair of queues",
    "send-2": "Mbit/s of TCP that the guest sends through two pairs of queues",
    "receive-1": "Mbit/s of TCP that the guest receives through one pair of queues",
    "receive-2": "Mbit/s of TCP that the guest receives through two pairs of queues",
}
STACKS = {
    "qemu": "QEMU's q35",
    "vmm": "unspin-vmm",
    "es": "unspin-vmm with emulated SEV-ES",
    "xen": "Xen",
}
# Each stack and its baseline. Except for Xen, they differ in one component.
PAIRS = (("vmm", "qemu"), ("es", "vmm"), ("xen", "vmm"))
# The stacks whose computations must be as fast as in their baselines.
CONTROLS = {"vmm": "cvm.seed003.control", "xen": "cvm.seed003.xen.control"}
# Largest acceptable distance of a control from 1, in percent.
CONTROL_MAX = 3
# Time limit of an L1 in virtual time, in seconds of this machine.
LIMIT = 3600
# For each stack and measure, one figure per round.
Figures = dict[str, dict[str, list[float]]]


def append(seconds: int) -> str:
    return f'{L2_APPEND} quiet do="{GUEST.name} {seconds}"'


def command(stack: str, seconds: int) -> str:
    """Returns the L1's command that starts the guest. tap1 has one queue pair, and tap2 has two."""
    if stack == "xen":
        return xen.COMMAND
    line = shlex.quote(append(seconds))
    if stack == "qemu":
        # The same devices as unspin-vmm: modern virtio, the page cache, one disk queue, no vhost.
        words = "qemu -L /share -machine q35 -accel kvm -cpu host -nodefaults -display none -no-reboot"
        words += f" -serial stdio -m {MEMORY_MIB} -smp {VCPUS}"
        words += f" -kernel /vmlinuz -initrd /initramfs -append {line}"
        words += " -drive if=none,id=disk,file=/tmp/disk,format=raw,cache=writeback"
        words += " -device virtio-blk-pci,drive=disk,num-queues=1,disable-legacy=on"
        for pairs in (1, 2):
            words += f" -netdev tap,id=tap{pairs},ifname=tap{pairs},script=no,downscript=no,vhost=off"
            words += f",queues={pairs} -device virtio-net-pci,netdev=tap{pairs},romfile=,disable-legacy=on"
            words += f",mq={'on' if pairs > 1 else 'off'}"
        return words
    words = f"unspin-vmm --memory {MEMORY_MIB} --vcpus {VCPUS} --disk /tmp/disk"
    words += " --net tap=tap1 --net tap=tap2,queues=2"
    if stack == "es":
        return f"{words} --emulated-sev-es --igvm /guest.igvm"
    return f"{words} --kernel /vmlinuz --initramfs /initramfs --append {line}"


def script(stacks: Sequence[str], seconds: int) -> str:
    """Returns the L1's script, which runs the guest in one stack after the other."""
    lines = [
        "uname -r | sed 's/^/host: /'",
        "cd /sys/hypervisor/version 2>/dev/null &&"
        " echo hypervisor: Xen $(cat major).$(cat minor)$(cat extra) && cd /tmp",
        f"dd if=/dev/zero of=/tmp/disk bs=1M count={DISK_MIB} 2>/dev/null",
        "iperf3 -s -D",
        # A VMM creates its taps when it starts.
        "up() { until ifconfig tap$1 10.0.$1.1 netmask 255.255.255.0 up 2>/dev/null; do usleep 100000; done; }",
    ]
    for stack in stacks:
        taps = "true" if stack == "xen" else "up 1; up 2"
        lines.append(f"echo stack {stack}; ( {taps} ) & taps=$!")
        lines.append(f"{command(stack, seconds)} < /dev/null; echo status $?")
        lines.append("kill $taps 2>/dev/null; wait")
    return "\n".join(lines) + "\n"


def figures(log: str) -> dict[str, dict[str, float]]:
    """Returns the figures of each stack's guest in an L1's output. Raises Failed if a guest lacks a
    figure."""
    found: dict[str, dict[str, float]] = {}
    for part in re.split(r"^stack ", log, flags=re.MULTILINE)[1:]:
        stack = part.split(maxsplit=1)[0]
        values = re.findall(r"^figure (\S+) ([\d.]+)\s*$", part, re.MULTILINE)
        found[stack] = {name: float(value) for name, value in values}
        status = re.search(r"^status (\d+)", part, re.MULTILINE)
        want(status and status[1] == "0", f"{stack}: status {status and status[1]}", part)
        lacking = MEASURES.keys() - {name for name, value in found[stack].items() if value > 0}
        want(not lacking, f"{stack}: no figure of {', '.join(sorted(lacking))}", part)
        pairs = re.findall(r"^pairs eth\d (\d+)", part, re.MULTILINE)
        want(pairs == ["1", "2"], f"{stack}: {pairs} pairs of queues were in use", part)
    return found


def rounds_in_virtual_time(
    bench: Bench, stacks: list[str], files: dict[str, bytes], options: argparse.Namespace
) -> list[str]:
    """Returns the output of the L1s, which run in parallel. The same seed always prints the same output."""
    orders = list(itertools.permutations(stacks))

    def turns(seed: int) -> str:
        return script(orders[(seed - 1) % len(orders)], options.seconds)

    more = {"files": files, "seconds": LIMIT, "memory_mib": L1_MEMORY_MIB}
    return in_virtual_time(bench, bench.name, turns, options.rounds, options.jobs, **more)


def rounds_in_real_time(
    bench: Bench, stacks: list[str], files: dict[str, bytes], options: argparse.Namespace
) -> list[str]:
    """Returns the output of the L1s in real time, which run one after the other. Under emulation, an L1
    sometimes loses a timer and hangs. Its round is then repeated."""
    orders, logs, failures = list(itertools.permutations(stacks)), [], 0
    random.Random(SEED).shuffle(orders)
    limit = 120 + len(stacks) * (60 + 15 * options.seconds)
    while len(logs) < options.rounds:
        turns = script(orders[len(logs) % len(orders)], options.seconds)
        try:
            log = bench.run(bench.name, turns, files, limit, memory_mib=L1_MEMORY_MIB)
            figures(log)
        except Failed as error:
            failures += 1
            print(f"a round failed: {error}", file=sys.stderr, flush=True)
            want(failures <= options.rounds, f"{failures} rounds failed")
            continue
        logs.append(log)
        print(f"round {len(logs)} of {options.rounds} is done", file=sys.stderr, flush=True)
    return logs


def measure(bench: Bench, stacks: list[str], options: argparse.Namespace) -> dict:
    """Returns the figures of all rounds, and a description of the measured system."""
    rounds = rounds_in_real_time if options.real_time else rounds_in_virtual_time
    plain, logs = [stack for stack in stacks if stack != "xen"], []
    if plain:
        files = {}
        if "es" in plain:
            words = ("--initramfs", bench.initramfs, "--append", append(options.seconds))
            kernel = bench.kernel / "vmlinuz"
            files["guest.igvm"] = bench.igvm("guest", kernel, MEMORY_MIB, *words, "--vcpus", str(VCPUS))
        logs.append(rounds(bench, plain, files, options))
    if "xen" in stacks:
        host = xen.XenBench(bench, xen.files())
        host.program(Path(shutil.which("iperf3")), "iperf3")
        guest = xen.config(append(options.seconds), MEMORY_MIB, VCPUS)
        logs.append(rounds(host, ["xen"], {"guest.cfg": guest.encode()}, options))
    found = [figures("".join(one)) for one in zip(*logs, strict=True)]
    each = {stack: {name: [one[stack][name] for one in found] for name in MEASURES} for stack in stacks}
    printed = "".join(log for one in logs for log in one)
    # Of the L1 with KVM, and of the one with Xen.
    hosts = [version(one[0], "host") for one in logs]
    more = {}
    if "xen" in stacks:
        more = {"xen": version(logs[-1][0], "hypervisor"), "dom0_kernel": hosts[-1]}
    clocks = sorted(set(re.findall(r"^guest: .*clock (\S+)", printed, re.MULTILINE)))
    return {
        "time": "real" if options.real_time else "virtual", "host_kernel": hosts[0],
        "guest_kernel": version(printed, "guest"), "clocks": clocks, "rounds": options.rounds,
        "seconds": options.seconds, "each": each, **more,
    }


def version(log: str, whose: str) -> str:
    """Returns a version that an L1 or a guest prints."""
    found = re.search(rf"^{whose}: (?:Xen )?([^\s,]+)", log, re.MULTILINE)
    want(found, f"no version of the {whose}", log)
    return found[1]


def comparisons(each: Figures) -> list[dict]:
    """Returns the ratio of each stack to its baseline, and of two queue pairs to one in each stack."""
    cases = [
        (f"{stack}.{name}", f"{MEASURES[name]}: {STACKS[stack]} beside {STACKS[base]}", stack, name, base, name)
        for stack, base in PAIRS
        if stack in each and base in each
        for name in MEASURES
    ]
    cases += [
        (
            f"pairs.{stack}.{way}",
            f"Mbit/s of TCP that the guest {way}s: two pairs of queues beside one, {STACKS[stack]}",
            stack, f"{way}-2", stack, f"{way}-1",
        )
        for stack in each
        for way in ("send", "receive")
    ]
    rows = []
    for case, what, stack, name, base, base_name in cases:
        middle, low, high = ratio(each[stack][name], each[base][base_name])
        rows.append({"name": case, "what": what, "ratio": middle, "low": low, "high": high})
    return rows


def distance(row: dict) -> tuple[float, float, float]:
    """Returns the distance of a ratio from 1 in percent, and its interval."""
    middle, low, high = (100 * abs(row[part] - 1) for part in ("ratio", "low", "high"))
    nearest = 0.0 if row["low"] <= 1 <= row["high"] else min(low, high)
    return middle, nearest, max(low, high)


def claims(result: dict) -> list[Claims]:
    """Returns the claims of all comparisons: of plain guests, of guests with emulated SEV-ES, and of
    Xen's guests. The controls compare how fast a guest computes, because neither a VMM nor a
    hypervisor affects that."""
    where = "tcg" if result["time"] == "real" else "virtual time, prices free"
    label, rounds = f"kvm nested in {where}, L1 kernel {result['host_kernel']}", result["rounds"]
    labels = {"kvm": label, "es": f"emulated SEV-ES by {label}"}
    if "xen" in result:
        labels["xen"] = f"xen {result['xen']} nested in {where}"
        labels["xen"] += f", dom0 kernel {result['dom0_kernel']}"
    made = {one: Claims(label, "stacks.py", "make stacks") for one, label in labels.items()}
    for row in result["rows"]:
        stack = next((word for word in row["name"].split(".") if word in ("es", "xen")), "kvm")
        name, _, measure = row["name"].partition(".")
        if name in CONTROLS and measure == "sysbench":
            middle, low, high = distance(row)
            base = STACKS[dict(PAIRS)[name]]
            what = f"how far sysbench's speed in {STACKS[name]} lies from that in {base}"
            what += ": the control"
            target = f"<= {CONTROL_MAX}"
            made[stack].add(CONTROLS[name], what, middle, "%", rounds, target, (low, high))
        figure = (f"cvm.seed003.{row['name']}", row["what"], row["ratio"], "x", rounds, "")
        made[stack].add(*figure, (row["low"], row["high"]))
    return list(made.values())


def table(result: dict) -> str:
    """Returns the medians of each stack, then the ratios."""
    lines = [f"L1 has Linux {result['host_kernel']}, the guest {result['guest_kernel']}; medians:"]
    if "xen" in result:
        lines.insert(0, f"Xen {result['xen']}'s dom0 has Linux {result['dom0_kernel']}")
    each = result["each"]
    for name, what in MEASURES.items():
        medians = ", ".join(f"{stack} {statistics.median(each[stack][name]):.1f}" for stack in each)
        lines.append(f"  {medians}: {what}")
    for row in result["rows"]:
        lines.append(f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})  {row['what']}")
    return "\n".join(lines)


def lacking(kernel: Path | None) -> str:
    """Returns a message about a missing dependency, or an empty string."""
    packages = [program for program in PROGRAMS if not shutil.which(program)]
    return missing(kernel) or (f"needs apt install {' '.join(packages)}" if packages else "")


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("release", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=list(STACKS))
    parser.add_argument("--jobs", type=int, default=CPUS)
    parser.add_argument("--real-time", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--claims", type=Path)
    options = parser.parse_args()
    # Real time needs more and longer rounds, because other work on the machine disturbs them.
    options.rounds = options.rounds or (12 if options.real_time else 6)
    options.seconds = options.seconds or (4 if options.real_time else 1)
    kernel, release = cached_kernel(), options.release.resolve()
    reason = lacking(kernel)
    if not reason and not options.real_time and not lab_qemu(str(release / "unspin")).is_file():
        reason = "needs the lab's QEMU: unspin lab qemu build"
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 77
    stacks, host = list(dict.fromkeys(options.stacks)), es_kernel(release / "unspin")
    without = {"xen": xen.lacking(xen.files())}
    if not host.is_file():
        without["es"] = "needs the kernel lab-es: unspin lab kernel build --source lab-es"
    for stack, reason in without.items():
        if reason and stack in stacks:
            stacks.remove(stack)
            print(f"skipped: {stack} {reason}", file=sys.stderr)
    if not stacks:
        return 77
    with tempfile.TemporaryDirectory() as folder:
        programs = (GUEST, *(Path(shutil.which(program)) for program in PROGRAMS))
        own = {"host": host, "kvm_amd": "es_emu=1"} if "es" in stacks else {}
        if "xen" in stacks:
            own["guest_modules"] = (*L2_MODULES, *xen.GUEST_MODULES)
        bench = Bench(release / "unspin-vmm", release / "unspin", kernel, Path(folder), programs, **own)
        bench.qemu()
        bench.program(Path(shutil.which("iperf3")), "iperf3")
        try:
            result = measure(bench, stacks, options)
        except Failed as error:
            print(f"FAILED: {error}", file=sys.stderr)
            return 1
    result["rows"] = comparisons(result["each"])
    print(json.dumps(result, indent=1) if options.json else table(result))
    if options.claims:
        for made in claims(result):
            made.save(options.claims)
    return 0


if __name__ == "__main__":
    sys.exit(main())

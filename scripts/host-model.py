#!/usr/bin/env python3
"""Compares the simulated host with this machine's scheduler: how long threads that compute all the time are on
and off. 4 and 6 threads share two pCPUs, once as single threads and once in the groups of two VMs. Needs root,
tracefs, exactly two CPUs and a quiet machine whose kernel has EEVDF (6.6 or later).
Prints claims for `unspin claims record`. Usage: scripts/host-model.py [UNSPIN]
"""

import json
import os
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from pathlib import Path

from claims import Claims

SECONDS = 10
SETTLE_S = 2
SEEDS = range(1, 6)
# Ticks of a real host jitter by a few microseconds. Smaller differences count as equal.
RESOLUTION_MS = 0.25
# The medians of the two may differ by this much.
APART_PERCENT = 10
TRACING = Path("/sys/kernel/tracing")
CGROUPS = Path("/sys/fs/cgroup")
CGROUPS_V1 = CGROUPS / "cpu"
SWITCH = re.compile(r"\s(\d+\.\d+): sched_switch: .*prev_pid=(\d+).*next_pid=(\d+)")
HEADER, EVENT = 32, struct.Struct("<QBBHI")
ON, OFF = 1, 2


class Intervals:
    """Lengths of the on and off intervals, in milliseconds."""

    def __init__(self) -> None:
        self.on: list[float] = []
        self.off: list[float] = []
        self._on_since: dict[int, float] = {}
        self._off_since: dict[int, float] = {}

    def goes_on(self, thread: int, ms: float) -> None:
        if thread in self._off_since:
            self.off.append(ms - self._off_since.pop(thread))
        self._on_since[thread] = ms

    def goes_off(self, thread: int, ms: float) -> None:
        if thread in self._on_since:
            self.on.append(ms - self._on_since.pop(thread))
        self._off_since[thread] = ms


def share_time() -> bool:
    """Returns whether cgroups have shares of CPU time. In version 2, the parent may not enable them."""
    controllers = CGROUPS / "cgroup.subtree_control"
    return CGROUPS_V1.is_dir() or (controllers.exists() and "cpu" in controllers.read_text().split())


def groups(count: int) -> list[Path]:
    """Makes cgroups of version 1 or 2 with equal shares."""
    top = CGROUPS_V1 if CGROUPS_V1.is_dir() else CGROUPS
    made = [top / f"unspin-host-model-{number}" for number in range(count)]
    for group in made:
        group.mkdir(exist_ok=True)
    return made


def busy(group: Path) -> int:
    """Starts a process that computes forever in a cgroup, and returns its id."""
    pid = os.fork()
    if pid == 0:
        # The child exits in any case. It must not go on as a second copy of this script.
        try:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            while True:
                pass
        finally:
            os._exit(1)
    return pid


def real(threads: int, per_vm: bool) -> Intervals:
    """Measures the intervals under this machine's scheduler."""
    made = groups(2 if per_vm else 1)
    event = TRACING / "events/sched/sched_switch"
    pids: list[int] = []
    found = Intervals()
    try:
        for number in range(threads):
            pids.append(busy(made[number * len(made) // threads]))
        time.sleep(SETTLE_S)
        (TRACING / "buffer_size_kb").write_text("16384")
        (TRACING / "trace").write_text("")
        (TRACING / "trace_clock").write_text("mono")
        (TRACING / "tracing_on").write_text("1")
        wanted = " || ".join(f"prev_pid=={pid} || next_pid=={pid}" for pid in pids)
        (event / "filter").write_text(wanted)
        (event / "enable").write_text("1")
        time.sleep(SECONDS)
    finally:
        (event / "enable").write_text("0")
        (event / "filter").write_text("0")
        for pid in pids:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        time.sleep(0.1)
        for group in made:
            group.rmdir()
    for line in (TRACING / "trace").read_text().splitlines():
        match = SWITCH.search(line)
        if match:
            ms, before, after = float(match[1]) * 1e3, int(match[2]), int(match[3])
            if before in pids:
                found.goes_off(before, ms)
            if after in pids:
                found.goes_on(after, ms)
    return found


def simulated(qemu: dict, folder: Path, threads: int, per_vm: bool) -> Intervals:
    """Measures the intervals on the simulated host, with modelled neighbours and an idle guest."""
    found = Intervals()
    record = folder / "record.bin"
    for seed in SEEDS:
        host = f"virtual-host,id=host0,pcpus=2,seed={seed},record={record}"
        host += f",until={(SECONDS + SETTLE_S) * 10**9}"
        host += ",fairness=per-vm" if per_vm else ""
        command = [qemu["program"], "-L", qemu["firmware"], "-M", "q35", "-m", "128"]
        command += ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]
        command += ["-rtc", "base=2020-01-01,clock=vm", "-object", host]
        for vm in range(2 if per_vm else 1):
            vcpus = threads // 2 if per_vm else threads
            command += ["-object", f"virtual-neighbour,id=n{vm},vcpus={vcpus}"]
        command += ["-nodefaults", "-no-user-config", "-display", "none"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 3:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        for ns, kind, _, entity, _ in EVENT.iter_unpack(record.read_bytes()[HEADER:]):
            thread = seed * 1000 + entity
            if entity == 0 or ns < SETTLE_S * 10**9:
                continue
            if kind == ON:
                found.goes_on(thread, ns / 1e6)
            elif kind == OFF:
                found.goes_off(thread, ns / 1e6)
    return found


def distance(one: list[float], other: list[float]) -> float:
    """Returns the Kolmogorov-Smirnov distance of lengths rounded to the resolution."""
    first, second = (sorted(round(x / RESOLUTION_MS) for x in of) for of in (one, other))
    at = sorted({*first, *second})
    return max(
        abs(bisect_right(first, x) / len(first) - bisect_right(second, x) / len(second)) for x in at
    )


def main() -> None:
    unspin = sys.argv[1] if len(sys.argv) > 1 else "unspin"
    # SIGTERM must not leave processes that compute forever.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() or len(os.sched_getaffinity(0)) != 2:
        print("needs root and exactly two CPUs", file=sys.stderr)
        sys.exit(77)
    if not share_time():
        print("needs the controller cpu in /sys/fs/cgroup/cgroup.subtree_control", file=sys.stderr)
        sys.exit(77)
    if not (TRACING / "events").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    show = subprocess.run([unspin, "lab", "qemu", "show", "--json"], capture_output=True)
    qemu = next((b for b in json.loads(show.stdout)["builds"] if b.get("current")), None)
    if qemu is None:
        sys.exit(f"the lab's QEMU is not built: run `{unspin} lab qemu build`")
    label = f"vt, EEVDF, beside Linux {os.uname().release}, two CPUs"
    claims = Claims(label, "host-model.py", "make host-model")
    with tempfile.TemporaryDirectory() as name:
        for threads in (4, 6):
            for per_vm in (False, True):
                here = real(threads, per_vm)
                there = simulated(qemu, Path(name), threads, per_vm)
                who = f"{threads} computing threads on two pCPUs, " + (
                    "in two groups" if per_vm else "each for itself")
                for kind in ("on", "off"):
                    one, other = getattr(here, kind), getattr(there, kind)
                    key = f"{threads}{'_vm' if per_vm else ''}.{kind}"
                    apart = abs(statistics.median(other) / statistics.median(one) - 1) * 100
                    print(f"{key}: median {statistics.median(one):.3f} ms here, "
                          f"{statistics.median(other):.3f} simulated", file=sys.stderr)
                    claims.add(
                        f"vt.host_model.median.{key}",
                        f"difference of the median lengths of intervals {kind}, here and simulated: "
                        f"{who}",
                        apart, "%", len(one), f"<= {APART_PERCENT}")
                    claims.add(
                        f"vt.host_model.ks.{key}",
                        f"Kolmogorov-Smirnov distance of the lengths of intervals {kind}, "
                        f"at {RESOLUTION_MS} ms: {who}",
                        distance(one, other), "", len(one))
    print(claims.text())


if __name__ == "__main__":
    main()

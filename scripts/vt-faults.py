#!/usr/bin/env python3
"""Checks that the lab notices a fault of its simulated host. Virtual time.
Usage: scripts/vt-faults.py UNSPIN FOLDER [CHECKER...]

Builds the lab's QEMU in FOLDER, puts one fault after the other into its source, and runs four computing
vCPUs on two pCPUs with it. Each fault must break the invariant that its entry names, and no invariant may
break without a fault. Prints claims for `unspin claims record`. The first build takes four minutes of CPU
time, and each fault half a minute. FOLDER is kept, so the next call is shorter.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from claims import Claims

HOST = "accel/tcg/virtual-host.c"
EXPERIMENT = """
name = "vt-faults"
title = "A host with a fault"
about = "Four vCPUs on two pCPUs."
repeats = 1
seed = 1
accel = "vt"
kernels = ["debian-cloud"]
schedulers = ["stock"]
workloads = ["%s"]

[[topology]]
name = "4-on-2"
vcpus = 4
pcpus = 2
vt = { %s }
"""


@dataclass
class Fault:
    """The replacement of some text in a file, and the checker that must notice it. If time goes back, the
    reader of records notices first."""

    checker: str
    what: str
    file: str
    text: str
    instead: str
    # The workload of the four vCPUs, which compute, or sleep and wake all the time.
    workload: str = "sysbench-cpu-lasting"
    # The host's settings besides the defaults.
    host: str = ""


FAULTS = [
    Fault(
        "order", "a wake-up has the time of the round before it", HOST,
        "vh_record(vh, now, VH_WAKE,", "vh_record(vh, now - MIN(now, vh->quantum_ns), VH_WAKE,",
        "hackbench-lasting",
    ),
    Fault(
        "one-pcpu", "balancing moves a thread that runs", "include/policy/host/balance.h",
        "return t->state == HOST_QUEUED &&", "return t->state != HOST_BLOCKED &&",
    ),
    Fault(
        "states", "a vCPU that is preempted is recorded as idle", HOST,
        "vh_record(vh, now, preempted ? VH_OFF : VH_IDLE, p,", "vh_record(vh, now, VH_IDLE, p,",
    ),
    Fault(
        "accounts", "exits of the first vCPU are not recorded", HOST,
        "if (vh->record_exits) {", "if (vh->record_exits && cpu->cpu_index) {",
    ),
    Fault(
        "no-idle-pcpu", "a pCPU without a thread leaves those of others waiting",
        "include/policy/host/pick.h", "\t\t\thost_pull(h, p, now);\n", "\t\t\tcontinue;\n",
    ),
    Fault(
        "shares", "the first vCPU is charged half of its time", "include/policy/host/group.h",
        "se->vruntime += host_virtual(ran, se->weight);",
        "se->vruntime += host_virtual(e ? ran : ran / 2, se->weight);",
    ),
    Fault(
        "quota", "half of the time is charged to the guest's quota",
        "include/policy/host/bandwidth.h",
        "q->quota_left_ns -= (s64)ns;", "q->quota_left_ns -= (s64)ns / 2;",
        host='cpu_max = "100000 100000"',
    ),
]


class Lab:
    """The program unspin, and the QEMU that it built in a folder."""

    def __init__(self, unspin: Path, folder: Path):
        self.unspin, self.folder, self.tree = unspin, folder, folder / "tree"
        self.log, self.program = folder / "log", self.tree / "bin/qemu-system-x86_64"
        if not self.program.exists():
            shutil.rmtree(self.tree, ignore_errors=True)
            subprocess.run([unspin, "lab", "qemu", "build", "--keep", self.tree], check=True,
                           stdout=sys.stderr)

    def broken(self, workload: str, host: str) -> str:
        """Runs with the current source tree, and returns the broken invariant or an empty string."""
        (self.folder / "vt-faults.toml").write_text(EXPERIMENT % (workload, host))
        with self.log.open("a") as log:
            subprocess.run([self.tree / "build"], check=True, stdout=log, stderr=log)
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        command = [self.unspin, "lab", "run", "vt-faults.toml", "--out", out]
        named = {"UNSPIN_VT_QEMU": str(self.program)}
        with self.log.open("a") as log:
            subprocess.run(command, cwd=self.folder, env=os.environ | named, stdout=log, stderr=log)
        run = json.loads((out / "runs.jsonl").read_text().splitlines()[-1])
        return "" if run["outcome"] == "done" else run.get("detail", run["outcome"])

    def with_fault(self, fault: Fault) -> str:
        """Returns the invariant that the fault breaks, and removes the fault afterwards."""
        file = self.tree / "source" / fault.file
        sound = file.read_text()
        if sound.count(fault.text) != 1:
            raise SystemExit(f"{fault.file}: not once in it: {fault.text!r}")
        file.write_text(sound.replace(fault.text, fault.instead))
        try:
            return self.broken(fault.workload, fault.host)
        finally:
            file.write_text(sound)


def main(unspin: str, folder: str, *checkers: str) -> int:
    if unknown := set(checkers) - {fault.checker for fault in FAULTS}:
        print(f"no such checker: {', '.join(unknown)}", file=sys.stderr)
        return 2
    Path(folder).mkdir(parents=True, exist_ok=True)
    lab = Lab(Path(unspin).resolve(), Path(folder).resolve())
    faults = [fault for fault in FAULTS if not checkers or fault.checker in checkers]
    for workload, host in {(fault.workload, fault.host): None for fault in faults}:
        if broken := lab.broken(workload, host):
            print(f"without a fault: {workload} {host}: {broken}", file=sys.stderr)
            return 1
    print("without a fault: nothing breaks", file=sys.stderr)
    caught = 0
    for fault in faults:
        broken = lab.with_fault(fault)
        says = "time goes back" if fault.checker == "order" else f"invariant `{fault.checker}`"
        caught += says in broken
        print(f"{fault.checker}: {fault.what}: {broken or 'not noticed'}", file=sys.stderr)
    claims = Claims("lab/vt", "vt-faults.py", "make vt-faults")
    what = "faults put into the simulated host that its checker catches"
    claims.add("vt.host_faults_caught", what, caught, "", len(faults), f">= {len(faults)}")
    if len(faults) == len(FAULTS):
        print(claims.text())
    return 0 if caught == len(faults) else 1


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))

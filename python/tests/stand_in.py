#!/usr/bin/env python3
"""A stand-in for `unspin lab run`: a real run in virtual time takes half a minute.

It writes what the real program writes, and knows --out, --plan, --runs, --repeats and --accel.
The experiment's file says how many cells there are, and what goes wrong.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
import tomllib
from pathlib import Path
from typing import Any


def main() -> int:
    # Where the tests run in the background of a shell, they inherit that Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parser = argparse.ArgumentParser()
    parser.add_argument("verbs", nargs=2)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--runs")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--accel")
    args = parser.parse_args()
    experiment = tomllib.loads(args.experiment.read_text())
    experiment["repeats"] = args.repeats or experiment["repeats"]
    experiment["accel"] = args.accel or experiment["accel"]
    args.out.mkdir(parents=True)
    plan = write_plan(experiment, args.out)
    if args.plan:
        return 0
    first, _, last = args.runs.partition("-")
    failed = False
    for run in range(int(first), int(last or first) + 1):
        identity = next(name for name, number in plan.items() if number == run)
        failed |= carry_out(experiment, run, identity, args.out)
    return int(failed)


def write_plan(experiment: dict[str, Any], out: Path) -> dict[str, int]:
    settings = [setting(experiment, cell) for cell in range(experiment["cells"])]
    names = [digest(one) for one in settings]
    runs = range(experiment["cells"] * experiment["repeats"])
    cells = experiment["cells"]
    plan = {digest([settings[run % cells], run // cells]): run for run in runs}
    info = {
        "name": "sample",
        "title": "A sample",
        "about": "",
        "repeats": experiment["repeats"],
        "seed": 7,
        "baseline_scheduler": "stock",
        "baseline_topology": None,
        "workloads": {},
        "smallest_effect": 0.03,
    }
    machine = {
        "cpu": "A CPU",
        "cpus": 2,
        "memory_mib": 4096,
        "kernel": "6.12",
        "distribution": "",
        "qemu": "",
        "unspin": "0.1.0",
        "commit": experiment.get("commit", ""),
    }
    meta = {
        "info": info,
        "machine": machine,
        "planned": len(plan),
        "elapsed_s": 1.0,
        "file": "x.toml",
        "complete": False,
        "plan": plan,
        "settings": sorted(names),
    }
    (out / "experiment.json").write_text(json.dumps(meta))
    spelled_out = dict(zip(names, settings, strict=True))
    (out / "identities.json").write_text(json.dumps(spelled_out))
    return plan


def setting(experiment: dict[str, Any], cell: int) -> dict[str, Any]:
    # A worker's build of the program is a part of the identity of its runs.
    build = os.getcwd() if experiment.get("builds_differ") else "one"
    return {
        "cell": {
            "topology": f"{cell + 1}:1",
            "kernel": "lab",
            "boot_params": "",
            "scheduler": "stock",
            "workload": "w",
        },
        "accel": experiment["accel"],
        "kernels": {"subject": "lab-6.12"},
        "machines": {},
        "run": {},
        "reading": {},
        "programs": {"unspin": build},
        "fresh_boots": True,
        "virtual_time": {"qemu": "q", "prices": "p"},
    }


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def carry_out(experiment: dict[str, Any], run: int, identity: str, out: Path) -> bool:
    note(experiment, f"{run} begins {os.getppid()}")
    if "slow_from" in experiment and run >= experiment["slow_from"]:
        time.sleep(60)
    time.sleep(experiment.get("sleep_s", 0))
    if run in experiment.get("without_record", []):
        print("the kernel is not to be had")
        return True
    cells = experiment["cells"]
    one = setting(experiment, run % cells)
    value = time.time() if run in experiment.get("random", []) else 0.1 * (run + 1)
    outcome = {"outcome": "done", "value": value}
    failed = run in experiment.get("failing", [])
    if failed:
        outcome = {"outcome": "failed", "kind": "guest-panic", "detail": "it panicked"}
    record = {
        "run": run,
        "block": run // cells,
        "boot": 0,
        "position": 0,
        "attempt": 1,
        "cell": one["cell"],
        "metric": {"name": "rate", "unit": "ops/s", "better": "higher"},
        **outcome,
        "co_metrics": {"jain": 0.5, "large": 1e300},
        "neighbours": [],
        "truth": None,
        "kvm": {"halt_exits": 2**63},
        "elapsed_s": 2.5,
        "boot_s": 1.5,
        "lab_cpu_share": time.process_time(),
        "spinlock": "native qspinlock",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "label": {
            "source": "lab",
            "accel": experiment["accel"],
            "nested": False,
            "kernel": "6.12.0",
            "host": f"process {os.getpid()}",
        },
        "identity": identity,
        "setting": digest(one),
    }
    with (out / "runs.jsonl").open("a") as runs:
        runs.write(json.dumps(record) + "\n")
    note(experiment, f"{run} ends {os.getppid()}")
    return failed


def note(experiment: dict[str, Any], line: str) -> None:
    """The worker is the parent of this process."""
    with Path(experiment["calls"]).open("a") as calls:
        calls.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())

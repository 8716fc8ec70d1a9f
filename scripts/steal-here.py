#!/usr/bin/env python3
"""Compares what `unspin record` finds of this machine's own vCPUs with the steal time that the hypervisor
reports: half a minute idle, then half a minute of computing, ten times.
Prints claims for `unspin claims record`. Usage: scripts/steal-here.py [UNSPIN]
"""

import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from claims import Claims, processor

ROUNDS = 10
SECONDS = 30
RESAMPLES = 10_000
LOADS = {
    "idle": ["sleep", str(SECONDS)],
    "computing": ["sysbench", "cpu", f"--threads={os.cpu_count()}", f"--time={SECONDS}", "run"],
}


def observe(unspin: str, folder: Path, load: str) -> dict:
    """Records a session under one load, and returns the figures of `unspin report --json`."""
    session = folder / "session.arrow.gz"
    session.unlink(missing_ok=True)
    record = [unspin, "record", "--beat", "500", "--out", str(session), "--", *LOADS[load]]
    recorded = subprocess.run(record, capture_output=True, text=True)
    if recorded.returncode != 0:
        sys.exit(f"{' '.join(record)}: exit code {recorded.returncode}\n{recorded.stderr}")
    report = [unspin, "report", "--json", str(session)]
    figures = json.loads(subprocess.run(report, check=True, capture_output=True).stdout)
    if figures["steal_s"] is None:
        sys.exit("the session does not say how much steal time the hypervisor reported")
    off = figures["off"]
    return {
        "seconds": figures["seconds"],
        "intervals": sum(vcpu["intervals"] for vcpu in off),
        "found_s": sum(vcpu["off_s"] for vcpu in off),
        "steal_s": figures["steal_s"],
    }


def ratio(rounds: list[dict]) -> float:
    """Returns the time found off, relative to the steal time of the same rounds."""
    return sum(one["found_s"] for one in rounds) / max(sum(one["steal_s"] for one in rounds), 0.01)


def main() -> None:
    unspin = sys.argv[1] if len(sys.argv) > 1 else "unspin"
    if os.geteuid() != 0:
        print("skipped: unspin record loads BPF programs, which takes root", file=sys.stderr)
        sys.exit(77)
    if shutil.which("sysbench") is None:
        sys.exit("sysbench is missing: run 'make setup'")
    seen: dict[str, list[dict]] = {load: [] for load in LOADS}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(ROUNDS):
            for load in LOADS:
                one = observe(unspin, Path(folder), load)
                seen[load].append(one)
                print(f"round {round_ + 1} of {ROUNDS}: {load} {json.dumps(one)}", file=sys.stderr)
    if not any(one["steal_s"] for rounds in seen.values() for one in rounds):
        sys.exit("this machine's hypervisor reports no steal time: nothing to compare with")

    # Steal time comes in ticks. Less than one tick in half a minute counts as none.
    quiet = [one["intervals"] for one in seen["idle"] if one["steal_s"] == 0]
    busy = seen["computing"]
    draws = random.Random(1)
    ratios = sorted(ratio(draws.choices(busy, k=len(busy))) for _ in range(RESAMPLES))
    label = f"host: {processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    claims = Claims(label, "steal-here.py", "make steal-here")
    claims.add(
        "sense.found_of_steal_here",
        "time off that `unspin record` found on the build machine while it computed,"
        " of the steal time that its hypervisor reported",
        ratio(busy), "x", len(busy),
        interval=(ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES)]),
    )
    if quiet:
        claims.add(
            "sense.idle_false_here",
            f"off intervals that `unspin record` found in {SECONDS} idle seconds of the"
            " build machine without steal time: the mean (interval: minimum and maximum)",
            sum(quiet) / len(quiet), "", len(quiet), "<= 0", (min(quiet), max(quiet)),
            reason="see docs/results-sensing.md",
        )
    print(claims.text())


if __name__ == "__main__":
    main()

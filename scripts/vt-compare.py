#!/usr/bin/env python3
"""Compares the bytes of runs in virtual time, which guest and host wrote, by the digest of each run, in two
folders of output folders. Prints claims for `unspin claims record`.
Usage: scripts/vt-compare.py FIRST SECOND
"""

import datetime
import json
import subprocess
import sys
from pathlib import Path


def digests(folder: Path) -> tuple[dict[str, str], list[dict]]:
    """Returns the digest of each finished run by identity, and all labels."""
    found, labels = {}, []
    for file in sorted(folder.glob("**/runs.jsonl")):
        for line in file.read_text().splitlines():
            run = json.loads(line)
            if run.get("identity") and run.get("digest"):
                found[run["identity"]] = run["digest"]
                labels.append(run["label"])
    return found, labels


def main() -> None:
    (first, labels), (second, _) = (digests(Path(folder)) for folder in sys.argv[1:3])
    both = sorted(first.keys() & second.keys())
    if not both or len(both) < len(first):
        sys.exit(f"{len(both)} of {len(first)} runs are in both: other kernels, QEMUs or programs")
    same = sum(first[name] == second[name] for name in both)
    kernels, prices = (
        ", ".join(sorted({label[part] for label in labels})) for part in ("kernel", "prices")
    )
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True)
    print(json.dumps([{
        "id": "vt.deterministic",
        "what": "cells whose bytes, the guest's replies and the host's record, were the same from a "
                "second checkout with an empty cache, beside a load",
        "value": 100.0 * same / len(both), "lo": None, "hi": None, "n": len(both), "unit": "%",
        "target": ">= 100", "holds": same == len(both),
        "label": f"lab/vt, kernel {kernels}, prices {prices}",
        "experiment": "scripts/vt-deterministic.sh", "command": "make vt-deterministic",
        "date": datetime.date.today().isoformat(), "commit": commit.stdout.decode().strip(),
    }], indent=1))


if __name__ == "__main__":
    main()

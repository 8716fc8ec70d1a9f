#!/usr/bin/env python3
"""Measures how long CI takes on this machine, and whether the tests pass under load.
Usage: scripts/ci-claims.py ci|busy [RUNS]

`ci` times `.ci/run`, each time in a fresh clone; the cache may already have kernels and QEMU. It needs
a quiet machine. `busy` runs `make test` in a clone while two loops compute all the time. Each run takes
a quarter of an hour or more. Prints claims for `unspin claims record`.
"""

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from claims import ROOT, Claims, processor, spread

LOOPS = 2


@contextlib.contextmanager
def clone() -> Iterator[Path]:
    """Makes a fresh clone of this checkout's last commit. The clone is outside of /tmp, because each guest
    mounts its own /tmp, which would hide the tests' scripts."""
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        yield Path(folder)


@contextlib.contextmanager
def busy_loops() -> Iterator[None]:
    """Runs processes that compute all the time."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def minutes(command: list[str], folder: Path) -> tuple[float, bool]:
    """Returns how long a command takes in a folder, and whether it succeeds. Its output goes to stderr."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "CI": "1"},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    return (time.monotonic() - began) / 60, done.returncode == 0


def ci_minutes(runs: int, claims: Claims) -> None:
    """Measures the claim `product.ci_min`."""
    times = []
    for _ in range(runs):
        with clone() as folder:
            took, passed = minutes([".ci/run"], folder)
        if not passed:
            sys.exit(f"failed: .ci/run, after {took:.1f} minutes")
        print(f"{took:.1f} minutes", file=sys.stderr)
        times.append(took)
    what = "minutes that .ci/run takes in a fresh clone, with kernels and QEMU in the cache"
    middle, interval = statistics.median(times), spread(times)
    claims.add("product.ci_min", what, middle, "min", runs, "<= 15", interval)


def busy_green(runs: int, claims: Claims) -> None:
    """Measures the claim `product.tests_busy_green`."""
    with clone() as folder:
        passed = []
        for _ in range(runs):
            with busy_loops():
                took, green = minutes(["make", "test"], folder)
            print(f"{'passed' if green else 'FAILED'} after {took:.1f} minutes", file=sys.stderr)
            passed.append(green)
    what = f"runs of `make test` that pass beside {LOOPS} loops that always compute"
    share = 100 * sum(passed) / runs
    claims.add("product.tests_busy_green", what, share, "%", runs, ">= 100")


def main() -> int:
    """Measures the named claim."""
    kinds = {"ci": ci_minutes, "busy": busy_green}
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in kinds or len(arguments) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("git"):
        print("skipped: needs git", file=sys.stderr)
        return 77
    # SIGTERM must not leave endless loops or clones behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    runs = int(arguments[1]) if len(arguments) > 1 else 3
    label = f"host: {processor()}, {os.cpu_count()} CPUs"
    claims = Claims(label, "ci-claims.py", f"scripts/ci-claims.py {arguments[0]}")
    # The measured clone is clean, even if this checkout is not.
    claims.every["commit"] = claims.every["commit"].removesuffix("-dirty")
    kinds[arguments[0]](runs, claims)
    print(claims.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Sweeps with the real program: UNSPIN_PROGRAM names it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from distributed import Client, get_task_stream

import unspin

from .conftest import STAND_IN, Experiment

PROGRAM = os.environ.get("UNSPIN_PROGRAM", "")

needs_program = pytest.mark.skipif(
    not PROGRAM, reason="UNSPIN_PROGRAM does not name the program: build it and set the variable"
)

TWO_CELLS = """
name = "two-cells"
title = "Two cells in virtual time"
about = "Does a sweep give what one machine gives?"
repeats = 2
seed = 7
kernels = ["debian-cloud"]
schedulers = ["stock"]
workloads = ["spinbench-none"]

[[topology]]
name = "1:1"
vcpus = 1
pcpus = 1

[[topology]]
name = "2:1"
vcpus = 2
pcpus = 1
"""


def has_qemu() -> bool:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unspin"
    return any(Path(os.environ.get("UNSPIN_CACHE") or cache).glob("qemu/qemu-*"))


@needs_program
def test_the_program_reads_what_a_sweep_wrote(client: Client, experiment: Experiment) -> None:
    unspin.sweep(experiment.file, client, out=experiment.out, program=str(STAND_IN), progress=False)
    command = [PROGRAM, "lab", "report", str(experiment.out), "--json"]
    report = subprocess.run(command, check=True, capture_output=True)
    summary = json.loads(report.stdout)
    assert (summary["planned"], summary["done"]) == (12, 12)


@needs_program
@pytest.mark.slow
@pytest.mark.skipif(not has_qemu(), reason="the lab has no QEMU: run `unspin lab qemu build`")
def test_two_workers_give_what_one_machine_gives(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "two-cells.toml"
    file.write_text(TWO_CELLS)
    arguments = {
        "out": tmp_path / "out",
        "program": PROGRAM,
        "options": ("--accel", "vt"),
        "progress": False,
    }
    with get_task_stream(client) as tasks:
        shared = unspin.sweep(file, client, **arguments)
    assert list(shared["outcome"]) == ["done"] * 4
    assert set(shared["accel"]) == {"vt"}
    assert len({task["worker"] for task in tasks.data}) == 2
    assert len(unspin.sweep(file, client, **arguments, verify=1)) == 4
    alone = tmp_path / "alone"
    command = [PROGRAM, "lab", "run", str(file), "--accel", "vt", "--out", str(alone)]
    subprocess.run(command, check=True)
    assert digests(alone) == digests(tmp_path / "out")


def digests(out: Path) -> dict[str, str]:
    """Returns the digest of each run's bytes by its identity."""
    runs = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    return {run["identity"]: run["digest"] for run in runs}

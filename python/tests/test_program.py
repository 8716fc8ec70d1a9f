"""Sweeps with the real program: UNSPIN_PROGRAM names it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from distributed import Client

import unspin

from .conftest import STAND_IN, Experiment

PROGRAM = os.environ.get("UNSPIN_PROGRAM", "")

needs_program = pytest.mark.skipif(
    not PROGRAM, reason="UNSPIN_PROGRAM does not name the program: build it and set the variable"
)

ONE_CELL = """
name = "one-cell"
title = "One cell in virtual time"
about = "Does a sweep give what one machine gives?"
repeats = 1
seed = 7
kernels = ["debian-cloud"]
schedulers = ["stock"]
workloads = ["spinbench-none"]

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
def test_a_real_sweep_repeats_to_the_same_bytes(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "one-cell.toml"
    file.write_text(ONE_CELL)
    arguments = {
        "out": tmp_path / "out",
        "program": PROGRAM,
        "options": ("--accel", "vt"),
        "progress": False,
    }
    frame = unspin.sweep(file, client, **arguments)
    assert list(frame["outcome"]) == ["done"]
    assert set(frame["accel"]) == {"vt"}
    assert len(unspin.sweep(file, client, **arguments, verify=1)) == 1

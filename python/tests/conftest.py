"""Shared fixtures and helpers of the tests."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

ROOT = Path(__file__).parents[2]
"""Root of the repository."""

STAND_IN = Path(__file__).with_name("stand_in.py")


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two workers, each a process of its own."""
    folder = tmp_path_factory.mktemp("dask")
    program = os.environ.get("UNSPIN_PROGRAM")
    if program:
        # The folder of the program also has the programs of unspin's own workloads.
        os.environ["PATH"] = f"{Path(program).resolve().parent}:{os.environ['PATH']}"
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=True,
            dashboard_address=":0",
            local_directory=str(folder),
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


class Experiment:
    """An experiment for the stand-in, with its output folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "sample.toml"
        self.out = folder / "out"
        self.calls = folder / "calls"
        self.write()

    def write(self, **more: object) -> None:
        settings = {"cells": 3, "repeats": 4, "accel": "vt", "calls": str(self.calls), **more}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
        self.file.write_text("".join(lines))

    def notes(self) -> list[list[str]]:
        """Which run began or ended, and on which worker."""
        text = self.calls.read_text() if self.calls.exists() else ""
        return [line.split() for line in text.splitlines()]

    def runs_begun(self) -> list[int]:
        """The numbers of the runs that were carried out, in the order in which they began."""
        return [int(run) for run, what, _ in self.notes() if what == "begins"]

    def at_once(self) -> dict[str, int]:
        """The most runs at once, by worker."""
        now: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for _, what, worker in self.notes():
            now[worker] += 1 if what == "begins" else -1
            most[worker] = max(most[worker], now[worker])
        return dict(most)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / "runs.jsonl").read_text().splitlines()]

    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = json.loads((self.out / "experiment.json").read_text())
        return meta


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return Experiment(tmp_path)

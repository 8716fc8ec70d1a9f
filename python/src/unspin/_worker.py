"""The part of a sweep that runs on the workers of the cluster."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _tied
from ._folder import read_runs
from ._record import Record

LOG_CHARACTERS = 2000

TIED = Path(__file__).with_name("_tied.py")


class CommandError(Exception):
    """The program ended without a record."""


@dataclass(frozen=True)
class Job:
    """The experiment of a sweep."""

    sweep: str
    program: str
    experiment: str
    """A shipped experiment's name, or an absolute path."""
    text: str | None
    """The content of the experiment's file: a worker may have no such file."""
    options: tuple[str, ...]


@dataclass(frozen=True)
class PlanFiles:
    """What `unspin lab run --plan` wrote."""

    meta: bytes
    settings: bytes


@dataclass(frozen=True)
class Result:
    """The lines that a run added, and where it ran."""

    records: list[Record]
    place: str
    settings: dict[str, Any] | None
    """The content of `identities.json`, where an identity is not the planned one."""


def plan(job: Job) -> PlanFiles:
    """Plans the runs as this worker sees them."""
    with tempfile.TemporaryDirectory(prefix="unspin-", dir=_local_folder()) as scratch:
        out = Path(scratch) / "out"
        _call(job, Path(scratch), out, ["--plan"])
        return PlanFiles(
            (out / "experiment.json").read_bytes(), (out / "identities.json").read_bytes()
        )


def run(job: Job, number: int, identity: str) -> Result:
    """Carries out one planned run in a folder of this worker's, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="unspin-", dir=_local_folder()) as scratch:
        out = Path(scratch) / "out"
        log = _call(job, Path(scratch), out, ["--runs", str(number)], codes=(0, 1))
        records = read_runs(out / "runs.jsonl")[0] if (out / "runs.jsonl").exists() else []
        if not records and not _stopped(job.sweep):
            raise CommandError(f"{_place()}: run {number} left no record\n{log}")
        same = all(record.get("identity") == identity for record in records)
        settings = None if same else json.loads((out / "identities.json").read_bytes())
        return Result(records, _place(), settings)


def stop(sweep: str) -> None:
    """Interrupts what this worker runs for a sweep, as Ctrl-C does."""
    with _lock:
        _stopping.add(sweep)
        for process in _running.get(sweep, ()):
            process.send_signal(signal.SIGINT)


_lock = threading.Lock()
_running: dict[str, set[subprocess.Popen[str]]] = {}
_stopping: set[str] = set()


def _stopped(sweep: str) -> bool:
    with _lock:
        return sweep in _stopping


def _call(
    job: Job, scratch: Path, out: Path, selection: list[str], codes: tuple[int, ...] = (0,)
) -> str:
    """Runs the program; returns the end of what it said."""
    command = [job.program, "lab", "run", _experiment(job, scratch), "--out", str(out)]
    command += [*selection, *job.options]
    code, log = _wait(job.sweep, command, scratch)
    if code == _tied.NOT_STARTED:
        raise CommandError(
            f"{_place()}: {job.program}: {log.strip()}: install unspin on every worker, "
            "or pass its path as program="
        )
    if code not in codes and not _stopped(job.sweep):
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise CommandError(f"{_place()}: `{' '.join(command)}`: {how}\n{log}")
    return log


def _wait(sweep: str, command: list[str], folder: Path) -> tuple[int, str]:
    with _lock:
        if sweep in _stopping:
            return 0, ""
        # In a session of its own: Ctrl-C on a terminal goes to the sweep, which calls `stop`. A
        # worker that is killed interrupts nothing, so the program is tied to this thread.
        process = subprocess.Popen(
            [sys.executable, "-SP", str(TIED), str(os.getpid()), *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        _running.setdefault(sweep, set()).add(process)
    try:
        log, _ = process.communicate()
    finally:
        with _lock:
            _running[sweep].discard(process)
    return process.returncode, log[-LOG_CHARACTERS:]


def _experiment(job: Job, scratch: Path) -> str:
    """The experiment as this worker can name it: the file itself where it has the same one."""
    if job.text is None:
        return job.experiment
    path = Path(job.experiment)
    try:
        if path.read_text() == job.text:
            return job.experiment
    except (OSError, ValueError):
        pass
    copy = scratch / path.name
    copy.write_text(job.text)
    return str(copy)


def _local_folder() -> str | None:
    from distributed import get_worker

    folder = get_worker().local_directory
    os.makedirs(folder, exist_ok=True)
    return str(folder)


def _place() -> str:
    from distributed import get_worker

    return f"{get_worker().address} ({socket.gethostname()})"

"""The output folder of a sweep: results are filed by identity, each once."""

import fcntl
import io
import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ._errors import NotDeterministicError, SweepError, TornLineWarning
from ._folder import parse_meta, read_runs
from ._record import Record, is_result, json_object
from ._worker import PlanFiles

MACHINE_FIELDS = (
    "run",
    "block",
    "boot",
    "position",
    "attempt",
    "lab_cpu_share",
    "started",
    "latencies",
)
"""What a record says of when and where the run was carried out, or only where asked to."""

DIFFERENCES_SHOWN = 5


class Store:
    """The folder, locked against other writers. Close it in the end."""

    def __init__(self, out: Path, plan: PlanFiles) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.out = out
        self.path = out / "runs.jsonl"
        self._lock = _lock(out / "runs.lock")
        try:
            self._open(plan)
        except BaseException:
            self.close()
            raise

    def _open(self, plan: PlanFiles) -> None:
        self.meta = parse_meta(self.out / "experiment.json", plan.meta)
        self.here = self.meta["machine"]
        self._check_experiment()
        self.plan: dict[str, int] = self.meta.get("plan") or {}
        self.settings = json_object(plan.settings)
        self.records = self._read()
        self.results: dict[str, tuple[str, Record]] = {}
        for line, record in enumerate(self.records, 1):
            self._compare(record, f"{self.path}:{line}")
        self._carry_over()

    def _check_experiment(self) -> None:
        """Refuses a folder with the results of another experiment."""
        path = self.out / "experiment.json"
        if not path.exists():
            return
        holds = parse_meta(path, path.read_bytes())["info"]["name"]
        wanted = self.meta["info"]["name"]
        if holds != wanted:
            raise SweepError(
                f"{self.out} holds the results of experiment `{holds}`, not of `{wanted}`: "
                "name another folder, or remove this one"
            )

    def _read(self) -> list[Record]:
        if not self.path.exists():
            return []
        records, torn = read_runs(self.path)
        if torn:
            aside = self.path.with_name("runs.jsonl.torn")
            with aside.open("ab") as file:
                file.write(torn + b"\n")
                os.fsync(file.fileno())
            warnings.warn(
                f"{self.path}: the last line has no end: moved to {aside}",
                TornLineWarning,
                stacklevel=5,
            )
        return records

    def _carry_over(self) -> None:
        """Writes the plan, and keeps what the folder says of earlier runs."""
        settings = dict(self.settings)
        names = self.out / "identities.json"
        if names.exists():
            settings = json_object(names.read_bytes()) | settings
        replace(names, _pretty(settings))
        old = self.out / "experiment.json"
        self.meta["elapsed_s"] = 0.0
        if old.exists() and self.done():
            # Until this program has a run, the folder names the machine and the commit of its
            # last one, as `Store` of `crates/lab/src/run/store.rs` does.
            before = parse_meta(old, old.read_bytes())
            self.meta |= {name: before[name] for name in ("elapsed_s", "machine")}
        self.end(0.0)
        self._write()

    def done(self) -> set[int]:
        """The numbers of the planned runs that have their result."""
        return {number for identity, number in self.plan.items() if identity in self.results}

    def add(self, records: Iterable[Record], place: str) -> None:
        """Files what a run left; it is on the disk afterwards.

        Raises NotDeterministicError where another result of the same identity differs. The
        first result stays, and the second goes to `runs.jsonl.differs`.
        """
        new = [record for record in records if self._is_new(record, place)]
        if new:
            if self.meta["machine"] != self.here:
                self.meta["machine"] = self.here
                self._write_meta()
            start = 1 + max((record["boot"] for record in self.records), default=-1)
            self.records += [_filed(one, boot) for boot, one in enumerate(new, start)]
            self._write()

    def _is_new(self, record: Record, place: str) -> bool:
        known = self.results.get(record.get("identity") or "")
        try:
            self._compare(record, f"run {record['run']} on {place}")
        except NotDeterministicError:
            replace(self.out / "runs.jsonl.differs", _line(record))
            raise
        return known is None or not is_result(record)

    def _compare(self, record: Record, source: str) -> None:
        """Notes a result, or compares it with the one of the same identity."""
        identity = record.get("identity")
        if identity is None or not is_result(record) or record["label"]["accel"] != "vt":
            return
        first_source, first = self.results.setdefault(identity, (source, record))
        differing = differences(_essence(first), _essence(record))
        if differing:
            shown = "".join(f"\n  {one}" for one in differing[:DIFFERENCES_SHOWN])
            raise NotDeterministicError(
                f"two results of identity {identity} differ: {first_source} and {source}{shown}"
            )

    def end(self, seconds: float) -> None:
        """Notes how long the sweep took, and whether nothing is left to do."""
        self.meta["elapsed_s"] += seconds
        self.meta["complete"] = len(self.done()) == len(self.plan)
        self._write_meta()

    def close(self) -> None:
        self._lock.close()

    def _write_meta(self) -> None:
        replace(self.out / "experiment.json", _pretty(self.meta))

    def _write(self) -> None:
        replace(self.path, "".join(map(_line, self.records)))


def replace(path: Path, text: str) -> None:
    """Replaces a file in one step, so that it is whole at all times, and brings it to the disk."""
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, each as `path: one, other`."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        pairs = [(f"{path}.{name}", one.get(name), other.get(name)) for name in names]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        same = _canonical(one) == _canonical(other)
        return [] if same else [f"{path.lstrip('.')}: {_short(one)}, {_short(other)}"]
    return [found for inner, a, b in pairs for found in differences(a, b, inner)]


def _essence(record: Record) -> Record:
    """What virtual time gives on every machine."""
    essence = {name: value for name, value in record.items() if name not in MACHINE_FIELDS}
    essence["label"] = record["label"] | {"host": ""}
    if record.get("truth"):
        # Recordings stay on the worker.
        essence["truth"] = record["truth"] | {"recording": None}
    return essence


def _filed(record: Record, boot: int) -> Record:
    filed = record | {"boot": boot}
    if record.get("truth"):
        filed["truth"] = record["truth"] | {"recording": None}
    return filed


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _lock(path: Path) -> io.TextIOWrapper:
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise SweepError(f"{path.parent}: another run or sweep writes to this folder") from None
    return file

"""Reads an output folder of `unspin lab run`, like `crates/lab/src/run/folder.rs`."""

import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _record
from ._errors import FormatError, LeftOutWarning, TornLineWarning
from ._record import Record, array, boolean, fields, json_object, optional, table, text

READS = (0, 1)
"""The newest version of unspin, major and minor, whose folders this package can read."""

STACK_LEVEL = 6
"""Stack frames from a warning to the caller of `runs`."""

META = fields(
    {
        "info": fields({"name": text, "repeats": _record.U32, "seed": _record.U64}),
        "machine": fields({"unspin": text}),
        "planned": _record.U64,
        "elapsed_s": _record.number,
    },
    {
        "complete": boolean,
        "plan": optional(table(_record.U64)),
        "settings": optional(array(text)),
    },
)


@dataclass(frozen=True)
class Folder:
    """The content of an output folder."""

    path: Path
    meta: dict[str, Any]
    records: list[Record]

    @property
    def plan(self) -> dict[str, int]:
        """Returns the planned runs' numbers by identity. Folders without identities have none."""
        return self.meta.get("plan") or {}

    def is_planned(self, record: Record) -> bool:
        return not self.plan or record.get("identity") in self.plan


def load(path: str | os.PathLike[str]) -> Folder:
    """Reads a folder, and warns about a torn last line."""
    folder = Path(path)
    meta_path = folder / "experiment.json"
    if not meta_path.is_file():
        raise FormatError(f"{meta_path}: missing: this is not an output folder of `unspin lab run`")
    meta = parse_meta(meta_path, meta_path.read_bytes())
    runs_path = folder / "runs.jsonl"
    records, torn = read_runs(runs_path)
    if torn:
        warnings.warn(
            f"{runs_path}: the last line has no end and is left out ({len(torn)} bytes)",
            TornLineWarning,
            stacklevel=STACK_LEVEL,
        )
    return Folder(folder, meta, records)


def parse_meta(path: Path, content: bytes) -> dict[str, Any]:
    """Parses and checks the content of an `experiment.json`."""
    try:
        meta = json_object(content)
        META("", meta)
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from None
    check_version(path, meta["machine"]["unspin"])
    return meta


def check_version(path: Path, version: str) -> None:
    """Refuses folders of a newer unspin, whose fields may have another meaning."""
    parts = re.match(r"(\d{1,9})\.(\d{1,9})\.\d", version)
    if parts is None:
        raise FormatError(f"{path}: `machine.unspin`: {version!r} is no version such as 0.1.0")
    if (int(parts[1]), int(parts[2])) > READS:
        raise FormatError(
            f"{path}: written by unspin {version}, but this package reads up to "
            f"{READS[0]}.{READS[1]}: run `pip install --upgrade unspin`"
        )


def read_runs(path: Path) -> tuple[list[Record], bytes]:
    """Returns the records of a `runs.jsonl`, and the bytes after its last whole line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from None
    whole, _, torn = content.rpartition(b"\n")
    lines = whole.split(b"\n") if len(content) > len(torn) else []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(_record.parse(line))
        except ValueError as error:
            raise FormatError(f"{path}:{number}: {error}") from None
    return records, torn


def read_planned(path: str | os.PathLike[str], unplanned: bool) -> tuple[Folder, list[Record]]:
    """Returns a folder and its records. Planned runs have their planned numbers. The other records
    are included if `unplanned` is true."""
    folder = load(path)
    kept = []
    for record in folder.records:
        if folder.is_planned(record):
            number = folder.plan.get(record.get("identity") or "", record["run"])
            kept.append({**record, "run": number})
        elif unplanned:
            kept.append(record)
    left_out = len(folder.records) - len(kept)
    if left_out:
        warnings.warn(
            f"{folder.path}: {left_out} runs of an earlier plan are left out: "
            "pass unplanned=True to see them",
            LeftOutWarning,
            stacklevel=STACK_LEVEL,
        )
    return folder, kept

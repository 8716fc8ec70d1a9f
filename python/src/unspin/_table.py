"""Tables of runs, with a row per run, and tables of figures, with a row per figure."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa

from ._folder import Folder, read_planned
from ._record import Record, is_number

PathLike = str | os.PathLike[str]
Row = tuple[Folder, Record]
Column = tuple[str, pa.DataType, Callable[[Folder, Record], Any]]

CO = "co_"
"""Prefix of the columns of co-metrics."""


def runs(*folders: PathLike, unplanned: bool = False) -> pd.DataFrame:
    """Returns the runs of output or results folders, Arrow-backed, with one row per attempt.

    The README lists the columns. `unplanned` adds runs of earlier plans, which
    `unspin lab report` leaves out.

    Raises FormatError with file and line. Warns about torn last lines and left-out runs.
    """
    return _frame(runs_arrow(*folders, unplanned=unplanned))


def runs_arrow(*folders: PathLike, unplanned: bool = False) -> pa.Table:
    """Returns the result of `runs` as an Arrow table."""
    rows = _rows(folders, unplanned)
    names = sorted({name for _, record in rows for name in record.get("co_metrics", {})})
    columns = [*COLUMNS, *(_co_metric(name) for name in names)]
    return _table(columns, rows)


def metrics(*folders: PathLike, unplanned: bool = False) -> pd.DataFrame:
    """Returns all figures of the runs in long form, with one row per figure of each attempt.

    Raises and warns like `runs`.
    """
    return _frame(metrics_arrow(*folders, unplanned=unplanned))


def metrics_arrow(*folders: PathLike, unplanned: bool = False) -> pa.Table:
    """Returns the result of `metrics` as an Arrow table."""
    keys = [column for column in COLUMNS if column[0] in METRIC_KEYS]
    rows, figures = [], []
    for row in _rows(folders, unplanned):
        for figure in _figures(row[1]):
            rows.append(row)
            figures.append(figure)
    table = _table(keys, rows)
    kinds = (("kind", pa.string()), ("vm", pa.string()), ("name", pa.string()))
    for index, (name, kind) in enumerate((*kinds, ("unit", pa.string()), ("value", pa.float64()))):
        values = [figure[index] for figure in figures]
        table = table.append_column(name, pa.array(values, kind))
    return table


def _rows(folders: tuple[PathLike, ...], unplanned: bool) -> list[Row]:
    if not folders:
        raise TypeError("expected at least one folder")
    rows = []
    for path in folders:
        folder, records = read_planned(path, unplanned)
        rows += [(folder, record) for record in records]
    return rows


def _table(columns: list[Column], rows: list[Row]) -> pa.Table:
    arrays = {name: _array([get(*row) for row in rows], kind) for name, kind, get in columns}
    return pa.table(arrays)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.float64():
        # Arrow refuses integers above 2^53, while Rust rounds them.
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def _top(name: str, kind: pa.DataType) -> Column:
    return name, kind, lambda _, record: record.get(name)


def _cell(name: str) -> Column:
    return name, pa.string(), lambda _, record: record["cell"][name]


def _metric(name: str, key: str) -> Column:
    return name, pa.string(), lambda _, record: record["metric"][key]


def _label(name: str, key: str, kind: pa.DataType) -> Column:
    return name, kind, lambda _, record: record["label"].get(key)


def _truth(name: str, kind: pa.DataType) -> Column:
    return f"truth_{name}", kind, lambda _, record: (record.get("truth") or {}).get(name)


def _off(name: str, index: int) -> Column:
    def get(_: Folder, record: Record) -> float | None:
        lengths = (record.get("truth") or {}).get("off_us")
        return None if lengths is None else lengths[index]

    return f"truth_off_{name}_us", pa.float64(), get


def _co_metric(name: str) -> Column:
    return f"{CO}{name}", pa.float64(), lambda _, record: record.get("co_metrics", {}).get(name)


def _started(_: Folder, record: Record) -> datetime:
    return datetime.fromisoformat(record["started"])


COLUMNS: list[Column] = [
    ("folder", pa.string(), lambda folder, _: os.fspath(folder.path)),
    ("experiment", pa.string(), lambda folder, _: folder.meta["info"]["name"]),
    _top("identity", pa.string()),
    _top("setting", pa.string()),
    ("planned", pa.bool_(), lambda folder, record: folder.is_planned(record)),
    _top("run", pa.uint64()),
    ("seed", pa.uint64(), lambda folder, _: folder.meta["info"]["seed"]),
    _top("block", pa.uint32()),
    _top("boot", pa.uint32()),
    _top("position", pa.uint32()),
    _top("attempt", pa.uint32()),
    _cell("topology"),
    _cell("kernel"),
    _cell("boot_params"),
    _cell("scheduler"),
    _cell("workload"),
    _metric("metric", "name"),
    _metric("unit", "unit"),
    _metric("better", "better"),
    _top("outcome", pa.string()),
    _top("value", pa.float64()),
    _top("limit_s", pa.float64()),
    ("failure", pa.string(), lambda _, record: record.get("kind")),
    _top("detail", pa.string()),
    _top("elapsed_s", pa.float64()),
    _top("boot_s", pa.float64()),
    _top("lab_cpu_share", pa.float64()),
    ("spinlock", pa.string(), lambda _, record: record.get("spinlock") or None),
    _top("digest", pa.string()),
    ("started", pa.timestamp("us", "UTC"), _started),
    _label("source", "source", pa.string()),
    _label("accel", "accel", pa.string()),
    _label("nested", "nested", pa.bool_()),
    _label("kernel_release", "kernel", pa.string()),
    _label("prices", "prices", pa.string()),
    _label("cvm", "cvm", pa.string()),
    _label("host", "host", pa.string()),
    _truth("method", pa.string()),
    _truth("window_s", pa.float64()),
    _truth("on_s", pa.float64()),
    _truth("off_s", pa.float64()),
    _truth("idle_s", pa.float64()),
    _truth("off_count", pa.uint64()),
    _off("p50", 0),
    _off("p99", 1),
    _off("max", 2),
    _truth("alignment_error_us", pa.float64()),
    _truth("lost", pa.uint64()),
    _truth("recording", pa.string()),
]

METRIC_KEYS = frozenset(
    {
        *("folder", "experiment", "identity", "planned", "run", "seed", "block", "attempt"),
        *("topology", "kernel", "boot_params", "scheduler", "workload"),
        *("outcome", "accel", "nested", "prices", "cvm"),
    }
)
"""Columns that a row of `metrics` shares with its run."""

Figure = tuple[str, str | None, str, str | None, float | None]


def _figures(record: Record) -> Iterator[Figure]:
    """Yields kind, VM (for a neighbour), name, unit if it is recorded, and value."""
    metric = record["metric"]
    if record["outcome"] == "done":
        yield "metric", None, metric["name"], metric["unit"], float(record["value"])
    for name, value in record.get("co_metrics", {}).items():
        yield "co", None, name, None, float(value)
    for one in record.get("neighbours", []):
        measured, unit = one["metric"]["name"], one["metric"]["unit"]
        if one["value"] is not None:
            yield "neighbour", one["vm"], measured, unit, float(one["value"])
        if one.get("on_s") is not None:
            yield "neighbour", one["vm"], "on_s", "s", float(one["on_s"])
    for name, value in record.get("kvm", {}).items():
        yield "kvm", None, name, None, float(value)
    yield from _truth_figures(record.get("truth") or {}, "")


def _truth_figures(truth: dict[str, Any], prefix: str) -> Iterator[Figure]:
    """Yields the plain numbers of a ground truth. It skips lists, such as pairs of intervals."""
    for name, value in truth.items():
        if isinstance(value, dict):
            yield from _truth_figures(value, f"{prefix}{name}.")
        elif name == "off_us" and not prefix and value is not None:
            for rank, one in zip(("p50", "p99", "max"), value, strict=True):
                yield "truth", None, f"off_{rank}_us", None, float(one)
        elif is_number(value):
            yield "truth", None, f"{prefix}{name}", None, float(value)

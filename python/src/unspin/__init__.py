"""Runs of the unspin lab as data frames, and sweeps of virtual time over a Dask cluster."""

from ._errors import (
    FormatError,
    LeftOutWarning,
    NotDeterministicError,
    SweepError,
    TornLineWarning,
    UnspinError,
)
from ._sweep import sweep
from ._table import metrics, metrics_arrow, runs, runs_arrow

__all__ = [
    "FormatError",
    "LeftOutWarning",
    "NotDeterministicError",
    "SweepError",
    "TornLineWarning",
    "UnspinError",
    "metrics",
    "metrics_arrow",
    "runs",
    "runs_arrow",
    "sweep",
]

"""A line of `runs.jsonl`: `RunRecord` of `crates/model/src/run.rs`, checked field by field.

Unknown fields are ignored, because a newer version may add fields.
"""

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

Check = Callable[[str, Any], None]
Record = dict[str, Any]


def parse(line: bytes) -> Record:
    """Parses the record of a line.

    Raises ValueError with the reason if the line is not a record.
    """
    record = json_object(line)
    RUN("", record)
    OUTCOMES[record["outcome"]]("", record)
    return record


def json_object(text: bytes) -> dict[str, Any]:
    """Returns the object in a JSON text. Raises ValueError for any other text."""
    try:
        # Not json.loads(bytes), which would also accept UTF-16.
        value = json.loads(
            text.decode(), parse_constant=_no_constant, object_pairs_hook=_without_duplicates
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key `{twice}` appears twice")
    return value


def _fail(path: str, expected: str, value: object) -> NoReturn:
    found = json.dumps(value)
    found = found if len(found) <= 40 else found[:40] + "..."
    raise ValueError(f"`{path.lstrip('.')}`: expected {expected}, found {found}")


def unsigned(bits: int) -> Check:
    def check(path: str, value: Any) -> None:
        if type(value) is not int or not 0 <= value < 1 << bits:
            _fail(path, f"an integer from 0 of {bits} bits", value)

    return check


def is_number(value: Any) -> bool:
    """Returns whether a value is a number in the range of a double, like Rust's `f64`. 10^400 is
    not."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False


def number(path: str, value: Any) -> None:
    if not is_number(value):
        _fail(path, "a finite number", value)


def boolean(path: str, value: Any) -> None:
    if not isinstance(value, bool):
        _fail(path, "true or false", value)


def text(path: str, value: Any) -> None:
    if not isinstance(value, str):
        _fail(path, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        _fail(path, "a text without lone surrogates", value)


def time(path: str, value: Any) -> None:
    text(path, value)
    try:
        zone = datetime.fromisoformat(value).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        _fail(path, "a time such as 2026-01-01T00:00:00Z", value)


def one_of(*names: str) -> Check:
    def check(path: str, value: Any) -> None:
        if value not in names:
            _fail(path, " or ".join(f"`{name}`" for name in names), value)

    return check


def optional(inner: Check) -> Check:
    def check(path: str, value: Any) -> None:
        if value is not None:
            inner(path, value)

    return check


def array(inner: Check, length: int | None = None) -> Check:
    def check(path: str, value: Any) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            _fail(path, "a list" if length is None else f"a list of {length}", value)
        for index, one in enumerate(value):
            inner(f"{path}[{index}]", one)

    return check


def table(inner: Check) -> Check:
    """Returns a check for an object with arbitrary keys."""

    def check(path: str, value: Any) -> None:
        if not isinstance(value, dict):
            _fail(path, "an object", value)
        for name, one in value.items():
            text(f"{path} key", name)
            inner(f"{path}.{name}", one)

    return check


def fields(required: Mapping[str, Check], others: Mapping[str, Check] | None = None) -> Check:
    def check(path: str, value: Any) -> None:
        if not isinstance(value, dict):
            _fail(path, "an object", value)
        for name, inner in required.items():
            if name not in value:
                raise ValueError(f"`{f'{path}.{name}'.lstrip('.')}` is missing")
            inner(f"{path}.{name}", value[name])
        for name, inner in (others or {}).items():
            if name in value:
                inner(f"{path}.{name}", value[name])

    return check


U32, U64 = unsigned(32), unsigned(64)

METRIC = fields({"name": text, "unit": text, "better": one_of("higher", "lower")})

NEIGHBOUR = fields(
    {"vm": text, "workload": text, "metric": METRIC, "value": optional(number)},
    {"on_s": optional(number)},
)

INJECTED = fields(
    {"injected": U64, "missing": U64, "pairs_us": array(array(number, 3))},
    {"not_on": U64, "prolonged": U64},
)

TRUTH = fields(
    {
        "method": text,
        "window_s": number,
        "on_s": number,
        "off_s": number,
        "idle_s": number,
        "off_count": U64,
        "off_us": optional(array(number, 3)),
        "alignment_error_us": optional(number),
        "lost": U64,
    },
    {
        "recording": optional(text),
        "injected": optional(INJECTED),
        "sensed": optional(fields({"found": U64, "real": U64, "lost": U64})),
    },
)

LABEL = fields(
    {
        "source": one_of("lab", "sim"),
        "accel": optional(one_of("kvm", "tcg", "vt")),
        "nested": boolean,
        "kernel": text,
        "host": text,
    },
    {"prices": optional(text), "cvm": optional(text)},
)

CELL = fields(
    {"topology": text, "kernel": text, "boot_params": text, "scheduler": text, "workload": text}
)

OUTCOMES: Mapping[str, Check] = {
    "done": fields({"value": number}),
    "did-not-finish": fields({"limit_s": number}),
    "failed": fields({"kind": text, "detail": text}),
}

RUN = fields(
    {
        "run": U64,
        "block": U32,
        "boot": U32,
        "position": U32,
        "attempt": U32,
        "cell": CELL,
        "metric": METRIC,
        "outcome": one_of(*OUTCOMES),
        "elapsed_s": number,
        "boot_s": number,
        "lab_cpu_share": number,
        "started": time,
        "label": LABEL,
    },
    {
        "co_metrics": table(number),
        "neighbours": array(NEIGHBOUR),
        "truth": optional(TRUTH),
        "kvm": table(U64),
        "spinlock": text,
        "identity": optional(text),
        "setting": optional(text),
        "digest": optional(text),
    },
)


def is_result(record: Record) -> bool:
    """Returns whether a run ended or reached its time limit. A failed attempt is not a result."""
    return bool(record["outcome"] != "failed")

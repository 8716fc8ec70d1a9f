"""Tests the tables of runs, with the committed results and with malformed files."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import unspin

from .conftest import ROOT, STAND_IN

RESULTS = ROOT / "results"

FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/runs.jsonl"))


@pytest.mark.parametrize("name", FOLDERS)
def test_every_committed_attempt_is_a_row(name: str) -> None:
    with (RESULTS / name / "runs.jsonl").open() as file:
        lines = [json.loads(line) for line in file]
    frame = unspin.runs(RESULTS / name, unplanned=True)
    assert Counter(frame["outcome"]) == Counter(line["outcome"] for line in lines)
    assert Counter(frame["accel"]) == Counter(line["label"]["accel"] for line in lines)
    assert list(frame["value"].notna()) == list(frame["outcome"] == "done")
    assert list(frame["failure"].notna()) == list(frame["outcome"] == "failed")


def test_all_committed_folders_are_one_table() -> None:
    assert len(FOLDERS) > 10
    unspin.runs_arrow(*(RESULTS / name for name in FOLDERS))


def test_values_of_a_committed_run() -> None:
    run = unspin.runs(RESULTS / "truth").iloc[0]
    assert run["experiment"] == "truth"
    assert (run["seed"], run["run"], run["block"], run["attempt"]) == (7, 0, 0, 1)
    assert (run["topology"], run["scheduler"]) == ("pinned", "stock")
    assert (run["kernel"], run["workload"]) == ("debian-cloud", "spinbench-none")
    assert (run["metric"], run["unit"], run["better"]) == ("operations", "ops/s", "higher")
    assert run["value"] == 1580221.8074394325
    assert run["co_jain"] == 0.9980398613130508
    assert (run["truth_off_count"], run["truth_off_max_us"]) == (6209, 10108.049)
    assert pd.isna(run["identity"]), "recorded before runs had an identity"


def test_a_stress_run_and_its_figures_in_long_form() -> None:
    run = unspin.runs(RESULTS / "stress").iloc[0]
    assert run["value"] == 3.02
    assert run["started"] == pd.Timestamp("2026-11-24T00:07:47Z")
    figures = unspin.metrics(RESULTS / "stress").set_index(["kind", "name"])["value"]
    assert figures["metric", "worst_wait_s"] == 3.02
    assert figures["co", "stressors"] == 409
    assert figures["truth", "off_p99_us"] == 12633.419
    assert figures["truth", "lost"] == 4710961


def test_folders_are_one_table_with_arrow_types() -> None:
    table = unspin.runs_arrow(RESULTS / "truth", str(RESULTS / "stress"))
    assert table.num_rows == 6
    assert table.schema.field("run").type == pa.uint64()
    assert table.schema.field("started").type == pa.timestamp("us", "UTC")
    assert table.schema.field("co_rounds").type == pa.float64()
    frame = unspin.runs(RESULTS / "truth", RESULTS / "stress")
    assert all(isinstance(dtype, pd.ArrowDtype) for dtype in frame.dtypes)
    assert frame["co_rounds"].notna().sum() == 1


def test_runs_at_other_prices_differ_in_a_column() -> None:
    frame = unspin.runs(RESULTS / "vt-prices")
    with (RESULTS / "vt-prices/runs.jsonl").open() as file:
        prices = {json.loads(line)["label"]["prices"] for line in file}
    assert len(prices) > 1
    assert set(frame["prices"]) == prices
    assert set(unspin.metrics(RESULTS / "vt-prices")["prices"]) == prices
    assert set(unspin.runs(RESULTS / "vt-cvm")["cvm"]) == {"emulated SEV-ES"}
    assert frame["cvm"].isna().all()


def test_no_folder_is_an_error() -> None:
    with pytest.raises(TypeError, match="at least one folder"):
        unspin.runs()


def test_the_readme_lists_the_columns() -> None:
    from unspin._table import COLUMNS

    text = (ROOT / "python/README.md").read_text()
    missing = [name for name, _, _ in COLUMNS if f"`{name}`" not in text]
    assert not missing


def test_the_version_is_that_of_the_program() -> None:
    from importlib.metadata import version

    assert f'\nversion = "{version("unspin")}"\n' in (ROOT / "Cargo.toml").read_text()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Returns a copy of a committed folder."""
    return Path(shutil.copytree(RESULTS / "stress", tmp_path / "out"))


def record(out: Path) -> dict[str, Any]:
    first: dict[str, Any] = json.loads((out / "runs.jsonl").read_text())
    return first


def write(out: Path, *records: dict[str, Any]) -> None:
    (out / "runs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def test_a_torn_last_line_is_left_out_with_a_warning(out: Path) -> None:
    for torn in (b'{"run":1,', b"\xff", b'{"run":1}'):
        with (out / "runs.jsonl").open("ab") as runs:
            runs.write(torn)
        with pytest.warns(unspin.TornLineWarning, match=r"runs\.jsonl: the last line has no end"):
            assert len(unspin.runs(out)) == 1
        shutil.copy(RESULTS / "stress/runs.jsonl", out)


def test_a_warning_points_at_the_caller(out: Path) -> None:
    (out / "runs.jsonl").write_text("{")
    with pytest.warns(unspin.TornLineWarning) as seen:
        unspin.runs(out)
    assert seen[0].filename == __file__


def test_an_empty_file_has_no_rows(out: Path) -> None:
    (out / "runs.jsonl").write_bytes(b"")
    assert len(unspin.runs(out)) == 0
    assert len(unspin.metrics(out)) == 0


BROKEN_LINES = {
    "an empty line": (b"", "Expecting value"),
    "half a line": (b'{"run":1,', "Expecting"),
    "no object": (b"[]", "expected a JSON object"),
    "UTF-16": ("{}".encode("utf-16"), "utf-8"),
    "not UTF-8": (b'{"run":"\xff"}', "utf-8"),
    "deep": (b'{"a":' + b"[" * 100_000, "nested too deeply"),
    "no fields": (b"{}", "`run` is missing"),
    "a key twice": (b'{"run":1,"run":2}', "key `run` appears twice"),
    "NaN": (b'{"run":NaN}', "NaN is no JSON number"),
    "a long number": (b'{"run":' + b"9" * 5000 + b"}", "5000 digits"),
}


@pytest.mark.parametrize("name", BROKEN_LINES)
def test_a_broken_line_is_an_error_with_file_and_line(out: Path, name: str) -> None:
    line, message = BROKEN_LINES[name]
    with (out / "runs.jsonl").open("ab") as runs:
        runs.write(line + b"\n")
    with pytest.raises(unspin.FormatError) as error:
        unspin.runs(out)
    assert str(error.value).startswith(f"{out}/runs.jsonl:2: ")
    assert message in str(error.value)


BROKEN_FIELDS = [
    ("run", -1, "`run`: expected an integer from 0 of 64 bits, found -1"),
    ("run", 1 << 64, "64 bits"),
    ("block", 1 << 32, "32 bits"),
    ("attempt", True, "found true"),
    ("attempt", 1.0, "found 1.0"),
    ("value", "1", "`value`: expected a finite number"),
    ("value", None, "found null"),
    ("value", 10**400, "`value`: expected a finite number"),
    ("co_metrics", {"jain": 10**400}, "`co_metrics.jain`: expected a finite number"),
    ("outcome", "great", "`done` or `did-not-finish` or `failed`"),
    ("outcome", ["done"], "`outcome`"),
    ("outcome", "failed", "`kind` is missing"),
    ("cell", {"topology": "1:1"}, "`cell.kernel` is missing"),
    ("cell", None, "`cell`: expected an object"),
    ("started", "yesterday", "`started`: expected a time"),
    ("started", "2026-01-01T00:00:00", "`started`: expected a time"),
    ("spinlock", "\ud800", "lone surrogates"),
    ("co_metrics", {"jain": "x"}, "`co_metrics.jain`"),
    ("co_metrics", [], "`co_metrics`: expected an object"),
    ("kvm", {"exits": -1}, "`kvm.exits`"),
    ("neighbours", [{}], "`neighbours[0].vm` is missing"),
    ("truth", {}, "`truth.method` is missing"),
]


@pytest.mark.parametrize(("field", "value", "message"), BROKEN_FIELDS)
def test_a_broken_field_is_named(out: Path, field: str, value: object, message: str) -> None:
    first = record(out)
    write(out, first, first | {field: value})
    with pytest.raises(unspin.FormatError) as error:
        unspin.runs(out)
    assert str(error.value).startswith(f"{out}/runs.jsonl:2: ")
    assert message in str(error.value)


def test_infinity_is_no_number(out: Path) -> None:
    text = (out / "runs.jsonl").read_text().replace('"value":3.02', '"value":1e999')
    (out / "runs.jsonl").write_text(text)
    with pytest.raises(unspin.FormatError, match="finite"):
        unspin.runs(out)


def test_integers_that_a_double_rounds_are_read(out: Path) -> None:
    first = record(out)
    large = 2**53 + 1
    truth = first["truth"] | {"window_s": large, "off_us": [1, 2, large]}
    write(out, first | {"value": large, "co_metrics": {"jain": large}, "truth": truth})
    run = unspin.runs(out).iloc[0]
    assert run["value"] == run["co_jain"] == run["truth_window_s"] == 2.0**53
    assert run["truth_off_max_us"] == 2.0**53
    assert 2.0**53 in set(unspin.metrics(out)["value"])


def test_fields_of_a_later_version_are_passed_over(out: Path) -> None:
    first = record(out)
    truth = first["truth"] | {"more": 10**400}
    write(out, first | {"more": 1, "label": first["label"] | {"more": []}, "truth": truth})
    assert len(unspin.runs(out)) == 1
    assert "more" not in set(unspin.metrics(out)["name"])


def change_meta(out: Path, **more: object) -> None:
    path = out / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.2.0", "pip install --upgrade unspin"),
        ("1.0.0", "pip install --upgrade unspin"),
        ("new", "is no version"),
        ("9" * 5000, "is no version"),
    ],
)
def test_a_later_or_odd_version_is_refused(out: Path, version: str, message: str) -> None:
    change_meta(out, machine={"unspin": version})
    with pytest.raises(unspin.FormatError, match=message):
        unspin.runs(out)
    change_meta(out, machine={"unspin": "0.1.99"})
    assert len(unspin.runs(out)) == 1


def test_other_folders_are_refused(out: Path) -> None:
    change_meta(out, elapsed_s=10**400)
    with pytest.raises(unspin.FormatError, match=r"experiment\.json: `elapsed_s`"):
        unspin.runs(out)
    change_meta(out, elapsed_s=1)
    (out / "runs.jsonl").unlink()
    with pytest.raises(unspin.FormatError, match=r"runs\.jsonl: No such file"):
        unspin.runs(out)
    change_meta(out, plan={"0123": "x"})
    with pytest.raises(unspin.FormatError, match=r"experiment\.json: `plan\.0123`"):
        unspin.runs(out)
    (out / "experiment.json").unlink()
    with pytest.raises(unspin.FormatError, match="this is not an output folder"):
        unspin.runs(out)


def test_runs_of_an_earlier_plan_are_left_out_as_in_the_report(out: Path) -> None:
    first = record(out)
    old, new = first | {"identity": "old", "run": 5}, first | {"identity": "new", "run": 5}
    write(out, first, old, new)
    change_meta(out, plan={"new": 3})
    with pytest.warns(unspin.LeftOutWarning, match="2 runs of an earlier plan"):
        frame = unspin.runs(out)
    assert list(frame["run"]) == [3], "the number of the plan"
    frame = unspin.runs(out, unplanned=True)
    assert list(frame["planned"]) == [False, False, True]
    assert len(unspin.metrics(out, unplanned=True)["identity"].dropna().unique()) == 2


def test_the_stand_in_is_executable() -> None:
    assert STAND_IN.stat().st_mode & 0o111

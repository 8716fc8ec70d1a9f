"""Sweeps with a stand-in for the program: see stand_in.py."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pandas as pd
import pytest
from distributed import Client

import unspin

from .conftest import STAND_IN, Experiment


@pytest.fixture
def sweep(client: Client, experiment: Experiment) -> Callable[..., pd.DataFrame]:
    def call(**more: object) -> pd.DataFrame:
        options = {"out": experiment.out, "program": str(STAND_IN), "progress": False, **more}
        return unspin.sweep(experiment.file, client, **options)

    return call


Sweep = Callable[..., pd.DataFrame]


def test_every_planned_run_is_carried_out_once(sweep: Sweep, experiment: Experiment) -> None:
    frame = sweep()
    assert sorted(frame["run"]) == list(range(12))
    assert frame["identity"].nunique() == 12
    assert sorted(experiment.runs_begun()) == list(range(12))
    assert frame.set_index("run")["value"][3] == 0.4
    assert set(frame["outcome"]) == {"done"}
    assert sorted(frame["boot"]) == list(range(12)), "each run has a boot of its own"
    assert frame["host"].nunique() == 12
    assert experiment.meta()["complete"]
    assert experiment.meta()["file"] == str(experiment.file)
    assert experiment.lines()[0]["kvm"] == {"halt_exits": 2**63}
    assert sorted(path.name for path in experiment.out.iterdir()) == [
        "experiment.json",
        "identities.json",
        "runs.jsonl",
        "runs.lock",
    ]


def test_the_folder_of_another_experiment_is_refused(sweep: Sweep, experiment: Experiment) -> None:
    sweep(seeds=1)
    meta = experiment.meta()
    meta["info"]["name"] = "another"
    path = experiment.out / "experiment.json"
    path.write_text(json.dumps(meta))
    before = path.read_bytes()
    with pytest.raises(unspin.SweepError, match="of experiment `another`, not of"):
        sweep(seeds=1)
    assert path.read_bytes() == before


def test_a_finished_identity_never_runs_again(sweep: Sweep, experiment: Experiment) -> None:
    sweep(seeds=2)
    assert len(experiment.runs_begun()) == 6
    frame = sweep(seeds=3)
    assert sorted(experiment.runs_begun()) == list(range(9)), "the third seed alone is new"
    assert len(frame) == 9
    before = (experiment.out / "runs.jsonl").read_bytes()
    sweep(seeds=3)
    assert len(experiment.runs_begun()) == 9
    assert (experiment.out / "runs.jsonl").read_bytes() == before


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_a_worker_has_as_many_runs_as_it_may(
    sweep: Sweep, experiment: Experiment, jobs: int
) -> None:
    experiment.write(sleep_s=0.5)
    sweep(jobs_per_worker=jobs)
    # A worker of the test's cluster has two threads.
    assert list(experiment.at_once().values()) == [min(jobs, 2)] * 2


def test_a_failed_run_is_filed_and_open(sweep: Sweep, experiment: Experiment) -> None:
    experiment.write(failing=[4])
    frame = sweep()
    failed = frame[frame["outcome"] == "failed"]
    assert list(failed["failure"]) == ["guest-panic"]
    assert pd.isna(failed["value"].iloc[0])
    assert not experiment.meta()["complete"]
    experiment.write(failing=[])
    frame = sweep()
    assert experiment.runs_begun().count(4) == 2
    assert list(frame[frame["run"] == 4]["outcome"]) == ["failed", "done"]
    assert experiment.meta()["complete"]


def test_a_run_without_record_stops_the_sweep(sweep: Sweep, experiment: Experiment) -> None:
    experiment.write(without_record=[11])
    with pytest.raises(unspin.SweepError, match=r"(?s)run 11 left no record.*not to be had"):
        sweep()
    assert {line["run"] for line in experiment.lines()} >= set(range(9)), "the others are kept"


def test_other_bytes_of_one_identity_are_an_error_that_names_both(
    sweep: Sweep, experiment: Experiment
) -> None:
    experiment.write(random=[0, 3])
    sweep()
    with pytest.raises(unspin.NotDeterministicError) as error:
        sweep(verify=12)
    text = str(error.value)
    first = next(line for line in experiment.lines() if line["run"] == 0)
    assert first["identity"] in text or experiment.lines()[3]["identity"] in text
    assert "runs.jsonl:" in text
    assert "tcp://127.0.0.1" in text
    assert "\n  value: " in text
    other = json.loads((experiment.out / "runs.jsonl.differs").read_text())
    assert other["run"] in (0, 3)
    assert len(experiment.lines()) == 12, "the first result stays"


def test_other_bytes_after_ctrl_c_are_named(
    sweep: Sweep, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unspin import _sweep
    from unspin._worker import Result

    sweep(seeds=1)
    line = next(line for line in experiment.lines() if line["run"] == 0)
    other = Result([line | {"value": line["value"] + 1}], "a worker", None)

    class Interrupted(_sweep.Dispatch):
        def next(self) -> None:
            raise KeyboardInterrupt

        def stop(self, limit_s: float) -> _sweep.Done:
            return [(0, other)]

    monkeypatch.setattr(_sweep, "Dispatch", Interrupted)
    with pytest.raises(KeyboardInterrupt) as error:
        sweep(seeds=1, verify=1)
    assert "two results of identity" in error.value.__notes__[0]
    assert (experiment.out / "runs.jsonl.differs").exists()


def test_equal_bytes_pass_the_check(sweep: Sweep, experiment: Experiment) -> None:
    sweep(seeds=1)
    assert len(sweep(seeds=1, verify=2)) == 3
    assert len(experiment.runs_begun()) == 5


def test_results_that_differ_in_the_folder_are_found(sweep: Sweep, experiment: Experiment) -> None:
    sweep(seeds=1)
    line = experiment.lines()[0]
    line["value"] += 1
    with (experiment.out / "runs.jsonl").open("a") as runs:
        runs.write(json.dumps(line) + "\n")
    with pytest.raises(unspin.NotDeterministicError, match=r"runs.jsonl:1 and .*runs.jsonl:4"):
        sweep(seeds=1)


def test_real_time_is_refused(sweep: Sweep, experiment: Experiment) -> None:
    experiment.write(accel="tcg")
    with pytest.raises(unspin.SweepError, match=r"1:1 \(tcg\), 2:1 \(tcg\).*machine"):
        sweep()
    assert not experiment.calls.exists()
    assert not experiment.out.exists()
    assert len(sweep(options=["--accel", "vt"], seeds=1)) == 3


def test_workers_with_another_build_are_refused(sweep: Sweep, experiment: Experiment) -> None:
    experiment.write(builds_differ=True)
    with pytest.raises(unspin.SweepError, match=r"(?s)another identity.*programs.unspin: "):
        sweep()
    assert not experiment.lines()


def test_a_missing_program_is_named(sweep: Sweep) -> None:
    with pytest.raises(unspin.SweepError, match=r"/none/unspin: No such file.*program="):
        sweep(program="/none/unspin")


def test_a_worker_without_the_file_gets_its_text(
    client: Client, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unspin import _sweep

    job = _sweep._job(experiment.file, str(STAND_IN), None, ())
    experiment.file.write_text("another file of that name\n")
    monkeypatch.setattr(_sweep, "_job", lambda *_: job)
    frame = unspin.sweep(experiment.file, client, out=experiment.out, progress=False)
    assert len(frame) == 12


def test_a_shipped_experiment_keeps_the_name_of_its_file(
    sweep: Sweep, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unspin import _sweep

    shipped = _sweep._job(experiment.file, str(STAND_IN), 1, ())
    shipped = dataclasses.replace(shipped, text=None)
    monkeypatch.setattr(_sweep, "_job", lambda *_: shipped)
    sweep()
    assert experiment.meta()["file"] == "x.toml", "as the program wrote it"


def test_a_folder_names_the_commit_that_measured_it(sweep: Sweep, experiment: Experiment) -> None:
    experiment.write(commit="first")
    sweep(seeds=1)
    experiment.write(commit="second")
    sweep(seeds=1, verify=1)
    assert experiment.meta()["machine"]["commit"] == "first", "nothing was added"
    sweep(seeds=2)
    assert experiment.meta()["machine"]["commit"] == "second"


def test_a_torn_line_is_set_aside(sweep: Sweep, experiment: Experiment) -> None:
    sweep(seeds=1)
    with (experiment.out / "runs.jsonl").open("a") as runs:
        runs.write('{"run":')
    with pytest.warns(unspin.TornLineWarning, match="moved to"):
        sweep(seeds=1)
    assert (experiment.out / "runs.jsonl.torn").read_text() == '{"run":\n'
    assert len(experiment.lines()) == 3


def test_two_sweeps_cannot_share_a_folder(sweep: Sweep, experiment: Experiment) -> None:
    from unspin._store import _lock

    experiment.out.mkdir()
    with (
        _lock(experiment.out / "runs.lock"),
        pytest.raises(unspin.SweepError, match="another run or sweep"),
    ):
        sweep()


def test_a_lost_worker_loses_no_run(sweep: Sweep, client: Client, experiment: Experiment) -> None:
    experiment.write(sleep_s=0.2)
    victim = next(iter(client.run(os.getpid).values()))

    def kill_amid_a_run() -> None:
        while not any(worker == str(victim) for _, _, worker in experiment.notes()):
            time.sleep(0.05)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill_amid_a_run, daemon=True)
    killer.start()
    frame = sweep(seeds=10)
    assert not killer.is_alive(), "the worker dies before the sweep ends"
    assert victim not in client.run(os.getpid).values()
    assert sorted(frame["run"]) == list(range(30))


CTRL_C = """
import signal, sys, unspin
from distributed import Client
signal.signal(signal.SIGINT, signal.default_int_handler)
client = Client(sys.argv[1])
unspin.sweep(sys.argv[2], client, out=sys.argv[3], program=sys.argv[4])
"""


def test_ctrl_c_keeps_what_is_finished(client: Client, experiment: Experiment) -> None:
    experiment.write(slow_from=5)
    arguments = [str(experiment.file), str(experiment.out), str(STAND_IN)]
    command = [sys.executable, "-c", CTRL_C, client.scheduler.address, *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while len(experiment.runs_begun()) < 7 and time.monotonic() < deadline:
        time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=30)
    assert time.monotonic() - began < 20, "the slow runs are interrupted"
    assert "KeyboardInterrupt" in log
    assert "5/12 runs" in log
    assert sorted(line["run"] for line in experiment.lines()) == list(range(5))
    assert not experiment.meta()["complete"]
    experiment.write()
    frame = unspin.sweep(
        experiment.file, client, out=experiment.out, program=str(STAND_IN), progress=False
    )
    assert len(frame) == 12
    assert all(experiment.runs_begun().count(run) == 1 for run in range(5))


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"jobs_per_worker": 0}, {"verify": -1}])
def test_numbers_are_checked(sweep: Sweep, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected at least"):
        sweep(**wrong)

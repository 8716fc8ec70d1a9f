"""Sweeps: the runs of an experiment in virtual time, spread over a Dask cluster."""

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from . import _worker
from ._dispatch import Dispatch, Done, wait_for_a_worker
from ._errors import SweepError
from ._progress import Progress
from ._record import json_object
from ._store import Store, differences
from ._table import runs
from ._worker import Job, PlanFiles, Result

if TYPE_CHECKING:
    from distributed import Client

PLAN_LOOK_EVERY_S = 30.0
"""How often the sweep looks whether a worker is left that can plan."""

STOP_LIMIT_S = 60.0
"""How long a sweep that ends early waits for the interrupted runs."""


def sweep(
    experiment: str | os.PathLike[str],
    client: "Client",
    *,
    out: str | os.PathLike[str],
    program: str = "unspin",
    seeds: int | None = None,
    jobs_per_worker: int = 1,
    options: Sequence[str] = (),
    verify: int = 0,
    progress: bool = True,
) -> pd.DataFrame:
    """Carries out the runs of an experiment in virtual time on the workers of a cluster.

    Each run is one task. Results are filed in `out` by identity, and a finished identity is
    never run again. `unspin lab report` reads the folder, too.

    experiment: a shipped experiment's name, or a file of this machine
    out: the output folder, which is made where it is missing
    program: the command on every worker
    seeds: seeds for each cell [default: the experiment's repeats]
    jobs_per_worker: runs at once on a worker, at most as many as it has threads
    options: further options of `unspin lab run`, such as `("--accel", "vt")`
    verify: finished runs to carry out again and to compare with what is filed
    progress: whether standard error shows how far the sweep is

    Returns the runs of `out`. On Ctrl-C, what is finished is kept and KeyboardInterrupt
    passes on; the same call resumes.

    Raises SweepError where a run is in real time, a worker cannot carry it out, or the cluster
    stays empty, and NotDeterministicError where two results of one identity differ.
    """
    _check(client, seeds, jobs_per_worker, verify)
    job = _job(experiment, program, seeds, options)
    planned = _plan(client, job)
    folder = Path(out)
    _refuse_real_time(json_object(planned.settings))
    store = Store(folder, planned)
    try:
        if not store.plan:
            raise SweepError(f"{job.program}: its plan has no identities: use a newer unspin")
        if job.text is not None:
            # A worker may have planned a copy of it. A shipped experiment keeps its own file.
            store.meta["file"] = os.fspath(experiment)
        _carry_out(client, job, store, jobs_per_worker, verify, progress)
    finally:
        store.close()
    return runs(folder)


def _check(client: Any, seeds: int | None, jobs_per_worker: int, verify: int) -> None:
    if getattr(client, "asynchronous", False):
        raise TypeError("sweep needs a synchronous client: Client(..., asynchronous=False)")
    for name, value, least in (
        ("seeds", 1 if seeds is None else seeds, 1),
        ("jobs_per_worker", jobs_per_worker, 1),
        ("verify", verify, 0),
    ):
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, found {value}")


def _job(
    experiment: str | os.PathLike[str], program: str, seeds: int | None, options: Sequence[str]
) -> Job:
    name, text = os.fspath(experiment), None
    if Path(name).is_file():
        name, text = str(Path(name).resolve()), Path(name).read_text()
    if os.sep in program:
        program = os.path.abspath(program)
    repeats = () if seeds is None else ("--repeats", str(seeds))
    return Job(uuid.uuid4().hex, program, name, text, (*options, *repeats))


def _plan(client: "Client", job: Job) -> PlanFiles:
    try:
        # An adaptive cluster starts a worker only when one is needed.
        future = client.submit(_worker.plan, job, pure=False)
        wait_for_a_worker(client)
        planned: PlanFiles = _planned(client, future)
    except _worker.CommandError as error:
        raise SweepError(str(error)) from None
    except KeyboardInterrupt:
        client.run(_worker.stop, job.sweep, on_error="ignore")
        raise
    return planned


def _planned(client: "Client", future: Any) -> Any:
    """The future's result. A cluster without workers would never have one."""
    while True:
        try:
            return future.result(timeout=PLAN_LOOK_EVERY_S)
        except TimeoutError:
            if future.status == "error":
                raise
            wait_for_a_worker(client)


def _refuse_real_time(settings: dict[str, Any]) -> None:
    real = {(one["accel"], one["cell"]["topology"]) for one in settings.values()}
    real = {(accel, topology) for accel, topology in real if accel != "vt"}
    if real:
        found = ", ".join(f"{topology} ({accel})" for accel, topology in sorted(real))
        raise SweepError(
            f"topologies in real time: {found}. Runs in real time measure the machine that "
            "they have to themselves, so results of several workers cannot be compared: "
            'set `accel = "vt"` in the experiment, or pass options=("--accel", "vt")'
        )


def _carry_out(
    client: "Client", job: Job, store: Store, jobs: int, verify: int, progress: bool
) -> None:
    done = store.done()
    waiting = [number for number in sorted(store.plan.values()) if number not in done]
    again = _spread(sorted(done), verify)
    identities = {number: identity for identity, number in store.plan.items()}
    dispatch = Dispatch(client, job, identities, jobs, waiting + again)
    shown = Progress(len(done) - len(again), len(store.plan), progress)
    started = time.monotonic()
    try:
        while (results := dispatch.next()) is not None:
            _file_all(store, identities, results)
            for _, result in results:
                shown.run(result)
            shown.show()
    except BaseException as error:
        try:
            _file_all(store, identities, dispatch.stop(STOP_LIMIT_S))
        except SweepError as other:
            error.add_note(str(other))
        raise
    finally:
        shown.end()
        store.end(time.monotonic() - started)


def _spread(numbers: list[int], count: int) -> list[int]:
    """So many of the numbers, evenly spread."""
    count = min(count, len(numbers))
    return [numbers[index * len(numbers) // count] for index in range(count)]


def _file_all(store: Store, identities: dict[int, str], results: Done) -> None:
    """Files every result that can be filed, then raises the first error."""
    errors = []
    for number, result in results:
        try:
            _file(store, identities[number], number, result)
        except SweepError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _file(store: Store, identity: str, number: int, result: Result) -> None:
    for record in result.records:
        if record.get("identity") != identity:
            raise SweepError(
                f"run {number} on {result.place} has another identity than planned"
                + _other_setting(store, identity, record.get("setting"), result)
                + "\ninstall the same unspin, kernels and programs on every worker"
            )
    store.add(result.records, result.place)


def _other_setting(store: Store, identity: str, name: str | None, result: Result) -> str:
    """Where the worker's setting differs from the planned one of the same cell."""
    found = (result.settings or {}).get(name or "")
    if found is None:
        return ""
    planned = [one for one in store.settings.values() if one["cell"] == found["cell"]]
    where = differences(planned[0], found) if planned else []
    return "".join(f"\n  {one}" for one in where[:5])

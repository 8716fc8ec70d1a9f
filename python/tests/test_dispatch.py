"""Sweeps whose workers die or never come, with a stand-in for the cluster."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from distributed import Client

import unspin
from unspin import _dispatch, _sweep

from .conftest import Experiment


class StandInFuture:
    """A finished run; where `results` is empty, its worker died with the result."""

    status = "finished"

    def __init__(self, *results: object) -> None:
        self.results = results

    def result(self, timeout: float) -> object:
        if not self.results:
            raise TimeoutError
        return self.results[0]

    def done(self) -> bool:
        return True

    def cancel(self) -> None:
        pass


class StandInClient:
    """A cluster whose one worker has a thread, or an empty one."""

    def __init__(self, *futures: StandInFuture, workers: int = 1) -> None:
        self.futures = list(futures)
        self.workers = workers

    def nthreads(self) -> dict[str, int]:
        return {"tcp://worker": 1} if self.workers else {}

    def wait_for_workers(self, count: int, timeout: float) -> None:
        if self.workers < count:
            raise TimeoutError

    def submit(self, *_: object, **__: object) -> StandInFuture:
        return self.futures.pop(0)

    def run(self, *_: object, **__: object) -> None:
        pass

    def cancel(self, futures: list[StandInFuture]) -> None:
        pass


Dispatched = Callable[..., Any]


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> Dispatched:
    def call(runs: list[int], *futures: StandInFuture, **more: int) -> _dispatch.Dispatch:
        job = _sweep._job("sample", "unspin", None, ())
        client = cast(Client, StandInClient(*futures, **more))
        return _dispatch.Dispatch(client, job, {run: str(run) for run in runs}, 1, runs)

    monkeypatch.setattr(_dispatch.Dispatch, "_wait", lambda *_, **__: None)
    return call


def test_a_run_whose_result_died_with_its_worker_runs_again(dispatched: Dispatched) -> None:
    dispatch = dispatched([7], StandInFuture(), StandInFuture("result"))
    assert dispatch.next() == []
    assert dispatch.next() == [(7, "result")]
    assert dispatch.next() is None


def test_results_come_before_the_error_of_a_lost_one(dispatched: Dispatched) -> None:
    dispatch = dispatched([7], StandInFuture(), StandInFuture(), StandInFuture())
    assert [dispatch.next(), dispatch.next()] == [[], []]
    dispatch.under_way[StandInFuture("other")] = (8, "tcp://worker")
    dispatch._submit(dispatch.waiting.popleft(), "tcp://worker")
    assert dispatch.next() == [(8, "other")]
    with pytest.raises(unspin.SweepError, match="run 7: 3 workers were lost with it"):
        dispatch.next()


def test_a_sweep_that_stops_does_not_wait_for_lost_results(dispatched: Dispatched) -> None:
    dispatch = dispatched([1])
    dispatch.under_way[StandInFuture()] = (1, "tcp://worker")
    dispatch.under_way[StandInFuture("result")] = (2, "tcp://worker")
    assert dispatch.stop(1) == [(2, "result")]


def test_ctrl_c_while_a_result_is_fetched_loses_no_other(dispatched: Dispatched) -> None:
    class Interrupted(StandInFuture):
        interruptions = 0

        def result(self, timeout: float) -> object:
            self.interruptions += 1
            raise KeyboardInterrupt if self.interruptions == 1 else TimeoutError

    dispatch = dispatched([])
    dispatch.under_way[StandInFuture("result")] = (1, "tcp://worker")
    dispatch.under_way[Interrupted()] = (2, "tcp://worker")
    with pytest.raises(KeyboardInterrupt):
        dispatch.next()
    assert dispatch.stop(1) == [(1, "result")]


def test_an_empty_cluster_is_an_error(dispatched: Dispatched, experiment: Experiment) -> None:
    with pytest.raises(unspin.SweepError, match="no running worker for 60 s"):
        dispatched([1], workers=0).next()
    client = cast(Client, StandInClient(StandInFuture(), workers=0))
    with pytest.raises(unspin.SweepError, match="no running worker for 60 s"):
        unspin.sweep(experiment.file, client, out=experiment.out)
    assert not experiment.out.exists()


def test_a_worker_that_dies_while_it_plans_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    client = StandInClient(workers=1)
    future = StandInFuture()

    def joins(*_: object, **__: object) -> None:
        future.results = (5,)

    monkeypatch.setattr(client, "wait_for_workers", joins)
    assert _sweep._planned(cast(Client, client), future) == 5

"""Gives runs to workers: each has as many as it may, and none waits behind a busy one."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import _worker
from ._errors import SweepError
from ._worker import Job, Result

if TYPE_CHECKING:
    from distributed import Client

LOOK_EVERY_S = 1.0
"""How often joining and leaving workers are noticed."""

LOSSES_MAX = 3
"""How many workers a run may lose before the sweep gives up."""

RESULT_LIMIT_S = 30.0
"""How long a finished run's result may take: a worker that dies with it leaves none."""

EMPTY_LIMIT_S = 60
"""How long a sweep waits for a first worker."""

Done = list[tuple[int, Result]]


def wait_for_a_worker(client: "Client") -> None:
    """Raises SweepError where the cluster stays empty."""
    try:
        client.wait_for_workers(1, timeout=EMPTY_LIMIT_S)
    except TimeoutError:
        raise SweepError(
            f"the cluster has had no running worker for {EMPTY_LIMIT_S} s: start one"
        ) from None


class Dispatch:
    """The runs that wait, and those under way."""

    def __init__(
        self,
        client: "Client",
        job: Job,
        identities: Mapping[int, str],
        jobs_per_worker: int,
        runs: Iterable[int],
    ) -> None:
        self.client = client
        self.job = job
        self.identities = identities
        self.jobs_per_worker = jobs_per_worker
        self.waiting = deque(runs)
        self.under_way: dict[Any, tuple[int, str]] = {}
        self.losses: Counter[int] = Counter()

    def next(self) -> Done | None:
        """The runs that ended since the last call, or none of them yet; None at the end.

        Raises SweepError where a worker cannot carry out a run, and where the cluster stays empty.
        """
        self._feed()
        if not self.under_way:
            return None
        self._wait(LOOK_EVERY_S)
        return self._collect()

    def stop(self, limit_s: float) -> Done:
        """Interrupts the runs under way; returns what ended all the same."""
        self.waiting.clear()
        if not self.under_way:
            return []
        self.client.run(_worker.stop, self.job.sweep, on_error="ignore")
        self._wait(limit_s, all_of_them=True)
        ended = [(run, future) for future, (run, _) in self.under_way.items()]
        self.client.cancel([future for _, future in ended if not future.done()])
        results = []
        for run, future in ended:
            if future.status == "finished":
                with suppress(TimeoutError):
                    results.append((run, future.result(timeout=RESULT_LIMIT_S)))
        return results

    def _feed(self) -> None:
        threads = self.client.nthreads()
        if not threads and (self.waiting or self.under_way):
            wait_for_a_worker(self.client)
            threads = self.client.nthreads()
        for future, (run, worker) in list(self.under_way.items()):
            if worker not in threads and not future.done():
                self._lost(future, run)
        busy = Counter(worker for _, worker in self.under_way.values())
        most = {worker: min(count, self.jobs_per_worker) for worker, count in threads.items()}
        free = {worker: count - busy[worker] for worker, count in most.items()}
        while self.waiting and free:
            worker = max(free, key=lambda name: free[name])
            if free[worker] <= 0:
                break
            free[worker] -= 1
            self._submit(self.waiting.popleft(), worker)

    def _submit(self, run: int, worker: str) -> None:
        future = self.client.submit(
            _worker.run,
            self.job,
            run,
            self.identities[run],
            workers=[worker],
            allow_other_workers=False,
            pure=False,
        )
        self.under_way[future] = (run, worker)

    def _wait(self, limit_s: float, all_of_them: bool = False) -> None:
        from distributed import wait

        when = "ALL_COMPLETED" if all_of_them else "FIRST_COMPLETED"
        with suppress(TimeoutError):
            wait(list(self.under_way), timeout=limit_s, return_when=when)

    def _collect(self) -> Done:
        fetched, without = [], set()
        for future in self.under_way:
            if future.status != "finished":
                continue
            try:
                result = future.result(timeout=RESULT_LIMIT_S)
            except TimeoutError:
                without.add(future)
            else:
                fetched.append((future, result))
        if fetched:
            # Not before all are here: after Ctrl-C on the way, `stop` fetches them again.
            # Failures come in the next call, when these results are filed.
            return [(self.under_way.pop(future)[0], result) for future, result in fetched]
        for future, (run, worker) in list(self.under_way.items()):
            if future in without:
                self._lost(future, run)
            elif future.done():
                self._failed(future, run, worker)
        return []

    def _failed(self, future: Any, run: int, worker: str) -> None:
        error = future.exception() if future.status == "error" else None
        if isinstance(error, _worker.CommandError):
            raise SweepError(str(error)) from None
        if error is not None and worker in self.client.nthreads():
            raise SweepError(f"run {run} on {worker}: {error}") from error
        self._lost(future, run)

    def _lost(self, future: Any, run: int) -> None:
        """The run's worker left the cluster: another one carries the run out."""
        del self.under_way[future]
        future.cancel()
        self.losses[run] += 1
        if self.losses[run] >= LOSSES_MAX:
            raise SweepError(
                f"run {run}: {LOSSES_MAX} workers were lost with it: look for too little memory, "
                "or pass a smaller jobs_per_worker="
            )
        self.waiting.appendleft(run)

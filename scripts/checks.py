"""Lists of checks: functions `check_NAME` that return what they found, or raise Failed."""

from collections.abc import Callable, Iterable


class Failed(Exception):
    """A check that does not hold."""


def want(holds: object, what: str, log: str = "") -> None:
    """Raises Failed with `what` and the end of the log unless it holds."""
    if not holds:
        raise Failed(what + ("\n" + "\n".join(log.splitlines()[-25:]) if log else ""))


def one(name: str, check: Callable[[], str]) -> bool:
    """Runs a check and prints its line. Returns whether it holds."""
    try:
        print(f"{name}: ok: {check()}", flush=True)
        return True
    except Failed as error:
        print(f"{name}: FAILED: {error}", flush=True)
        return False


def run(checks: Iterable[Callable[..., str]], names: list[str], bench: object) -> int:
    """Runs the named checks, or all, with the bench. Returns the script's exit status."""
    status = 0
    for check in checks:
        name = check.__name__.removeprefix("check_")
        if (not names or name in names) and not one(name, lambda: check(bench)):
            status = 1
    return status

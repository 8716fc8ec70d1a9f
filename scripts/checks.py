"""Runs lists of checks: functions `check_NAME` that return their findings, or raise Failed."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from claims import Claims, in_file


class Bench(Protocol):
    """The data that checks share."""

    claims: Claims
    # Number of tries of the current check.
    tries: int


class Failed(Exception):
    """The error of a failed check."""


def want(holds: object, what: str, log: str = "") -> None:
    """Raises Failed with `what` and the end of the log unless `holds` is true."""
    if not holds:
        raise Failed(what + ("\n" + "\n".join(log.splitlines()[-25:]) if log else ""))


def one(name: str, check: Callable[[], str]) -> bool:
    """Runs a check and prints its line. Returns whether the check passes."""
    try:
        print(f"{name}: ok: {check()}", flush=True)
        return True
    except Failed as error:
        print(f"{name}: FAILED: {error}", flush=True)
    except Exception:  # An unexpected exception fails the check as well.
        print(f"{name}: FAILED: {traceback.format_exc()}", flush=True)
    return False


def claims_that(*claims: tuple[str, str]) -> Callable[[Callable], Callable]:
    """Marks a check that supports claims, each given as an id and its statement."""

    def mark(check: Callable) -> Callable:
        check.says = claims  # type: ignore[attr-defined]
        return check

    return mark


def only_by_name(check: Callable) -> Callable:
    """Marks a check that takes so long that it runs only if it is named."""
    check.only_by_name = True  # type: ignore[attr-defined]
    return check


def run(checks: Sequence[Callable[..., str]], names: list[str], bench: Bench, file: str) -> int:
    """Runs the named checks, or all checks that need no name, with the bench, and writes their claims into a
    file. Returns the script's exit status."""
    known = {check.__name__.removeprefix("check_"): check for check in checks}
    if unknown := set(names) - known.keys():
        print(f"no such check: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if not file.endswith(".json"):
        print(f"{file}: claims go into a file that ends in .json", file=sys.stderr)
        return 2
    in_file(Path(file))
    status = 0
    unnamed = [name for name, check in known.items() if not hasattr(check, "only_by_name")]
    for name in names or unnamed:
        check = known[name]
        bench.tries = 1
        holds = one(name, lambda: check(bench))
        status |= not holds
        for claim, what in getattr(check, "says", ()):
            percent = 100 / bench.tries if holds else 0
            bench.claims.add(claim, what, percent, "%", bench.tries, ">= 100")
        bench.claims.save(Path(file))
    return status

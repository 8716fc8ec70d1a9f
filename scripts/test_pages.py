"""Tests how scripts/pages.py parses an L1's output. Run by `python3 -m unittest discover -s scripts`."""

import argparse
import contextlib
import io
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pages
from checks import Failed

ARMS = (("off", "off", 0), ("cache", "cache", 0))
ROUNDS = 2


def guest(arm: int, slices: int = pages.SLICES + 1, status: int = 0, vmm: int = 0) -> str:
    """Returns an L1's output for one guest. pages.py does not count the first slice."""
    lines = [f"arm {arm}"]
    for operation in pages.OPERATIONS:
        counts = [1, *[200 * (arm + 1)] * (slices - 1)]
        lines += [f"pump {operation} {count} 400000000" for count in counts]
    return "\n".join([*lines, f"status {status}", "init: end", f"status {vmm}"]) + "\n"


def log(*last: str) -> str:
    """Returns the output of two rounds. `last` replaces the last guest."""
    return "\n" + "".join([guest(0), guest(1), guest(1), *(last or [guest(0)])]) + "L1: end\n"


class Pages(unittest.TestCase):
    def test_rates_are_those_of_all_slices_but_the_first(self) -> None:
        found = pages.rates(log(), ARMS, ROUNDS)
        self.assertEqual(list(found), list(pages.OPERATIONS))
        for by_arm in found.values():
            self.assertEqual(by_arm, {"off": [500.0, 500.0], "cache": [1000.0, 1000.0]})

    def test_a_guest_that_fails_is_not_counted(self) -> None:
        failed = [
            guest(0, slices=pages.SLICES),
            guest(0, status=101),
            guest(0, vmm=4),
            guest(0).replace("status 0\n", "", 1),
            guest(1),
            "\n",
        ]
        for last in failed:
            with self.subTest(last), self.assertRaises(Failed):
                pages.rates(log(last), ARMS, ROUNDS)

    def test_each_guest_says_how_its_command_and_the_vmm_ended(self) -> None:
        script = pages.measure_script(ARMS, ROUNDS)
        self.assertEqual(script.count("; echo status $?\""), 2 * ROUNDS)
        self.assertEqual(script.count("< /dev/null\necho status $?\n"), 2 * ROUNDS)

    def test_a_test_must_have_run(self) -> None:
        passed = "".join(f"test {module}::works ... ok\n" for module in pages.MODULES)
        for tests, holds in ((passed, True), (passed.splitlines()[0], False), ("", False)):
            printed = f"ospke\n{tests}\nstatus 0\n"
            bench = SimpleNamespace(program=lambda *_: None, run=lambda *_, **__: printed)
            with self.subTest(tests), mock.patch("pages.test_program", lambda: Path("it")):
                if holds:
                    self.assertIn("2 tests", pages.check_enforced(bench, argparse.Namespace()))
                else:
                    with self.assertRaises(Failed):
                        pages.check_enforced(bench, argparse.Namespace())

    def test_a_mistyped_check_is_an_error_before_all_others(self) -> None:
        said, arguments = io.StringIO(), ["pages.py", "release", "loop", "revok"]
        with (
            mock.patch.object(sys, "argv", arguments),
            contextlib.redirect_stderr(said),
            self.assertRaises(SystemExit) as end,
        ):
            pages.main()
        self.assertEqual(end.exception.code, 2)
        self.assertIn("no such check: revok;", said.getvalue())


if __name__ == "__main__":
    unittest.main()

"""Tests scripts/pages.py without an L1. Run by `python3 -m unittest discover -s scripts`."""

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


class Pages(unittest.TestCase):
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

"""Tests what scripts/fuzz.py keeps when it finds no bug. Run by `python3 -m unittest discover -s scripts`."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import fuzz
from claims import Claims

LABEL = {"source": "lab", "accel": "vt", "kernel": "7.3.4", "prices": "epyc"}


class Fuzz(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_no_bug_that_is_found_is_a_claim_of_none(self) -> None:
        runs = self.folder / "planted/bug-0/first/1/fuzz/runs.jsonl"
        runs.parent.mkdir(parents=True)
        runs.write_text(json.dumps({"label": LABEL}) + "\n")
        claims = Claims("", "fuzz.py", "make fuzz")
        with mock.patch("fuzz.is_found", return_value=False):
            fuzz.check_planted(Path("unspin"), self.folder, claims)
        (claim,) = claims.found
        self.assertEqual((claim["value"], claim["n"]), (0, len(fuzz.BUGS)))
        self.assertEqual(claim["label"], "lab/vt, kernel 7.3.4, prices epyc")

    def test_the_seeds_claims_outlive_a_bug_that_cannot_be_planted(self) -> None:
        def seeds(program: Path, folder: Path, seeds: str, claims: Claims) -> None:
            claims.add("run.fuzz.cpuset", "seeds", 0, "", 500)

        arguments = ["fuzz.py", "unspin", str(self.folder)]
        printed = io.StringIO()
        with (
            mock.patch.object(sys, "argv", arguments),
            mock.patch("fuzz.check_seeds", seeds),
            mock.patch("fuzz.check_planted", side_effect=SystemExit("no place to plant it")),
            contextlib.redirect_stdout(printed),
            self.assertRaises(SystemExit),
        ):
            fuzz.main()
        (claim,) = json.loads(printed.getvalue())
        self.assertEqual(claim["id"], "run.fuzz.cpuset")


if __name__ == "__main__":
    unittest.main()

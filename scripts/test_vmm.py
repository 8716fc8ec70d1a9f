"""Tests which claim `scripts/vmm.py` makes of the hostile tests. Run by `python3 -m unittest discover -s scripts`."""

import unittest
from types import SimpleNamespace
from unittest import mock

import vmm
from checks import Failed
from claims import Claims

LINE = "test hostile::a_console_survives ... \nhostile: 1000100 malformed chains in 400 cases, 390 cases compared\nok\n"


class Fuzz(unittest.TestCase):
    def claimed(self, printed: str, status: int, holds: bool) -> dict:
        """Returns the claim after the tests printed something and ended with a status."""
        bench = SimpleNamespace(claims=Claims("label", "vmm.py", "make vmm"))
        done = SimpleNamespace(returncode=status, stdout=printed, stderr="")
        with mock.patch("vmm.subprocess.run", lambda *_, **__: done):
            if holds:
                self.assertIn("4000400 malformed chains in 1600 cases", vmm.check_fuzz(bench))
            else:
                self.assertRaises(Failed, vmm.check_fuzz, bench)
        return bench.claims.found[0]

    def test_all_models_must_survive(self) -> None:
        claim = self.claimed(4 * LINE, 0, holds=True)
        self.assertEqual((claim["value"], claim["n"], claim["command"]), (100, 4000400, "make vmm ARGS=fuzz"))

    def test_a_model_that_fails_or_did_not_run_is_no_success(self) -> None:
        self.assertEqual(self.claimed(3 * LINE, 101, holds=False)["value"], 0)
        self.assertEqual(self.claimed(3 * LINE, 0, holds=False)["value"], 75)
        self.assertEqual(self.claimed("", 0, holds=False)["value"], 0)


if __name__ == "__main__":
    unittest.main()

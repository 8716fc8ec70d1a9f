"""Tests how long scripts/stress.sh runs stressors. Run by `python3 -m unittest discover -s scripts`."""

import subprocess
import tempfile
import unittest
from pathlib import Path

STRESS = Path(__file__).resolve().parent / "stress.sh"


class Minutes(unittest.TestCase):
    def call(self, minutes: str) -> tuple[int, str, bool]:
        """Returns the exit code, the messages, and whether a run has begun. The lab fails at once."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [STRESS, "false", minutes, "7"], cwd=folder, capture_output=True, text=True
            )
            return done.returncode, done.stderr, Path(folder, "out/stress-7").exists()

    def test_more_than_the_lab_allows_is_refused_at_once(self) -> None:
        for minutes in ("56", "60", "100", "0", "-1", "1.5", "ten", "5 5"):
            code, said, begun = self.call(minutes)
            self.assertEqual((code, begun), (2, False), minutes)
            self.assertIn("from 1 to 55", said)

    def test_what_the_lab_allows_begins(self) -> None:
        for minutes in ("1", "9", "10", "30", "50", "55"):
            code, said, begun = self.call(minutes)
            self.assertEqual((code, said, begun), (1, "", True), minutes)


if __name__ == "__main__":
    unittest.main()

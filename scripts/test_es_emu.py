"""Tests scripts/es_emu_conversions.py without an L1. Run by `python3 -m unittest discover -s
scripts`."""

import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import es_emu_conversions
from checks import Failed

GOOD = {
    "policy": "cache", "to_private": 500, "pages_to_private": 131000, "to_shared": 100,
    "pages_to_shared": 16000, "reports_refused": 0, "converted_open": 2, "refused": 0,
    "refused_private": 0,
}
STRAY = "stray: ring 0x1000 0x2000 0x2240, status 0xf\nstray: ok\n"
USED = "the disk is right\nby virtio\n"


class Conversions(unittest.TestCase):
    def check(self, counters: dict, stray: str = STRAY, refused: int = 3, used: str = USED) -> str:
        """Runs the check with guests that print these counters. The guest with the stray program
        has `refused` refusals."""

        def guest(bench: object, name: str, *_: object, **__: object) -> str:
            is_stray = name.endswith("stray")
            more = {"refused": refused, "refused_private": refused} if is_stray else {}
            line = json.dumps(GOOD | counters | more, separators=(",", ":"))
            return f"{used}{stray if is_stray else ''}exits 9 9\nwarnings 0\n{line}\n"

        with tempfile.TemporaryDirectory() as folder, mock.patch.multiple(
            es_emu_conversions, guest=guest, install=mock.DEFAULT, archive=mock.DEFAULT,
            reports=lambda _: "reports", subprocess=mock.DEFAULT,
        ):
            bench = SimpleNamespace(folder=Path(folder), kernel=Path(folder))
            return es_emu_conversions.check_conversions(bench)

    def test_good_counters_pass(self) -> None:
        self.assertIn("500 conversions to private of 131000 pages", self.check({}))

    def test_each_wrong_counter_fails(self) -> None:
        wrong = [
            {"to_private": 0}, {"to_shared": 0}, {"pages_to_private": 4096}, {"reports_refused": 1},
            {"converted_open": 0}, {"refused": 1},
        ]
        for counters in wrong:
            with self.subTest(counters), self.assertRaises(Failed):
                self.check(counters)

    def test_a_stray_device_must_be_started_and_refused(self) -> None:
        not_started = STRAY.replace("0xf", "0xb")
        for arguments in ({"refused": 0}, {"stray": ""}, {"stray": not_started}, {"used": ""}):
            with self.subTest(arguments), self.assertRaises(Failed):
                self.check({}, **arguments)


if __name__ == "__main__":
    unittest.main()

"""Tests how scripts/iops.py starts guests and reads their output. Run by `python3 -m unittest discover -s
scripts`."""

import contextlib
import io
import json
import sys
import unittest
from unittest import mock

import iops
from checks import Failed

ARMS = iops.Set({"off": "", "cache": "--page-access cache"}, "claim", "label")
COUNTERS = {"policy": "cache", "chains": 10, "pages_asked": 40, "hits": 30, "requests": 5, "returns": 0, "seconds": 1.5}


def guest(arm: str, rate: int = 200, slices: int = iops.SLICES + 1, status: int = 0, vmm: int = 0) -> str:
    """Returns an L1's output for one guest. iops.py does not count the first slice."""
    lines = [f"arm {arm}"]
    for operation in iops.OPERATIONS:
        lines += [f"pump {operation} {count} 400000000" for count in (1, *[rate] * (slices - 1))]
    return "\n".join([*lines, f"status {status}", "init: end", f"status {vmm}"]) + "\n"


def log(*guests: str) -> str:
    return "\n" + "".join(guests) + "L1: end\n"


class Iops(unittest.TestCase):
    def test_rates_are_those_of_all_slices_but_the_first(self) -> None:
        logs = [log(guest("off"), guest("cache", 400)), log(guest("cache", 800), guest("off"))]
        found = iops.rates(logs, ARMS)
        self.assertEqual(list(found), list(iops.OPERATIONS))
        for by_arm in found.values():
            self.assertEqual(by_arm, {"off": [500.0, 500.0], "cache": [1000.0, 2000.0]})

    def test_a_guest_that_fails_is_not_counted(self) -> None:
        failed = [
            guest("off", slices=iops.SLICES),
            guest("off", status=101),
            guest("off", vmm=4),
            guest("off").replace("status 0\n", "", 1),
            guest("cache"),
            "\n",
        ]
        for last in failed:
            with self.subTest(last), self.assertRaises(Failed):
                iops.rates([log(guest("cache"), last)], ARMS)

    def test_counters_are_summed_over_rounds(self) -> None:
        one = log(guest("off"), guest("cache") + json.dumps(COUNTERS) + "\n")
        found = iops.counters([one, one])
        self.assertEqual(list(found), ["cache"])
        self.assertEqual((found["cache"]["chains"], found["cache"]["hits"]), (20, 60))
        self.assertIn("hits 0.750, opening calls a chain 0.500", iops.shares(found["cache"]))

    def test_a_refused_chain_is_a_failure(self) -> None:
        with self.assertRaises(Failed):
            iops.shares(iops.Counter({"chains": 10, "refused": 1}))

    def test_each_round_runs_each_arm_once(self) -> None:
        for arms in iops.SETS.values():
            scripts = [iops.script(arms, seed) for seed in range(1, 7)]
            for script in scripts:
                names = [line.split()[2] for line in script.splitlines() if line.startswith("echo arm ")]
                self.assertEqual(sorted(names), sorted(arms.arms))
            self.assertGreater(len(set(scripts)), 1)

    def test_arms_with_counters_write_them(self) -> None:
        writing = {
            name: [arm for arm in arms.arms if "--stats" in iops.command(arms, arm)]
            for name, arms in iops.SETS.items()
        }
        for name in ("policies", "policies-es"):
            self.assertEqual(writing[name], ["pregrant", "cache", "batch", "request"])
        self.assertEqual(writing["ghcb"], ["mapped", "mapped-again", "calls", "ioeventfd"])

    def test_a_mistyped_set_is_an_error_before_all_others(self) -> None:
        said, arguments = io.StringIO(), ["iops.py", "release", "policies", "revok"]
        with (
            mock.patch.object(sys, "argv", arguments),
            contextlib.redirect_stderr(said),
            self.assertRaises(SystemExit) as end,
        ):
            iops.main()
        self.assertEqual(end.exception.code, 2)
        self.assertIn("no such set: revok;", said.getvalue())


if __name__ == "__main__":
    unittest.main()

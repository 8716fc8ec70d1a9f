"""Tests scripts/pages.py without an L1. Run by `python3 -m unittest discover -s scripts`."""

import argparse
import contextlib
import io
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import isolation
import pages
from checks import Failed

# What an L1 prints about a VMM with a vCPU. Key 1 is that of the vCPUs' mapping, and key 2 that of private memory.
VMM = """
key 1 65536 rw-s /memfd:guest
key 2 65536 rw-p
thread unspin-vmm 5555557c
thread console 5555557c
thread block 5555557c
thread net 5555557c
thread revoker 5555557c
thread vcpu0 55555540
kernel kvm-nx-lpage-re
between vcpu0 20 900 30 0
between vcpu0 20 800 30 0
between vcpu0 20 700 30 0
isolation: end
status 0
guest: passed
"""


class Pages(unittest.TestCase):
    def test_a_test_must_have_run(self) -> None:
        passed = "".join(f"test {test} ... ok\n" for test in pages.TESTS)
        for tests, holds in ((passed, True), (passed.splitlines()[0], False), ("", False)):
            printed = f"ospke\n{tests}\nstatus 0\n"
            bench = SimpleNamespace(program=lambda *_: None, run=lambda *_, **__: printed)
            with self.subTest(tests), mock.patch("pages.test_program", lambda: Path("it")):
                if holds:
                    self.assertIn(f"{len(pages.TESTS)} tests", pages.check_enforced(bench, argparse.Namespace()))
                else:
                    with self.assertRaises(Failed):
                        pages.check_enforced(bench, argparse.Namespace())

    def test_each_thread_must_deny_itself_both_keys(self) -> None:
        wrong, found = isolation.judge(VMM)
        self.assertEqual(wrong, [])
        self.assertIn("6 threads, 3 stretches", found)
        cases = (
            ("block 5555557c", "block 55555570", "block may use the vCPUs' mapping"),
            ("unspin-vmm 5555557c", "unspin-vmm 5555554c", "unspin-vmm may use private memory"),
            ("20 800 30 0", "850 0 0 0", "vcpu0 may use private memory outside of KVM_RUN"),
            ("20 800 30 0", "20 800 101 0", "vcpu0 may use private memory outside of KVM_RUN"),
            ("20 800 30 0", "20 800 30 1", "vcpu0 may use private memory outside of KVM_RUN"),
        )
        for old, new, what in cases:
            with self.subTest(new):
                wrong, _ = isolation.judge(VMM.replace(old, new))
                self.assertEqual(len(wrong), 1)
                self.assertIn(what, wrong[0])

    def test_all_threads_and_mappings_must_have_been_read(self) -> None:
        for old, new in (
            ("thread net 5555557c\n", ""),
            ("key 2 65536 rw-p\n", ""),
            ("key 1", "key 2"),
            ("between vcpu0 20 900 30 0\n", ""),
            ("isolation: end\n", ""),
            ("status 0", "status 139"),
        ):
            with self.subTest(old), self.assertRaises(Failed):
                isolation.judge(VMM.replace(old, new))

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

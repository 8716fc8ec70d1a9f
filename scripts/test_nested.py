"""Tests how L1s are started again, and how scripts find the lab's QEMU. Run by `python3 -m unittest discover
-s scripts`."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import nested
import sev_es_bench
import vnae
from checks import Failed

# Writes an L1's console like QEMU. The kernel dies as often as a file says.
EMULATOR = """#!/bin/sh
for word; do
    case $word in
    file:*) console=${word#file:} ;;
    esac
done
left=$(cat "$0.left")
[ "$left" -eq 0 ] || echo $((left - 1)) > "$0.left"
{ echo "L1: begin"; [ "$left" -eq 0 ] || echo "Oops: 0000"; %s; } > "$console"
"""

# A check that waits for its QEMU.
CHECK = """
import subprocess, nested
subprocess.run([*nested.LIMITED, "60", "sh", "-c", "echo $$; exec sleep 60"])
"""


class Nested(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def tries(self, oopses: int, end: str = 'echo "L1: end"') -> int:
        """Returns the number of tries that a check counts if its kernels die `oopses` times."""
        program = self.folder / "emulator"
        program.write_text(EMULATOR % end)
        program.chmod(0o755)
        Path(f"{program}.left").write_text(str(oopses))
        bench = nested.Bench.__new__(nested.Bench)
        bench.folder, bench.root, bench.append = self.folder, self.folder / "l1", ""
        bench.host = self.folder / "vmlinuz"
        bench.root.mkdir(exist_ok=True)
        with mock.patch("nested.archive"), contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                bench.run("one", "true", machine=lambda cpu: [str(program)])
            finally:
                again = said.getvalue().count("it is started again")
                self.assertEqual(again, min(oopses, nested.TRIALS - 1))
        return bench.tries

    def test_tries_are_how_often_the_l1_ran(self) -> None:
        self.assertEqual([self.tries(oopses) for oopses in (0, 1, 2, 9)], [1, 2, 3, 3])

    def test_an_l1_that_dies_itself_is_no_try(self) -> None:
        with self.assertRaises(Failed):
            self.tries(9, "true")

    def test_ctrl_c_ends_qemu_too(self) -> None:
        check = subprocess.Popen(
            [sys.executable, "-B", "-c", CHECK], cwd=Path(nested.__file__).parent, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        qemu = int(check.stdout.readline())
        os.killpg(check.pid, signal.SIGINT)
        try:
            # The call returns only when no process has the pipe open.
            check.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.kill(qemu, signal.SIGKILL)
            self.fail("QEMU goes on")

    def test_firmware_lies_beside_qemu_or_in_the_cache(self) -> None:
        qemu, cached = self.folder / "bin/qemu", self.folder / "qemu/qemu-1/share/qemu"
        with mock.patch.dict(os.environ, {"UNSPIN_CACHE": str(self.folder)}):
            self.assertEqual(nested.firmware_of(qemu), self.folder / "share/qemu")
            cached.mkdir(parents=True)
            self.assertEqual(nested.firmware_of(qemu), cached)
            (self.folder / "share/qemu").mkdir(parents=True)
            self.assertEqual(nested.firmware_of(qemu), self.folder / "share/qemu")

    def test_the_labs_qemu_may_lie_in_a_folder_with_spaces(self) -> None:
        builds = '{"builds": [{"program": "/old"}, {"program": "/big disk/qemu", "current": true}]}'
        cases = [(builds, 0, "/big disk/qemu"), ('{"builds": []}', 0, "none"), ("", 1, "none")]
        for printed, status, wanted in cases:
            unspin = self.folder / "unspin"
            unspin.write_text(f"#!/bin/sh\necho '{printed}'\nexit {status}\n")
            unspin.chmod(0o755)
            with self.subTest(printed), mock.patch.dict(os.environ):
                os.environ.pop("UNSPIN_VT_QEMU", None)
                self.assertEqual(sev_es_bench.lab_qemu(str(unspin)), Path(wanted))

    def test_a_mistyped_check_is_an_error(self) -> None:
        said = io.StringIO()
        arguments = ["vnae.py", "unspin", "claims.json", "agreed", "agred"]
        with mock.patch.object(sys, "argv", arguments), contextlib.redirect_stderr(said):
            self.assertEqual(vnae.main(), 2)
        self.assertIn("no such check: agred;", said.getvalue())


if __name__ == "__main__":
    unittest.main()

"""Tests that scripts/install.sh and uninstall.sh do all or nothing if a file is missing. Run by `python3 -m
unittest discover -s scripts`."""

import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
UNSPIN = """#!/bin/sh
case $1 in
man) mkdir "$2" && echo page > "$2/unspin.1" ;;
completions) echo "$2" ;;
esac
"""


class Install(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.release, self.root = Path(folder.name, "the release"), Path(folder.name, "the root")
        self.release.mkdir()
        self.root.mkdir()
        names = subprocess.check_output([SCRIPTS / "install.sh", "--programs"], text=True).split()
        for name in ("unspin", *names):
            (self.release / name).write_text(UNSPIN)
            (self.release / name).chmod(0o755)
        self.lib = self.root / "usr/local/lib/unspin"

    def call(
        self, script: str, *words: Path, prefix: str = "/usr/local"
    ) -> subprocess.CompletedProcess:
        command = [SCRIPTS / script, *words, prefix, self.root]
        return subprocess.run(command, capture_output=True, text=True)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.root.rglob("*") if path.is_file())

    def test_an_incomplete_build_installs_nothing(self) -> None:
        (self.release / "phasebench").unlink()
        done = self.call("install.sh", self.release)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the release/phasebench is missing", done.stderr)
        self.assertEqual(self.files(), [])

    def test_units_name_a_program_below_a_prefix_with_blanks(self) -> None:
        for prefix, named in (("/usr/local", "/usr/local"), ("/opt/my own", r"/opt/my\x20own")):
            self.assertEqual(self.call("install.sh", self.release, prefix=prefix).returncode, 0)
            for unit in ("unspin", "unspin-watch"):
                file = Path(f"{self.root}{prefix}/lib/systemd/system/{unit}.service")
                self.assertIn(f"ExecStart={named}/bin/unspin ", file.read_text())
            self.assertEqual(self.call("uninstall.sh", prefix=prefix).returncode, 0)
        self.assertEqual(self.files(), [])

    def test_programs_of_another_version_are_removed(self) -> None:
        self.assertEqual(self.call("install.sh", self.release).returncode, 0)
        self.assertIn("unspin-watch.service", self.files())
        (self.lib / "phasebench").unlink()
        (self.lib / "new bench").write_text("")
        self.assertEqual(self.call("uninstall.sh").returncode, 0)
        self.assertEqual(self.files(), [])
        self.assertFalse(self.lib.exists())

    def test_a_program_that_cannot_give_its_list_loses_no_file(self) -> None:
        self.assertEqual(self.call("install.sh", self.release).returncode, 0)
        (self.root / "usr/local/bin/unspin").write_text("#!/bin/sh\nexit 1\n")
        before = self.files()
        self.assertNotEqual(self.call("uninstall.sh").returncode, 0)
        self.assertEqual(self.files(), before)


if __name__ == "__main__":
    unittest.main()

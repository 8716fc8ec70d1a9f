"""Tests how scripts find Rust. Run by `python3 -m unittest discover -s scripts`."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent


@unittest.skipUnless(shutil.which("dpkg"), "needs dpkg, which compares versions")
class Rust(unittest.TestCase):
    def test_a_service_without_a_home_finds_rust_in_path(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cargo", "rustc", "rustfmt", "cargo-clippy"):
                program = Path(folder, name)
                program.write_text("#!/bin/sh\necho rustc 99.0.0\n")
                program.chmod(0o755)
            command = [SCRIPTS / "with-rust", "sh", "-c", "command -v cargo"]
            done = subprocess.run(
                command, env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True
            )
        self.assertEqual((done.stdout, done.stderr), (f"{folder}/cargo\n", ""))


if __name__ == "__main__":
    unittest.main()

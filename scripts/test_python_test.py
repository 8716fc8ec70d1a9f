"""Tests that two checkouts can call scripts/python-test.sh at once. Run by `python3 -m unittest discover -s
scripts`."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
# A Python that makes environments from itself. Its ruff passes, and its pytest takes a while.
PYTHON = """#!/bin/sh
case "$*" in
*print*) echo 3.99 ;;
"-m venv "*)
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    printf '#!/bin/sh\\n' > "$3/bin/ruff"
    chmod +x "$3/bin/ruff" ;;
"-m pytest"*)
    touch "${0%/*}/in-use-$$" "$BEGUN"
    sleep 0.5
    [ -f "${0%/*}/in-use-$$" ] ;;
esac
"""


class PythonTest(unittest.TestCase):
    def test_checkouts_do_not_take_each_others_environment(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        home = Path(folder.name)
        python = home / "python"
        python.write_text(PYTHON)
        python.chmod(0o755)
        running = []
        for name in ("one", "other one"):
            scripts = home / name / "scripts"
            scripts.mkdir(parents=True)
            for script in ("python-test.sh", "cache.sh"):
                shutil.copy(SCRIPTS / script, scripts)
            (home / name / "python").mkdir()
            (home / name / "python/pyproject.toml").touch()
            begun = home / f"{name} began"
            own = {"PYTHON": python, "UNSPIN_CACHE": home / "cache", "BEGUN": begun}
            environment = {**os.environ, **{key: str(value) for key, value in own.items()}}
            running.append(subprocess.Popen(
                [scripts / "python-test.sh"], env=environment, stderr=subprocess.PIPE, text=True
            ))
            # Start the next call while these tests run.
            while not begun.exists() and running[-1].poll() is None:
                time.sleep(0.01)
        said = [(process.communicate(timeout=60)[1], process.returncode) for process in running]
        self.assertEqual([status for _, status in said], [0, 0], said)


if __name__ == "__main__":
    unittest.main()

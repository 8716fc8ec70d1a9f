"""What runs on a worker, without a cluster."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from unspin import _worker

WORKER = """
import sys, threading
from pathlib import Path
from unspin import _worker
command = ["sh", "-c", "echo $$ > pid; exec sleep 600"]
thread = threading.Thread(target=_worker._wait, args=("sweep", command, Path(sys.argv[1])))
thread.start()
thread.join()
"""

LIMIT_S = 30.0


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # In a container, nobody may take note of the end of an orphan.
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_what_a_killed_worker_runs_ends_with_it(tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)])
    written = tmp_path / "pid"
    deadline = time.monotonic() + LIMIT_S
    while not (written.exists() and written.read_text().endswith("\n")):
        assert worker.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int(written.read_text())
    assert is_running(pid)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_has_its_code_its_output_and_its_signals(tmp_path: Path) -> None:
    # Where SIGPIPE is ignored, the shell goes on.
    script = "kill -PIPE $$; echo not here"
    assert _worker._wait("sweep", ["sh", "-c", script], tmp_path) == (-signal.SIGPIPE, "")
    assert _worker._wait("sweep", ["sh", "-c", "echo here; exit 3"], tmp_path) == (3, "here\n")
    code, log = _worker._wait("sweep", ["/none/unspin"], tmp_path)
    assert (code, log) == (127, "No such file or directory\n")

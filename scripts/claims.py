"""Claims that scripts measure, in the form that `unspin claims record` reads."""

import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# With 6 samples, the minimum and the maximum enclose the median in 96.9 % of all cases.
SPREAD_MIN = 6


def processor() -> str:
    """Returns this machine's processor model, or its architecture if the kernel does not report a model."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(models, "") or platform.machine()


def spread(values: list[float]) -> tuple[float | None, float | None]:
    """Returns the minimum and the maximum if they are an interval of at least 95 % for the median."""
    return (min(values), max(values)) if len(values) >= SPREAD_MIN else (None, None)


def in_file(file: Path) -> list[dict]:
    """Returns the claims in a file, or none if the file does not exist. Ends the script if the file has other
    content."""
    try:
        return json.loads(file.read_text()) if file.exists() else []
    except ValueError:
        sys.exit(f"{file} is not a file of claims: remove it, or name another one")


class Claims:
    """The claims of one script. `command` repeats the measurement."""

    def __init__(self, label: str, script: str, command: str):
        head = ["git", "-c", "safe.directory=*", "-C", ROOT, "describe", "--always", "--dirty"]
        head += ["--abbrev=12", "--exclude=*"]
        commit = subprocess.run(head, capture_output=True, text=True).stdout.strip()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        self.every = {
            "label": label, "experiment": f"scripts/{script}", "command": command,
            "date": today, "commit": commit,
        }
        self.found: list[dict] = []

    def add(
        self, name: str, what: str, value: float, unit: str, n: int, target: str = "",
        interval: tuple[float | None, float | None] = (None, None), reason: str = "",
        label: str = "", command: str = "",
    ) -> None:
        """Adds a figure from `n` samples. `target` has the form `>= 0.95`, and `unspin` judges it. `reason`
        explains a missed target. `label` and `command` replace those of the other claims."""
        low, high = interval
        claim = {
            "id": name, "what": what, "value": value, "lo": low, "hi": high, "n": n,
            "unit": unit, "target": target, "reason": reason, "holds": None, **self.every,
        }
        own = {"label": label, "command": command}
        self.found.append(claim | {name: value for name, value in own.items() if value})

    def text(self) -> str:
        """Returns all claims as JSON."""
        return json.dumps(self.found, indent=1)

    def save(self, file: Path) -> None:
        """Writes the claims into a file, and keeps the file's other claims."""
        if not self.found:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        mine = {claim["id"] for claim in self.found}
        kept = [claim for claim in in_file(file) if claim["id"] not in mine]
        file.write_text(json.dumps(kept + self.found, indent=1))

"""What scripts measure, as `unspin claims record` takes it."""

import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The least and the most of so many samples have the median between them in 96.9 % of all cases.
SPREAD_MIN = 6


def processor() -> str:
    """This machine's, or its architecture where it does not say."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(models, "") or platform.machine()


def spread(values: list[float]) -> tuple[float | None, float | None]:
    """The least and the most, where they are an interval of at least 95 % for the median."""
    return (min(values), max(values)) if len(values) >= SPREAD_MIN else (None, None)


def in_file(file: Path) -> list[dict]:
    """The claims that a file has, none where it does not exist. Ends the script where it has anything else."""
    try:
        return json.loads(file.read_text()) if file.exists() else []
    except ValueError:
        sys.exit(f"{file} is not a file of claims: remove it, or name another one")


class Claims:
    """The claims of one script; `command` runs it again."""

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
        label: str = "",
    ) -> None:
        """A figure from `n` samples; `target` is as in `>= 0.95`. `unspin` judges it, and `reason` says
        why it misses its target, should it; `label` is its own, where it differs from the others'."""
        low, high = interval
        claim = {
            "id": name, "what": what, "value": value, "lo": low, "hi": high, "n": n,
            "unit": unit, "target": target, "reason": reason, "holds": None, **self.every,
        }
        self.found.append(claim | ({"label": label} if label else {}))

    def text(self) -> str:
        """All of them, as JSON."""
        return json.dumps(self.found, indent=1)

    def save(self, file: Path) -> None:
        """Writes them into a file, and keeps others that it has."""
        if not self.found:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        mine = {claim["id"] for claim in self.found}
        kept = [claim for claim in in_file(file) if claim["id"] not in mine]
        file.write_text(json.dumps(kept + self.found, indent=1))

"""How far a sweep is, on standard error."""

import sys
import time

from ._record import is_result
from ._worker import Result

LINE_EVERY_S = 30.0
"""Between two lines where there is no terminal to redraw."""


class Progress:
    """One line, redrawn on a terminal."""

    def __init__(self, done: int, planned: int, shown: bool) -> None:
        self.done, self.planned, self.shown = done, planned, shown
        self.ended = self.failed = 0
        self.began = time.monotonic()
        self.last_line = float("-inf")
        self.terminal = sys.stderr.isatty()

    def run(self, result: Result) -> None:
        """Counts a run that ended."""
        finished = any(map(is_result, result.records))
        self.done += finished
        self.failed += not finished
        self.ended += 1

    def show(self) -> None:
        now = time.monotonic()
        if not self.shown or (not self.terminal and now - self.last_line < LINE_EVERY_S):
            return
        self.last_line = now
        start, end = ("\r", "\x1b[K") if self.terminal else ("", "\n")
        sys.stderr.write(f"{start}{self.line(now)}{end}")
        sys.stderr.flush()

    def line(self, now: float) -> str:
        """Such as `12/60 runs, 4 min left`."""
        text = f"{self.done}/{self.planned} runs"
        if self.failed:
            text += f", {self.failed} failed"
        left = self.planned - self.done - self.failed
        if self.ended and left > 0:
            text += f", {duration((now - self.began) / self.ended * left)} left"
        return text

    def end(self) -> None:
        """Leaves the last line."""
        if not self.shown:
            return
        self.last_line = float("-inf")
        self.show()
        if self.terminal:
            sys.stderr.write("\n")


def duration(seconds: float) -> str:
    """`42 s`, `7 min` or `1 h 20 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if seconds < 5400 else f"{minutes // 60} h {minutes % 60} min"

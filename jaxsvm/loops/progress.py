"""A progress bar: a line on the standard error stream that rewrites itself."""

from __future__ import annotations

import contextlib
import sys
import time


class Bar:
    """Progress, a note on the last part, and the estimated time left.

    Args:
        total: number of units in all; None if it is not known.
        unit: name of what is counted.
    """

    def __init__(self, total: int | None, unit: str) -> None:
        self.total, self.unit, self.last_drawn, self.line = total, unit, 0.0, ""
        self.first: tuple[float, int] | None = None  # time and count of the first call of `show`

    def show(self, count: int, note: str = "") -> None:
        """Draw the bar at `count`, ten times a second at most."""
        now, total = time.monotonic(), self.total
        note = f", {note}" if note else ""
        # the parts after the first, which holds the compilation, tell the time left
        self.first = self.first or (now, count)
        seconds, done = now - self.first[0], count - self.first[1]
        if total is None:
            self.line = f"\r{count} {self.unit}{note} "
        else:
            full = 24 * count // max(total, 1)
            bar = f"[{'#' * full}{'.' * (24 - full)}]"
            left = f", {seconds * (total - count) / max(done, 1):.0f} s left"
            left = left if done or count >= total else ""
            self.line = f"\r{bar} {count}/{total} {self.unit}{note}{left} "
        if now - self.last_drawn >= 0.1:
            self.last_drawn = now
            self._draw()

    def close(self) -> None:
        """Draw the last count, and end the line, if there is one."""
        if self.line:
            self._draw("\n")

    def _draw(self, end: str = "") -> None:
        # a stream that is closed, full or None does not end the run
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(self.line + end)
            sys.stderr.flush()

"""A progress bar: a line on the standard error stream that rewrites itself."""

from __future__ import annotations

import sys
import time


class Bar:
    """How far, how well, and how long it will take.

    Args:
        total: what there is to do; None where nobody knows.
        unit: what it is counted in.
    """

    def __init__(self, total: int | None, unit: str):
        self.total, self.unit, self.began, self.shown, self.last = total, unit, time.monotonic(), 0.0, ""

    def show(self, made: int, said: str = "") -> None:
        """Draw the bar at `made`, ten times a second at most."""
        now, total = time.monotonic(), self.total
        said = f", {said}" if said else ""
        if total is None:
            self.last = f"\r{made} {self.unit}{said} "
        else:
            left, full = (now - self.began) * (total - made) / made, 24 * made // total
            self.last = f"\r[{'#' * full}{'.' * (24 - full)}] {made}/{total} {self.unit}{said}, {left:.0f} s left "
        if now - self.shown >= 0.1:
            self.shown = now
            self._draw()

    def close(self) -> None:
        """Draw where it ended, and end the line."""
        self._draw()
        sys.stderr.write("\n")

    def _draw(self) -> None:
        sys.stderr.write(self.last)
        sys.stderr.flush()

"""A progress bar: a line on the standard error stream that rewrites itself."""

from __future__ import annotations

import sys
import time


class Bar:
    """Progress, a note on the last part, and the estimated time left.

    Args:
        total: number of units in all; None if it is not known.
        unit: name of what is counted.
    """

    def __init__(self, total: int | None, unit: str) -> None:
        self.total, self.unit, self.start_time, self.last_drawn, self.line = (
            total,
            unit,
            time.monotonic(),
            0.0,
            "",
        )

    def show(self, count: int, note: str = "") -> None:
        """Draw the bar at `count`, ten times a second at most."""
        now, total = time.monotonic(), self.total
        note = f", {note}" if note else ""
        if total is None:
            self.line = f"\r{count} {self.unit}{note} "
        else:
            left, full = (now - self.start_time) * (total - count) / count, 24 * count // total
            bar = f"[{'#' * full}{'.' * (24 - full)}]"
            self.line = f"\r{bar} {count}/{total} {self.unit}{note}, {left:.0f} s left "
        if now - self.last_drawn >= 0.1:
            self.last_drawn = now
            self._draw()

    def close(self) -> None:
        """Draw the last count, and end the line."""
        self._draw()
        sys.stderr.write("\n")

    def _draw(self) -> None:
        sys.stderr.write(self.line)
        sys.stderr.flush()

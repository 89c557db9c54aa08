"""A progress bar: a line on the standard error stream that rewrites itself."""

from __future__ import annotations

import sys
import time


class Bar:
    """How far, how well, and how long it will take.

    Args:
        total: what there is to do.
        unit: what it is counted in.
    """

    def __init__(self, total: int, unit: str):
        self.total, self.unit, self.began, self.shown = total, unit, time.monotonic(), 0.0

    def show(self, made: int, said: str = "") -> None:
        """Draw the bar at `made`, ten times a second at most."""
        now = time.monotonic()
        if made < self.total and now - self.shown < 0.1:
            return
        self.shown = now
        left = (now - self.began) * (self.total - made) / made
        full = 24 * made // self.total
        sys.stderr.write(
            f"\r[{'#' * full}{'.' * (24 - full)}] {made}/{self.total} {self.unit}, {said}{', ' if said else ''}{left:.0f} s left "
        )
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        sys.stderr.write("\n")

"""Ctrl-C kept for a good moment."""

from __future__ import annotations

import signal
import threading
from typing import Any


class DeferredInterrupt:
    """Keeps the first Ctrl-C for later: `requested` says that it came. A second one interrupts at once.

    Only the main thread gets signals; elsewhere, and where Ctrl-C is ignored, nothing changes.

    Args:
        again: send the interrupt that came once more at the end of the block.

    Example:
        >>> with DeferredInterrupt() as interrupt:
        ...     interrupt.requested
        False
    """

    def __init__(self, again: bool = False):
        """Keep the choice."""
        self.again, self.requested, self.handler = again, False, None

    def __enter__(self) -> DeferredInterrupt:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
            self.handler = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.handler is None:
            return
        signal.signal(signal.SIGINT, self.handler)
        if self.again and self.requested:
            signal.raise_signal(signal.SIGINT)

    def _note(self, *_: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

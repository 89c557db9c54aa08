"""Deferred Ctrl-C."""

from __future__ import annotations

import signal
import threading
from typing import Any


class DeferredInterrupt:
    """Defers the first Ctrl-C, after which `requested` is True; a second one interrupts at once.

    It has no effect outside of the main thread, which alone receives signals, and, with `again`,
    where Ctrl-C is ignored.

    Args:
        again: send a deferred interrupt again at the end of the block.

    Example:
        >>> import jaxsvm
        >>> with jaxsvm.files.DeferredInterrupt() as interrupt:
        ...     interrupt.requested
        False
    """

    def __init__(self, again: bool = False) -> None:
        """No interrupt is requested yet."""
        self.again, self.requested = again, False
        self.handler: Any = None

    def __enter__(self) -> DeferredInterrupt:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if handler is not None and not (self.again and handler is signal.SIG_IGN):
                self.handler = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self.handler is None:
            return
        signal.signal(signal.SIGINT, self.handler)
        if self.again and self.requested:
            signal.raise_signal(signal.SIGINT)

    def _on_interrupt(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

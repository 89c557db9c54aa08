"""Ctrl-C that a program ignores."""

import signal

from jaxsvm.files import DeferredInterrupt


def test_ctrl_c_stays_ignored_where_it_is():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferredInterrupt(again=True) as interrupt:
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
        assert not interrupt.requested
    finally:
        signal.signal(signal.SIGINT, before)

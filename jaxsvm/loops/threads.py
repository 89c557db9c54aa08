"""Threads that run compiled programs: how many, when they stop, and what they may overlap."""

from __future__ import annotations

import concurrent.futures
import math
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from ..flags import with_flags_of_caller
from .progress import Bar


def may_overlap(lowered: Any) -> bool:
    """Whether several threads may run a program at the same time.

    XLA spreads a batch of factorisations over its threads, and waits for it on one of them. Where
    each thread waits so, none is left to work: two programs may then wait for each other without
    end.

    Args:
        lowered: from the `lower` of a function under `jax.jit`.
    """
    # triangular systems are solved by one thread
    return all("trsm" in call for call in re.findall(r"@lapack_(\w+)", lowered.as_text()))


def processors() -> int:
    """The number of programs that may run at the same time: processors of this process on a CPU."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Jobs(Bar):
    """Jobs of several threads: they are counted on a bar, and end at an error or after a time."""

    def __init__(
        self, total: int, done: int, name: str, shown: bool, seconds: float | None = None
    ) -> None:
        """Start the clock; `name` is that of the jobs, whose bar may be shown."""
        super().__init__(total, name)
        self.done, self.shown, self.lock = done, shown, threading.Lock()
        self.event, self.has_one = threading.Event(), False  # one is made in any case
        self.end = math.inf if seconds is None else time.monotonic() + seconds

    def add(self, count: int) -> None:
        """So many more jobs are done."""
        with self.lock:
            self.done, self.has_one = self.done + count, True
            if self.shown:
                self.show(self.done)

    @property
    def out_of_time(self) -> bool:
        """Whether the time is over, and a job was done."""
        return self.has_one and time.monotonic() > self.end

    @property
    def stopped(self) -> bool:
        """Whether no other job may start: after Ctrl-C, an error in another thread, or the time."""
        return self.event.is_set() or self.out_of_time

    def run(self, work: Callable, jobs: list, threads: int) -> list:
        """The results of jobs, by several threads in their order; an error of one ends the others.

        That of a job that does not start is None.
        """
        pool = concurrent.futures.ThreadPoolExecutor(max(1, threads))

        @with_flags_of_caller
        def run_job(job: object) -> object:
            try:
                return None if self.stopped else work(job)
            except BaseException:
                self.event.set()
                raise

        try:
            results = [future.result() for future in [pool.submit(run_job, job) for job in jobs]]
        finally:
            self.event.set()
            pool.shutdown(wait=True, cancel_futures=True)
        self.event.clear()
        return results

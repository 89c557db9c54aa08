"""A solver made of functions, for tests that need one that does something else."""

from collections.abc import Callable
from typing import Any

import jaxsvm


def counting(calls):
    """A wrapper that appends to `calls` where an update of its solver is traced."""

    @jaxsvm.node
    class counting(jaxsvm.Wrapper):
        inner: jaxsvm.Solver

        def update(self, state, batch):
            calls.append(self)
            return self.inner.update(state, batch)

    return counting


@jaxsvm.node
class plain(jaxsvm.Solver):
    """The functions are fields, in the places of the methods."""

    init: Callable
    update: Callable
    model: Callable
    sampler: Any = jaxsvm.static(default=None)
    needs_all_rows: Any = jaxsvm.static(default=False)
    targets: Any = jaxsvm.static(default=None)
    residual_of: Any = jaxsvm.static(default="data")
    validate: Callable = lambda data: None
    tol: Any = None

    @property
    def iterates_to(self):
        return self.tol

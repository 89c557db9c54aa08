"""Fits as tasks of scikit-learn's callbacks, which it has from version 1.9 on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """No callbacks."""

    with_callbacks = None


def as_task(fit: Callable) -> Callable:
    """The method `fit` as one task, whose beginning and end callbacks are told."""
    if with_callbacks is None:
        return fit
    signature = inspect.signature(fit)

    @with_callbacks
    @functools.wraps(fit)
    def task(self: Any, *args: object, **more: object) -> Any:
        bound = signature.bind(self, *args, **more)
        bound.apply_defaults()
        _, X, y, *metadata = bound.arguments.items()
        of_task = {"estimator": self, "X": X[1], "y": y[1], "metadata": dict(metadata)}
        context = self._init_callback_context()
        context.call_on_fit_task_begin(**of_task)
        fit(self, *args, **more)
        context.call_on_fit_task_end(**of_task, reconstruction_attributes={})
        return self

    return task

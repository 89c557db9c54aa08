"""The average of a solver's iterates as its model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

from .._node import between, node, register
from ..averaging import AverageState, init_mean, update_mean
from ..models import Linear
from ..types import Array, Batch, Info, Solver, State, Wrapper, said, updated


@register("AveragedState")
class AveragedState(NamedTuple):
    """An inner solver and the average of its models."""

    inner: Any
    average: AverageState | None  # None: the inner state has its mean itself


@node
class averaged(Wrapper):
    """A solver whose model is the average of the linear models of `inner`, instead of the last.

    mean_t = sum_s weight_s w_s / sum_s weight_s over the iterates s = start, ..., t; the bias
    likewise.

    Args:
        inner: a solver whose model is `Linear`; inside a feature map write `on_features(phi,
            averaged(s))`.
        start: number of initial steps to skip, >= 0.
        weights: step since start (0.0, 1.0, ...) -> weight, > 0; None: equal weights.

    Raises:
        TypeError: if the model of `inner` is not `Linear`.

    Example:
        >>> import jaxsvm
        >>> jaxsvm.averaged(jaxsvm.pegasos(0.01), weights=lambda t: t + 1).needs_all_rows
        False

    Reference: B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, SIAM
        J. Control Optim. 30, 1992; weights growing with t: S. Lacoste-Julien, M. Schmidt, F. Bach,
        arXiv 1212.2002.
    """

    inner: Solver
    _: KW_ONLY
    start: int = between(0, default=0)
    weights: Callable | None = None

    def iterate(self, state: State, data: Batch | None = None) -> Linear:
        """The model of the state of `inner`."""
        model = self.inner.model(state, data)
        if not isinstance(model, Linear):
            raise TypeError(
                f"averaged takes solvers whose model is Linear, got {type(model).__name__}"
            )
        return model

    def init(self, key: Array, data: Batch) -> AveragedState:
        state = self.inner.init(key, data)
        if said(state, "with_mean"):  # its steps change few columns of the mean, too
            return AveragedState(state.with_mean(), None)
        return AveragedState(state, init_mean(self.iterate(state, data), self.weights))

    def update(self, state: AveragedState, batch: Batch) -> tuple[AveragedState, Info]:
        if state.average is None:
            before = state.inner.weigh_next(self.start, self.weights)
            inner, info = updated(self.inner, before, batch)
            return AveragedState(inner, None), info
        inner, info = updated(self.inner, state.inner, batch)
        mean = update_mean(state.average, self.iterate(inner), self.start, self.weights)
        return AveragedState(inner, mean), info

    def model(self, state: AveragedState, data: Batch | None = None) -> Linear:
        if state.average is not None:
            return state.average.mean
        iterate = self.iterate(state.inner, data)
        w, b = state.inner.mean_of(iterate.w)
        return dataclasses.replace(iterate, w=w, b=iterate.b if b is None else b)
